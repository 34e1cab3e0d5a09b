"""The publisher against an API server: what is written, when, and after what."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from plugin.dra import publisher
from plugin.dra.book import ClaimBook
from plugin.dra.claims import ClaimRef
from plugin.dra.driver import DraMetrics
from plugin.dra.publisher import SlicePublisher
from plugin.dra.slices import COLLECTION
from plugin.dra.wants import Kind, Want
from services.devices.model import Card, Contents, Inventory, PluginMode
from services.kube.client import ClusterClient
from services.kube.objects import NamedObject
from services.node.ledger import Rules
from services.node.state import NodeState
from simulator.apiserver.resources import Json
from simulator.apiserver.standin import ApiServerStandIn, Options
from tests.services.cards import BAD, NLB0, NLB3, REGION, advertise, card, port
from tests.services.kube.following import QUICK
from tests.services.node.support import set_state
from tests.support import eventually_async

NODE = "node-1"
FIRST = f"{NODE}-accelbind.dev-0"
CLAIM = ClaimRef("default", "claim", "uid")
WANT = Want("fpga", Kind.PROGRAM, ("fpga-0000-5e-00-0",), ("dfl-fme.0",), ((),), REGION, REGION)
WRITES = {"POST", "PUT", "DELETE"}


class FakeNode:
    """A node whose cards are scanned when a test says so, and its publisher."""

    def __init__(self, folder: Path, api: ApiServerStandIn, connection: ClusterClient) -> None:
        self.api = api
        self._connection = connection
        self.state = NodeState(Rules(PluginMode.REGION))
        self.book = ClaimBook(folder / "claims")
        self.programmed: Contents = {}
        self.registry = CollectorRegistry()
        self.metrics = DraMetrics(self.registry)
        self.slept: list[float] = []
        self.publisher = self.restarted()

    def restarted(self) -> SlicePublisher:
        """Another process begins."""
        self.publisher = SlicePublisher(
            self._connection,
            NODE,
            self.state,
            self,
            self.book,
            writes=self.metrics.slice_writes,
            timing=replace(QUICK, sleep=self._sleep),
        )
        return self.publisher

    async def contents(self, inventory: Inventory) -> Contents:
        del inventory
        return self.programmed

    def count(self, outcome: str) -> float:
        labels = {"outcome": outcome}
        return self.registry.get_sample_value("accelbind_slice_writes_total", labels) or 0

    async def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.slept.append(seconds)
        await asyncio.sleep(0.001)  # lets others work

    def scan(self, *cards: Card) -> None:
        inventory = Inventory(cards)
        set_state(self.state, inventory, advertise(inventory, PluginMode.REGION))

    @asynccontextmanager
    async def publishing(self, *cards: Card) -> AsyncIterator[None]:
        """The publisher runs, the kubelet has confirmed it, and the cards are published."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop) for _, loop in self.publisher.loops()]
            self.publisher.confirm()
            self.scan(*cards)
            await self.shows(*cards)
            yield
            for task in tasks:
                task.cancel()

    async def shows(self, *cards: Card) -> None:
        names = [f"fpga-{each.address.replace(':', '-').replace('.', '-')}" for each in cards]
        await eventually_async(lambda: [*self.devices()] == sorted(names))

    def slices(self) -> list[Json]:
        return self.api.objects("ResourceSlice")

    def devices(self) -> Mapping[str, Json]:
        """The devices that can be allocated, by name."""
        slices = self.slices()
        last = max((each["spec"]["pool"]["generation"] for each in slices), default=0)
        counted = [each for each in slices if each["spec"]["pool"]["generation"] == last]
        if any(each["spec"]["pool"]["resourceSliceCount"] != len(counted) for each in counted):
            return {}
        devices = [body for each in counted for body in each["spec"].get("devices") or ()]
        assert max(Counter(body["name"] for body in devices).values(), default=0) <= 1
        return {body["name"]: body for body in sorted(devices, key=lambda body: body["name"])}

    def attribute(self, name: str, number: int = 0) -> Any:
        (value,) = [*self.devices().values()][number]["attributes"][name].values()
        return value

    def taints(self) -> list[str]:
        return [
            taint["value"] for each in self.devices().values() for taint in each.get("taints", ())
        ]

    def writes(self) -> list[str]:
        methods = [each.request.method for each in self.api.seen]
        return [method for method in methods if method in WRITES]


@asynccontextmanager
async def node_of(folder: Path, *dropped: str) -> AsyncIterator[FakeNode]:
    """A node whose API server drops such fields of devices."""
    async with ApiServerStandIn(folder, Options(dropped=dropped)) as api:
        api.put({"kind": "Node", "metadata": {"name": NODE}, "status": {}})
        connection = ClusterClient(api.access)
        try:
            yield FakeNode(folder, api, connection)
        finally:
            await connection.aclose()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    async with node_of(tmp_path) as made:
        yield made


def bad(made: Card) -> Card:
    return replace(made, ports=tuple(replace(each, problems=(BAD,)) for each in made.ports))


