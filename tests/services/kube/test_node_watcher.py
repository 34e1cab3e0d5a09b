"""One node's annotations, through what API servers and networks do.

`test_broken_watches` has the node's broken watches too.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.kube.connection import ApiConnection, connector
from services.kube.list_watch import WatchTiming
from services.kube.node_watcher import NodeWatcher
from simulator.apiserver.faults import watches
from simulator.apiserver.standin import ApiServerStandIn
from tests.services.kube.following import SimulatedTime
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

QUICK = WatchTiming(first=0.01, longest=0.05, steady=0.5, watch=60.0, grace=10.0)
STALE = b'{"type":"ADDED","object":{"metadata":{"name":"n1","annotations":{"mode":"old"}}}}\n'


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServerStandIn]:
    async with ApiServerStandIn(tmp_path) as standin:
        yield standin


def put(api: ApiServerStandIn, name: str = "n1", **annotations: str) -> None:
    metadata = {"name": name, "annotations": annotations}
    api.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata})


class Following:
    """A watcher, and what it has reported."""

    def __init__(self, api: ApiServerStandIn, timing: WatchTiming) -> None:
        self.reported: list[Mapping[str, str] | None] = []
        self.connection = ApiConnection(connector(api.kubeconfig_path))
        self.watcher = NodeWatcher("n1", self.connection, self.reported.append, timing=timing)

    async def until_reported(self, annotations: Mapping[str, str] | None) -> None:
        await eventually_async(
            lambda: self.reported and self.reported[-1] == annotations, what=str(annotations)
        )


@asynccontextmanager
async def following(api: ApiServerStandIn, timing: WatchTiming = QUICK) -> AsyncIterator[Following]:
    made = Following(api, timing)
    task = asyncio.create_task(made.watcher.watch_forever())
    try:
        yield made
        assert not task.done(), f"it has ended: {task}"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await made.connection.aclose()


def requests(api: ApiServerStandIn) -> Iterator[str]:
    found = (seen.request for seen in api.seen)
    return (f"{each.method} {each.target}" for each in found if "/nodes" in each.target)


async def watching(api: ApiServerStandIn) -> None:
    await eventually_async(lambda: api.watches, what="a watch")


async def test_a_node_that_has_not_changed_for_long_is_read_and_watched_alone(
    api: ApiServerStandIn,
) -> None:
    put(api, mode="af")
    for number in range(3):
        put(api, "n2", mode=str(number))
    api.compact()  # a watch from the version of the node itself would be answered with 410
    async with following(api) as made:
        await watching(api)
        put(api, "n2", mode="changed")
        put(api, mode="region")
        await made.until_reported({"mode": "region"})
        assert made.reported == [{"mode": "af"}, {"mode": "region"}]
    [read, watch, after_the_change] = requests(api)
    assert read == after_the_change == "GET /api/v1/nodes/n1"
    assert watch.startswith("GET /api/v1/nodes?watch=1&fieldSelector=metadata.name%3Dn1&")
    assert "resourceVersion=0&" in watch
    assert "Bookmarks" not in watch


async def test_a_node_that_is_missing_is_waited_for_and_logged_once(
    api: ApiServerStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    async with following(api) as made:
        await eventually_async(lambda: made.reported.count(None) > 3)
        assert 'has no node "n1": set --node-name' in made.watcher.error
        put(api, mode="af")
        await made.until_reported({"mode": "af"})
        assert made.watcher.error == ""
        await watching(api)
        api.drop("Node", "n1")
        await made.until_reported(None)
        put(api, mode="region")
        await made.until_reported({"mode": "region"})
    warnings = [line for line in capsys.readouterr().out.splitlines() if "[warning" in line]
    assert ["has no node" in line for line in warnings] == [True, True]


async def test_outages_and_ends_of_watches_only_delay_changes(api: ApiServerStandIn) -> None:
    put(api, mode="af")
    async with following(api) as made:
        await watching(api)
        async with api.away():
            await eventually_async(lambda: made.watcher.error)
            put(api, mode="region")
        await made.until_reported({"mode": "region"})
        for number, end in enumerate((api.cut_watches, api.end_watches, api.drop_connections)):
            await watching(api)
            end()
            put(api, mode=str(number))
            api.compact()
            await made.until_reported({"mode": str(number)})
    assert None not in made.reported


@pytest.mark.parametrize(
    "body",
    [b"{", b'{"metadata":{"name":"n2"}}', b'{"metadata":{"name":"n1","annotations":3}}'],
)
async def test_what_is_no_node_changes_nothing(api: ApiServerStandIn, body: bytes) -> None:
    put(api, mode="af")
    with api.faults.replaying(body, count=3, matches=lambda request: "/n1" in request.path):
        async with following(api) as made:
            await made.until_reported({"mode": "af"})
    assert made.reported == [{"mode": "af"}]
    assert made.watcher.failures == 3


async def test_a_cache_that_lags_costs_a_read_every_few_seconds_and_undoes_nothing(
    api: ApiServerStandIn,
) -> None:
    put(api, mode="new")
    time = SimulatedTime(1, 60.0, 1.0)
    with api.faults.replaying(STALE * 1000, matches=watches):
        async with following(api, time.timing(WatchTiming())) as made:
            await asyncio.wait_for(time.over.wait(), 60)
    assert {"mode": "old"} not in made.reported
    assert {"mode": "new"} in made.reported
    assert sum("watch=1" not in each for each in requests(api)) <= 16
