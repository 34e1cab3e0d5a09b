"""Lists: pages that stay at one revision, selectors, and what is too old or not yet there."""

import httpx2
import pytest

from simulator.apiserver.standin import ApiServerStandIn
from tests.simulator.apiserver.support import CRS, PODS, Json, created, function, pod

pytestmark = pytest.mark.anyio
ALL = f"{CRS}/acceleratorfunctions"


def names(answer: Json) -> list[str]:
    return [one["metadata"]["name"] for one in answer["items"]]


async def pages(http: httpx2.AsyncClient, path: str, limit: int) -> list[Json]:
    found: list[Json] = []
    token = ""
    while not found or token:
        params = {"limit": str(limit)} | ({"continue": token} if token else {})
        answer = await http.get(path, params=params)
        assert answer.is_success
        found.append(answer.json())
        token = found[-1]["metadata"].get("continue", "")
    return found


async def test_pages_join_to_the_whole(api: ApiServerStandIn, http: httpx2.AsyncClient) -> None:
    for number in range(7):
        api.seed(function(f"f{number}"))
    parts = await pages(http, ALL, 3)
    assert [names(part) for part in parts] == [["f0", "f1", "f2"], ["f3", "f4", "f5"], ["f6"]]
    counts = [part["metadata"].get("remainingItemCount") for part in parts]
    assert counts == [4, 1, None]
    assert len({part["metadata"]["resourceVersion"] for part in parts}) == 1


async def test_a_paged_list_stays_at_its_revision(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    for name in ("a", "c", "e"):
        api.seed(function(name))
    first = (await http.get(ALL, params={"limit": "1"})).json()
    api.drop("AcceleratorFunction", "c")
    api.put(function("b"))
    api.put(function("e", mode="region"))
    params = {"limit": "1", "continue": first["metadata"]["continue"]}
    second = (await http.get(ALL, params=params)).json()
    params["continue"] = second["metadata"]["continue"]
    third = (await http.get(ALL, params=params)).json()
    assert [names(one) for one in (first, second, third)] == [["a"], ["c"], ["e"]]
    assert third["items"][0]["spec"]["mode"] == "af"
    assert names((await http.get(ALL)).json()) == ["a", "b", "e"]


async def test_a_page_of_a_forgotten_revision_is_a_410_with_a_way_on(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    for name in ("a", "b"):
        api.seed(function(name))
    first = (await http.get(ALL, params={"limit": "1"})).json()
    api.compact()
    params = {"limit": "1", "continue": first["metadata"]["continue"]}
    answer = await http.get(ALL, params=params)
    assert answer.status_code == 410
    assert answer.json()["reason"] == "Expired"
    params["continue"] = answer.json()["metadata"]["continue"]
    assert names((await http.get(ALL, params=params)).json()) == ["b"]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("a=1", ["x"]),
        ("a==1", ["x"]),
        ("a!=1", ["y", "z"]),
        ("a", ["x", "y"]),
        ("!a", ["z"]),
        ("a in (1, 2)", ["x", "y"]),
        ("a notin (1)", ["y", "z"]),
        ("a,b=2", ["y"]),
    ],
)
async def test_labels_select(
    api: ApiServerStandIn, http: httpx2.AsyncClient, selector: str, expected: list[str]
) -> None:
    for name, labels in (("x", {"a": "1"}), ("y", {"a": "2", "b": "2"}), ("z", {})):
        item = function(name)
        item["metadata"]["labels"] = labels
        api.seed(item)
    answer = (await http.get(ALL, params={"labelSelector": selector})).json()
    assert names(answer) == expected


async def test_fields_select_and_unknown_ones_are_refused(http: httpx2.AsyncClient) -> None:
    await created(http, PODS, pod("a", nodeName="n1"))
    await created(http, PODS, pod("b", nodeName="n2"))
    for selector, expected in (
        ("spec.nodeName=n1", ["a"]),
        ("spec.nodeName!=n1", ["b"]),
        ("metadata.name=b,status.phase=Pending", ["b"]),
    ):
        params = {"fieldSelector": selector}
        assert names((await http.get("/api/v1/pods", params=params)).json()) == expected
    answer = await http.get(PODS, params={"fieldSelector": "spec.colour=red"})
    assert answer.status_code == 400
    assert "field label not supported: spec.colour" in answer.json()["message"]
