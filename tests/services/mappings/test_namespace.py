import json
from typing import Any

import pytest

from services.kube.client import BadStatus, HttpResponse
from services.mappings.index import NamespaceMappings
from services.mappings.namespace import read_namespace
from services.names import function_name
from services.process.errors import ClusterError

pytestmark = pytest.mark.anyio

INTERFACE = "ce48969398f05f33946d560708be108a"
NLB0 = "d8424dc4a4a3c413f89e433683f9040b"
FUNCTIONS = "/apis/fpga.intel.com/v2/namespaces/team-a/acceleratorfunctions"
REGIONS = "/apis/fpga.intel.com/v2/namespaces/team-a/fpgaregions"


class Client:
    """Gives pages by path, as the API server's client does."""

    def __init__(self, pages: dict[str, list[object]], status: int = 0) -> None:
        self._pages = pages
        self._status = status

    async def pages(self, path: str, *, limit: int) -> Any:  # noqa: ARG002 - as the client
        if self._status:
            raise BadStatus(
                f"the API server answers {self._status}", HttpResponse(self._status, b"")
            )
        for page in self._pages[path]:
            yield page if isinstance(page, bytes) else json.dumps(page).encode()


def function(name: str, mode: str = "region", afu: str = NLB0) -> dict[str, Any]:
    spec = {"interfaceId": INTERFACE, "afuId": afu, "mode": mode}
    return {"metadata": {"name": name, "namespace": "elsewhere"}, "spec": spec}


async def read(client: Client) -> NamespaceMappings:
    return await read_namespace(client, "team-a")  # type: ignore[arg-type] # as much of it as is used


async def test_both_kinds_are_read_page_by_page() -> None:
    region = {"metadata": {"name": "r"}, "spec": {"interfaceId": INTERFACE}}
    found = await read(
        Client(
            {
                FUNCTIONS: [{"items": [function("a")]}, {"items": [function("b", "af")]}],
                REGIONS: [{"items": [region]}],
            }
        )
    )
    assert sorted(found.by_name) == ["a", "b", "r"]
    assert found.namespace == "team-a"
    assert found.functions == {(INTERFACE, NLB0): 1}
    assert function_name(INTERFACE, NLB0) in found.by_resource


async def test_an_object_that_is_no_good_is_left_out_and_remembered() -> None:
    items: list[Any] = [function("a"), function("bad", afu="xyz"), {"metadata": 3}, {}]
    found = await read(Client({FUNCTIONS: [{"items": items}], REGIONS: [{"items": []}]}))
    assert list(found.by_name) == ["a"]
    assert "AFU id" in found.rejected["bad"] or "afuId" in found.rejected["bad"]


@pytest.mark.parametrize("page", [b"{}", b"[", b'{"items": [1]}'])
async def test_a_list_that_is_none_is_an_error(page: bytes) -> None:
    with pytest.raises(ClusterError, match=f"GET {FUNCTIONS} can't be read"):
        await read(Client({FUNCTIONS: [page]}))


@pytest.mark.parametrize(
    ("status", "said"), [(404, "definitions of fpga.intel.com installed"), (403, "answers 403$")]
)
async def test_an_api_server_that_says_no_is_an_error(status: int, said: str) -> None:
    with pytest.raises(ClusterError, match=said):
        await read(Client({}, status))
