"""One node's annotations, followed through what API servers and networks do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

import pytest

from services.kube.connection import Connection, connector
from services.kube.list_watch import WatchTimeouts
from services.kube.node_watcher import NodeWatcher
from services.mappings.source import Timing
from simulator.apiserver.faults import watches
from simulator.apiserver.http_server import Request
from simulator.apiserver.standin import ApiServerStandIn
from tests.services.kube.following import FakeTime, SimulatedTime
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

QUICK = WatchTimeouts(first=0.01, longest=0.05, steady=0.5, watch=60.0, grace=10.0)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServerStandIn]:
    async with ApiServerStandIn(tmp_path) as standin:
        yield standin


def put(api: ApiServerStandIn, name: str = "n1", **annotations: str) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {},
        "status": {},
    }
    api.put(node)


class Watcher:
    """A watcher that notes what it is told."""

    def __init__(
        self, api: ApiServerStandIn, pace: WatchTimeouts, poll_seconds: float, timing: Timing
    ) -> None:
        self.told: list[Mapping[str, str] | None] = []
        self.failures = 0
        self.connection = Connection(connector(api.kubeconfig_path))
        self.watcher = NodeWatcher(
            "n1",
            self.connection,
            self.told.append,
            timeouts=pace,
            on_failure=self._failed,
            poll_seconds=poll_seconds,
            clock=timing.clock,
            sleep=timing.sleep,
            jitter=timing.jitter,
        )

    def _failed(self) -> None:
        self.failures += 1

    async def until_told(self, annotations: Mapping[str, str] | None) -> None:
        await eventually_async(
            lambda: self.told and self.told[-1] == annotations, what=f"being told {annotations}"
        )


@asynccontextmanager
async def following(
    api: ApiServerStandIn,
    *,
    pace: WatchTimeouts = QUICK,
    poll_seconds: float = 60.0,
    timing: Timing | None = None,
) -> AsyncIterator[Watcher]:
    made = Watcher(api, pace, poll_seconds, timing or Timing())
    task = asyncio.create_task(made.watcher.watch_forever())
    try:
        yield made
        assert not task.done(), f"it has ended: {task}"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await made.connection.aclose()


def asked(api: ApiServerStandIn) -> Iterator[str]:
    requests = (seen.request for seen in api.seen)
    return (f"{each.method} {each.target}" for each in requests if "/nodes" in each.target)


async def watching(api: ApiServerStandIn) -> None:
    await eventually_async(lambda: api.watches, what="a watch")


async def test_annotations_are_told_at_once_and_after_each_change(
    api: ApiServerStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.kube.node_watcher.READ_SECONDS", 0.01)
    put(api, mode="af")
    async with following(api) as made:
        await made.until_told({"mode": "af"})
        await watching(api)
        put(api, mode="region")
        await made.until_told({"mode": "region"})
        put(api)
        await made.until_told({})


async def test_only_this_node_is_asked_for_with_get_and_watch(api: ApiServerStandIn) -> None:
    put(api, mode="af")
    put(api, "n2", mode="of another node")
    async with following(api) as made:
        await watching(api)
        put(api, "n2", mode="changed")
        put(api, mode="region")
        await made.until_told({"mode": "region"})
        assert {"mode": "changed"} not in made.told
    [read, watch, after_the_change] = asked(api)
    assert read == after_the_change == "GET /api/v1/nodes/n1"
    assert watch.startswith("GET /api/v1/nodes?watch=1&fieldSelector=metadata.name%3Dn1&")
    assert "resourceVersion=0&" in watch
    assert "Bookmarks" not in watch


async def test_where_watching_is_forbidden_the_node_is_read_every_now_and_then(
    api: ApiServerStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, mode="af")
    with api.faults.failing(403, matches=watches):
        async with following(api, poll_seconds=0.02) as made:
            await made.until_told({"mode": "af"})
            put(api, mode="region")
            await made.until_told({"mode": "region"})
            await eventually_async(lambda: len(made.told) > 5)
    assert sum("watch=1" in each for each in asked(api)) == 1, "it isn't tried again at once"
    assert capsys.readouterr().out.count("watching the node is forbidden") == 1


async def test_a_node_that_is_not_there_yet_is_waited_for_and_said_once(
    api: ApiServerStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    async with following(api, poll_seconds=0.02) as made:
        await eventually_async(lambda: made.told.count(None) > 3)
        assert 'has no node "n1": set --node-name' in made.watcher.error
        put(api, mode="af")
        await made.until_told({"mode": "af"})
        assert made.watcher.error == ""
    [said] = [line for line in capsys.readouterr().out.splitlines() if "[warning" in line]
    assert "has no node" in said


async def test_a_refusal_is_an_answer_too(api: ApiServerStandIn) -> None:
    put(api, mode="af")
    async with following(api) as made:
        with api.faults.failing(403):
            await made.until_told(None)
            assert "RBAC" in made.watcher.error
        await made.until_told({"mode": "af"})


async def test_an_outage_only_delays_what_has_changed_meanwhile(api: ApiServerStandIn) -> None:
    put(api, mode="af")
    async with following(api) as made:
        await watching(api)
        for mode in ("region", "af", "regiondevel"):
            async with api.away():
                await eventually_async(lambda: made.watcher.error)
                put(api, mode=mode)
            await made.until_told({"mode": mode})
    assert None not in made.told


async def test_a_watch_that_is_too_old_cut_or_ended_is_taken_up_again(
    api: ApiServerStandIn,
) -> None:
    put(api, mode="0")
    async with following(api) as made:
        for number, end in enumerate((api.cut_watches, api.end_watches, api.drop_connections), 1):
            await watching(api)
            end()
            put(api, mode=str(number))
            api.compact()
            await made.until_told({"mode": str(number)})


async def test_a_node_that_has_not_changed_for_long_can_be_watched(api: ApiServerStandIn) -> None:
    put(api, mode="af")
    for number in range(3):
        put(api, "n2", mode=str(number))
    api.compact()  # a watch from the version of the node itself would be answered with 410
    async with following(api) as made:
        await watching(api)
        put(api, mode="region")
        await made.until_told({"mode": "region"})
    assert len([each for each in asked(api) if "watch=1" in each]) == 1


async def test_a_node_that_is_deleted_and_made_again_is_followed(api: ApiServerStandIn) -> None:
    put(api, mode="af")
    async with following(api, poll_seconds=0.02) as made:
        await watching(api)
        api.drop("Node", "n1")
        await made.until_told(None)
        put(api, mode="region")
        await made.until_told({"mode": "region"})


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{", b'{"metadata":{"name":"n2"}}', b'{"metadata":{"name":"n1","annotations":3}}'],
)
async def test_what_is_no_node_is_said_and_read_again(api: ApiServerStandIn, body: bytes) -> None:
    put(api, mode="af")
    with api.faults.replaying(body, count=3, matches=lambda request: "/n1" in request.path):
        async with following(api) as made:
            await made.until_told({"mode": "af"})


MINUTE = 60.0


def refused(api: ApiServerStandIn, code: int) -> AbstractContextManager[None]:
    return api.faults.failing(code, matches=watches)


def told_error(api: ApiServerStandIn, code: int) -> AbstractContextManager[None]:
    return api.faults.watches_failing(code)


def told_node_then_error(api: ApiServerStandIn, code: int) -> AbstractContextManager[None]:
    """With annotations of an older cache, too."""
    node = b'{"type":"ADDED","object":{"metadata":{"name":"n1","annotations":{"mode":"old"}}}}\n'
    error = b'{"type":"ERROR","object":{"code":%d,"message":"no progress"}}\n' % code
    return api.faults.streaming(node + error)


def ended(api: ApiServerStandIn, _code: int) -> AbstractContextManager[None]:
    return api.faults.streaming()


def cut(api: ApiServerStandIn, _code: int) -> AbstractContextManager[None]:
    return api.faults.streaming(b'{"type":"BOOK', cut=True)


@pytest.mark.parametrize("jitter", [0.0, 1.0])
@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (refused, 429),
        (refused, 500),
        (told_error, 410),
        (told_error, 500),
        (told_node_then_error, 500),
        (ended, 0),
        (cut, 0),
    ],
)
async def test_a_minute_of_broken_watches_is_cheap_said_once_counted_and_changes_are_seen(
    api: ApiServerStandIn,
    capsys: pytest.CaptureFixture[str],
    broken: Callable[[ApiServerStandIn, int], AbstractContextManager[None]],
    code: int,
    jitter: float,
) -> None:
    put(api, mode="af")
    time = SimulatedTime(1, MINUTE, jitter)
    with broken(api, code):
        async with following(api, pace=WatchTimeouts(), timing=time.timing()) as made:
            await asyncio.wait_for(time.over.wait(), MINUTE)
            assert 4 <= len(list(asked(api))) <= 16
            assert made.told[-1] == {"mode": "af"}
            assert {"mode": "old"} not in made.told
            assert made.failures == 4
            assert made.watcher.error
    [said] = [line for line in capsys.readouterr().out.splitlines() if "[warning" in line]
    assert "annotations are not being updated" in said


async def test_a_server_that_can_not_serve_bookmarks_without_a_version_is_watched(
    api: ApiServerStandIn,
) -> None:
    put(api, mode="af")

    def asks_for_bookmarks(request: Request) -> bool:
        return "allowWatchBookmarks" in request.query and not request.query.get("resourceVersion")

    async with following(api) as made:
        with api.faults.watches_failing(500, matches=asks_for_bookmarks):
            await watching(api)
        put(api, mode="region")
        await made.until_told({"mode": "region"})
        assert made.failures == 0
    assert sum("watch=1" in each for each in asked(api)) == 1


async def test_a_watch_that_works_again_is_said_once(
    api: ApiServerStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, mode="af")
    time = FakeTime()
    async with following(api, pace=WatchTimeouts(), timing=time.timing()) as made:
        with api.faults.watches_failing(500, count=3):
            await watching(api)
        await eventually_async(lambda: made.watcher.watching)
        assert "500" in made.watcher.error
        time.now += 60
        api.end_watches()
        await eventually_async(lambda: not made.watcher.error)
        assert time.slept[-1] == 0
    assert capsys.readouterr().out.count("annotations are being updated again") == 1


async def test_a_watch_that_differs_at_each_event_costs_a_read_every_few_seconds(
    api: ApiServerStandIn,
) -> None:
    put(api, mode="new")
    stale = b'{"type":"ADDED","object":{"metadata":{"name":"n1","annotations":{"mode":"old"}}}}\n'
    time = SimulatedTime(1, MINUTE, 1.0)
    with api.faults.streaming(stale * 1000):
        async with following(api, pace=WatchTimeouts(), timing=time.timing()) as made:
            await asyncio.wait_for(time.over.wait(), MINUTE)
            assert {"mode": "old"} not in made.told
    assert len([each for each in asked(api) if "watch=1" not in each]) <= 16


async def test_a_cache_that_lags_does_not_undo_what_was_read(api: ApiServerStandIn) -> None:
    put(api, mode="new")
    stale = b'{"type":"ADDED","object":{"metadata":{"name":"n1","annotations":{"mode":"old"}}}}\n'
    with api.faults.streaming(stale, count=2):
        async with following(api) as made:
            await watching(api)
    assert made.told
    assert {"mode": "old"} not in made.told
