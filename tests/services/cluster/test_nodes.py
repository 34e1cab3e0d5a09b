"""One node's annotations, followed through what API servers and networks do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.cluster.backoff import Pace
from services.cluster.connection import Connection, connector
from services.cluster.nodes import NodeFollower
from simulator.apiserver.faults import watches
from simulator.apiserver.standin import ApiServerStandIn
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

QUICK = Pace(first=0.01, longest=0.05, steady=0.5, watch=60.0, grace=10.0)


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


class Follower:
    """A follower that notes what it is told."""

    def __init__(self, api: ApiServerStandIn, pace: Pace, poll_seconds: float) -> None:
        self.told: list[Mapping[str, str] | None] = []
        self.connection = Connection(connector(api.kubeconfig_path))
        self.follower = NodeFollower(
            "n1", self.connection, self.told.append, pace=pace, poll_seconds=poll_seconds
        )

    async def until_told(self, annotations: Mapping[str, str] | None) -> None:
        await eventually_async(
            lambda: self.told and self.told[-1] == annotations, what=f"being told {annotations}"
        )


@asynccontextmanager
async def following(
    api: ApiServerStandIn, *, pace: Pace = QUICK, poll_seconds: float = 60.0
) -> AsyncIterator[Follower]:
    made = Follower(api, pace, poll_seconds)
    task = asyncio.create_task(made.follower.run())
    try:
        yield made
        assert not task.done(), f"it has ended: {task}"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await made.connection.aclose()


def asked(api: ApiServerStandIn) -> Iterator[str]:
    return (f"{seen.method} {seen.target}" for seen in api.seen if "/nodes" in seen.target)


async def watching(api: ApiServerStandIn) -> None:
    await eventually_async(lambda: api.watches, what="a watch")


async def test_annotations_are_told_at_once_and_after_each_change(api: ApiServerStandIn) -> None:
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
    [read, watch] = asked(api)
    assert read == "GET /api/v1/nodes/n1"
    assert watch.startswith("GET /api/v1/nodes?watch=1&fieldSelector=metadata.name%3Dn1&")


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
        assert 'knows no node "n1": set --node-name' in made.follower.problem
        put(api, mode="af")
        await made.until_told({"mode": "af"})
        assert made.follower.problem == ""
    assert capsys.readouterr().out.count("knows no node") == 1


async def test_a_refusal_is_an_answer_too(api: ApiServerStandIn) -> None:
    put(api, mode="af")
    async with following(api) as made:
        with api.faults.failing(403):
            await made.until_told(None)
            assert "RBAC" in made.follower.problem
        await made.until_told({"mode": "af"})


async def test_an_outage_only_delays_what_has_changed_meanwhile(api: ApiServerStandIn) -> None:
    put(api, mode="af")
    async with following(api) as made:
        await watching(api)
        for mode in ("region", "af", "regiondevel"):
            async with api.away():
                await eventually_async(lambda: made.follower.problem)
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


async def test_a_connection_that_falls_silent_is_given_up(api: ApiServerStandIn) -> None:
    put(api, mode="af")
    pace = Pace(first=0.01, longest=0.05, steady=0.5, watch=1.0, grace=0.1)
    async with following(api, pace=pace) as made:
        await watching(api)
        api.silence_watches()
        put(api, mode="region")
        await made.until_told({"mode": "region"})


async def test_a_node_that_is_deleted_and_made_again_is_followed(api: ApiServerStandIn) -> None:
    put(api, mode="af")
    async with following(api, poll_seconds=0.02) as made:
        await watching(api)
        api.drop("Node", "n1")
        await made.until_told(None)
        put(api, mode="region")
        await made.until_told({"mode": "region"})


async def test_a_new_token_is_taken_up(api: ApiServerStandIn) -> None:
    put(api, mode="af")
    async with following(api) as made:
        await watching(api)
        api.change_token()
        api.drop_connections()
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
