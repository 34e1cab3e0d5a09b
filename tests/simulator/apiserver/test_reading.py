"""Lists that stay at one revision, selectors, and watches.

The faults are proved by the tests of the reflectors, which meet them over sockets.
"""

import json

import httpx2
import pytest

from simulator.apiserver.standin import ApiServerStandIn
from tests.simulator.apiserver.support import (
    CRS,
    MERGE,
    PODS,
    Json,
    created,
    function,
    pod,
    watching,
)
from tests.support import eventually_async

pytestmark = pytest.mark.anyio
ALL = f"{CRS}/acceleratorfunctions"


def names(answer: Json) -> list[str]:
    return [one["metadata"]["name"] for one in answer["items"]]


def summary(event: Json) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


async def test_a_paged_list_stays_at_its_revision(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    for name in ("a", "c", "e"):
        api.put(function(name))
    page = (await http.get(ALL, params={"limit": "1"})).json()
    api.drop("AcceleratorFunction", "c")
    api.put(function("b"))
    api.put(function("e", mode="region"))
    found = [page["items"][0]]
    counts = [page["metadata"]["remainingItemCount"]]
    while token := page["metadata"]["continue"]:
        page = (await http.get(ALL, params={"limit": "1", "continue": token})).json()
        found += page["items"]
        counts.append(page["metadata"].get("remainingItemCount"))
    assert names({"items": found}) == ["a", "c", "e"]
    assert counts == [2, 1, None]
    assert found[-1]["spec"]["mode"] == "af"
    assert names((await http.get(ALL)).json()) == ["a", "b", "e"]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"labelSelector": "a=1"}, ["x"]),
        ({"labelSelector": "a==1"}, ["x"]),
        ({"labelSelector": "a!=1"}, ["y", "z"]),
        ({"labelSelector": "a=2,b=2"}, ["y"]),
        ({"fieldSelector": "spec.nodeName=n"}, ["x"]),
        ({"fieldSelector": "spec.nodeName!=n,metadata.name=y"}, ["y"]),
    ],
)
async def test_selectors(
    api: ApiServerStandIn, http: httpx2.AsyncClient, selector: dict[str, str], expected: list[str]
) -> None:
    for name, labels in (("x", {"a": "1"}), ("y", {"a": "2", "b": "2"}), ("z", {})):
        item = pod(name, nodeName="n" if name == "x" else "m")
        item["metadata"]["labels"] = labels
        api.put(item)
    assert names((await http.get(PODS, params=selector)).json()) == expected
    assert (await http.get(PODS, params={"fieldSelector": "spec.colour=red"})).status_code == 400


async def test_an_object_enters_and_leaves_a_selection(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    revision = str(api.store.revision)
    selector = {"fieldSelector": "spec.nodeName=n", "resourceVersion": revision}
    async with watching(http, "/api/v1/pods", **selector) as lines:
        item = await created(http, PODS, pod())
        item["spec"]["nodeName"] = "n"
        api.put(item)
        assert summary(await lines.event()) == ("ADDED", "p")
        change = {"metadata": {"labels": {"a": "b"}}}
        await http.patch(f"{PODS}/p", json=change, headers=MERGE)
        assert summary(await lines.event()) == ("MODIFIED", "p")
        await http.delete(f"{PODS}/p", params={"gracePeriodSeconds": "0"})
        event = await lines.event()
        assert summary(event) == ("DELETED", "p")
        assert event["object"]["metadata"]["labels"] == {"a": "b"}


async def test_a_watch_ends_after_its_seconds_and_has_bookmarks_only_if_asked_for(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    query = {"resourceVersion": str(api.store.revision), "timeoutSeconds": "1"}
    async with watching(http, ALL, **query) as lines:
        assert await lines.rest() == b""
    async with watching(http, ALL, **query, allowWatchBookmarks="true") as lines:
        api.put(pod())
        rest = [json.loads(line) for line in (await lines.rest()).splitlines()]
    assert {event["type"] for event in rest} == {"BOOKMARK"}
    newest = rest[-1]["object"]["metadata"]["resourceVersion"]
    assert newest == str(api.store.revision)
    await eventually_async(lambda: not api.watches)
