"""Watches: from a revision on, with bookmarks and selectors, and how they end."""

import json
import time

import httpx2
import pytest

from simulator.apiserver.standin import ApiServerStandIn
from tests.simulator.apiserver.support import (
    CRS,
    FUNCTIONS,
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


def told(event: Json) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


async def test_a_watch_goes_on_where_a_list_ended(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    api.seed(function("old"))
    version = (await http.get(ALL)).json()["metadata"]["resourceVersion"]
    api.put(function("missed"))
    async with watching(http, ALL, resourceVersion=version) as lines:
        assert told(await lines.event()) == ("ADDED", "missed")
        api.put(function("old", mode="region"))
        assert told(await lines.event()) == ("MODIFIED", "old")
        api.drop("AcceleratorFunction", "missed")
        assert told(await lines.event()) == ("DELETED", "missed")


@pytest.mark.parametrize("params", [{}, {"resourceVersion": "0"}])
async def test_a_watch_without_a_revision_begins_with_what_is_there(
    api: ApiServerStandIn, http: httpx2.AsyncClient, params: dict[str, str]
) -> None:
    api.seed(function("a"))
    async with watching(http, ALL, **params) as lines:
        assert told(await lines.event()) == ("ADDED", "a")
        api.put(function("b"))
        assert told(await lines.event()) == ("ADDED", "b")


async def test_a_watch_of_one_object_hears_of_that_one(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    revision = str(api.store.revision)
    async with watching(http, f"{FUNCTIONS}/b", resourceVersion=revision) as lines:
        api.put(function("a"))
        api.put(function("b"))
        assert told(await lines.event()) == ("ADDED", "b")


async def test_an_object_enters_and_leaves_a_selection(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    revision = str(api.store.revision)
    selector = {"fieldSelector": "spec.nodeName=n", "resourceVersion": revision}
    async with watching(http, "/api/v1/pods", **selector) as lines:
        await created(http, PODS, pod())
        bound = {"target": {"kind": "Node", "name": "n"}}
        assert (await http.post(f"{PODS}/p/binding", json=bound)).status_code == 201
        assert told(await lines.event()) == ("ADDED", "p")
        change = {"metadata": {"labels": {"a": "b"}}}
        await http.patch(f"{PODS}/p", json=change, headers=MERGE)
        assert told(await lines.event()) == ("MODIFIED", "p")
        await http.delete(f"{PODS}/p", params={"gracePeriodSeconds": "0"})
        event = await lines.event()
        assert told(event) == ("DELETED", "p")
        assert event["object"]["metadata"]["labels"] == {"a": "b"}


async def test_bookmarks_come_only_when_asked_for_and_carry_the_revision(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    revision = str(api.store.revision)
    async with watching(http, ALL, resourceVersion=revision, timeoutSeconds="1") as lines:
        assert await lines.rest() == b""
    query = {"resourceVersion": revision, "allowWatchBookmarks": "true"}
    async with watching(http, ALL, **query) as lines:
        api.put(pod())
        newest = str(api.store.revision)
        await eventually_async(lambda: _bookmark_at(lines_event=lines.event(), revision=newest))


async def _bookmark_at(lines_event: object, revision: str) -> bool:
    event: Json = await lines_event  # type: ignore[misc]  # a coroutine of the reader
    assert event["type"] == "BOOKMARK"
    return bool(event["object"]["metadata"]["resourceVersion"] == revision)


async def test_a_watch_ends_properly_after_its_seconds(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    started = time.monotonic()
    query = {"resourceVersion": str(api.store.revision), "timeoutSeconds": "1"}
    async with watching(http, ALL, **query) as lines:
        assert await lines.rest() == b""
    assert time.monotonic() - started > 0.9
    await eventually_async(lambda: not api.watches)


async def test_a_watch_of_a_forgotten_revision_is_told_so_in_an_event(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    api.compact()
    async with watching(http, ALL, resourceVersion="1") as lines:
        event = json.loads(await lines.rest())
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
