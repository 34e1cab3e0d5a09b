"""The mappings of one namespace, read from an API server."""

from pathlib import Path

import pytest

from services.kube import lists
from services.kube.client import ClusterClient, is_outage
from services.mappings.index import NamespaceMappings
from services.mappings.namespace import read_namespace
from services.names import function_name
from services.process.errors import ClusterError
from tests.services.building import ARRIA, NLB0, function
from tests.services.kube.following import MappingServer

pytestmark = pytest.mark.anyio


async def read(server: MappingServer) -> NamespaceMappings:
    async with ClusterClient(server.access) as client:
        return await read_namespace(client, "team")


async def test_both_kinds_are_read_page_by_page_and_bad_objects_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "PAGE", 1)
    async with MappingServer(tmp_path) as server:
        server.put_function("a", "team")
        server.put_function("b", "team", mode="af")
        server.put_function("c", "elsewhere")
        server.put_region("r", "team")
        server.put(function("bad", "af", afu="xyz", namespace="team"))
        found = await read(server)
    assert sorted(found.by_name) == ["a", "b", "r"]
    assert found.namespace == "team"
    assert found.functions.keys() == {(ARRIA, NLB0)}
    assert function_name(ARRIA, NLB0) in found.modes
    assert "afuId" in found.rejected["bad"]


@pytest.mark.parametrize(
    ("status", "text"), [(404, "definitions of fpga.intel.com installed"), (403, "answers 403")]
)
async def test_an_api_server_that_refuses_is_an_error(
    tmp_path: Path, status: int, text: str
) -> None:
    async with MappingServer(tmp_path) as server:
        with server.faults.failing(status), pytest.raises(ClusterError, match=text) as raised:
            await read(server)
    assert not is_outage(raised.value)