async def test_nothing_is_published_before_a_scan_and_the_kubelet_s_confirmation(
    node: FakeNode,
) -> None:
    node.publisher.confirm()
    await node.publisher.run_once()
    assert node.slices() == []
    second = node.restarted()
    node.scan(card())
    await second.run_once()
    assert node.slices() == []
    second.confirm()
    await second.run_once()
    assert [*node.devices()] == ["fpga-0000-5e-00-0"]
    assert node.writes() == ["POST"]


async def test_a_slice_belongs_to_its_node_and_is_written_once(node: FakeNode) -> None:
    async with node.publishing(card()):
        (stored,) = node.slices()
        owner = node.api.get("Node", NODE)
        assert owner is not None
        assert stored["metadata"]["name"] == FIRST
        assert stored["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "name": NODE,
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ]
        assert stored["spec"]["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}
        await eventually_async(lambda: node.api.watches)
        before = len(node.api.seen)
        node.scan(card())
        await node.publisher.run_once()
        await node.publisher.run_once()
        assert len(node.api.seen) <= before + 1  # at most one list, if the watch lags behind
        assert node.writes() == ["POST"]
        assert (node.count("created"), node.count("failed")) == (1, 0)


async def test_where_taints_are_dropped_it_is_left_out(tmp_path: Path) -> None:
    async with node_of(tmp_path, "taints") as node:
        with capture_logs() as logs:
            async with node.publishing(card(0), card(1)):
                node.scan(card(0), bad(card(1)))
                await node.shows(card(0))
                node.scan(card(0), card(1))
                await node.shows(card(0), card(1))
        assert [each for each in logs if "drops taints" in each["event"]]
        assert node.publisher.error == ""


async def test_a_node_that_is_made_anew_owns_its_slices_after_three_writes(node: FakeNode) -> None:
    async with node.publishing(card()):
        await eventually_async(lambda: node.api.watches)
        before = len(node.writes())
        node.api.drop("Node", NODE)
        node.api.drop("ResourceSlice", FIRST)  # as the garbage collector
        await eventually_async(lambda: node.publisher.error)
        assert NODE in node.publisher.error
        assert node.count("failed") >= 1
        node.api.put({"kind": "Node", "metadata": {"name": NODE, "uid": "new"}, "status": {}})
        await node.shows(card())
        (stored,) = node.slices()
        assert stored["metadata"]["ownerReferences"][0]["uid"] == "new"
        assert len(node.writes()) <= before + 3
        await eventually_async(lambda: not node.publisher.error)


async def test_a_claimed_device_shows_what_the_claim_got_also_after_a_restart(
    node: FakeNode,
) -> None:
    changed = card(0, port(afu_id="a" * 32))
    async with node.publishing(card()):
        node.book.commit(node.book.reserve(CLAIM, (WANT,)))
        node.programmed = {"dfl-port.0": NLB3}
        node.scan(card(0, port(afu_id=NLB3)))
        await eventually_async(lambda: node.attribute("afuID") == NLB3)
        node.programmed = {}  # it counts only while the port shows it
        node.scan(bad(changed))
        await eventually_async(node.taints)
        assert node.attribute("afuID") == NLB3
    node.restarted()
    async with node.publishing(changed):
        await eventually_async(lambda: not node.taints())
        assert node.attribute("afuID") == NLB3
        node.book.remove(CLAIM.uid)
        node.scan(changed)
        await eventually_async(lambda: node.attribute("afuID") == "a" * 32)


async def test_a_change_of_a_device_costs_one_write_and_no_list(node: FakeNode) -> None:
    async with node.publishing(card()):
        asked: list[str] = []
        for number in range(50):  # until the watch has shown the last write
            before = len(node.api.seen)
            if number % 2:
                node.scan(card())
                await eventually_async(lambda: not node.taints())
            else:
                node.scan(bad(card()))
                await eventually_async(node.taints)
            await node.publisher.run_once()
            asked = [each.request.method for each in node.api.seen[before:]]
            if asked == ["PUT"]:
                break
        assert asked == ["PUT"]


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_what_an_api_server_remembers_may_be_old(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, *, is_deleted: bool
) -> None:
    async with node.publishing(card()):
        old = node.slices()

    async def remembered(*_: object, cached: bool, **__: object) -> list[NamedObject]:
        monkeypatch.undo()
        assert cached
        return [NamedObject(f"{COLLECTION}/{FIRST}", each) for each in old]

    monkeypatch.setattr(publisher, "list_objects", remembered)
    (stored,) = node.slices()
    if is_deleted:
        node.api.drop("ResourceSlice", FIRST)
    else:
        stored["spec"]["devices"][0]["attributes"]["afuID"] = {"string": "other"}
        node.api.put(stored)
    node.restarted()
    async with node.publishing(card()):
        await eventually_async(lambda: node.attribute("afuID") == NLB0)
        assert node.writes() == ["POST", "POST" if is_deleted else "PUT"]
