"""Readings of a node."""

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from services.containers.holders import Given, Holder, Holders
from services.devices.hardware.scan import Scanner
from services.devices.model import Inventory, PluginMode
from services.devices.resources import AdvertisedResources
from services.node.ledger import Rules, World
from services.node.metrics import NodeMetrics
from services.node.reading import Discovery, WorldReader
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError
from services.programming.host_state import HostState
from simulator.cards import CardSpec, Rack
from simulator.devices import DeviceTree
from tests.plugin.support import settings
from tests.services.cards import AF_NLB0, card, world
from tests.services.devices.types.making import Types, document
from tests.services.node.support import Recorder
from tests.support import background, eventually_async


class Node:
    """A node with one card and the devices of two types."""

    def __init__(self, folder: Path, mode: PluginMode = PluginMode.AF) -> None:
        self.rack = Rack(folder / "root")
        self.address = self.rack.add_card(CardSpec())
        tree = DeviceTree(self.rack.root)
        for number in range(2):
            tree.entry("", "ve", f"ve{number}", f"238:{number}", f"ve{number}")
        types = Types(folder / "types", self.rack.root)
        types.write("t.yaml", json.dumps(document({"match": [{"class": {"name": "ve"}}]})))
        self.answers: list[Holders | None] = []
        self.holders: Holders = {}
        self.given: frozenset[Given] = frozenset()
        self.registry = CollectorRegistry()
        self.metrics = NodeMetrics(self.registry)
        self.calls = BlockingCalls(max_threads=8)
        self.reader = WorldReader(
            settings(folder, device_types=types.folder),
            mode,
            self.calls,
            scanner=Scanner(self.rack.root, self.calls),
            holders=self,
            seconds=self.metrics.scan_seconds,
        )

    async def read(self) -> Holders:
        held = self.answers.pop(0) if self.answers else {}
        if held is None:
            raise HardwareError("which containers have devices is unknown")
        return held

    async def current(self) -> Holders:
        return await self.read()

    @property
    def measured(self) -> float | None:
        return self.registry.get_sample_value("accelbind_scan_seconds_count")


async def test_a_reading_has_cards_devices_of_types_and_unfinished_programmings(
    short_dir: Path,
) -> None:
    node = Node(short_dir)
    HostState(short_dir / "state").records.empty(f"{node.address}-port0")
    found = await node.reader.read()
    assert found.cards is not None
    assert found.types is not None
    assert [each.address for each in found.cards.cards] == [node.address]
    assert sum(len(each.devices) for each in found.types.sightings) == 2
    assert (found.error, *found.unfinished) == ("", f"{node.address}-port0")
    assert node.measured == 1


@pytest.mark.parametrize("mode", [PluginMode.NONE, PluginMode.UNITS])
async def test_cards_are_not_read_in_a_mode_without_them(short_dir: Path, mode: PluginMode) -> None:
    node = Node(short_dir, mode)
    found = await node.reader.read()
    assert found.cards is not None
    assert (found.cards.cards, found.cards.problems, node.measured) == ((), (), 0)


async def test_devices_allocated_during_a_reading_count(short_dir: Path) -> None:
    node = Node(short_dir)
    held = {(AF_NLB0, "dfl-port.0"): (Holder("ns", "p", "c"),)}
    node.answers = [{}, held]
    assert (await node.reader.read()).holders == held


async def test_without_holders_a_reading_says_only_why(short_dir: Path) -> None:
    node = Node(short_dir)
    unknown: list[list[Holders | None]] = [[None], [{}, None]]
    for holders in unknown:
        node.answers = [*holders]
        found = await node.reader.read()
        assert (found.is_known, found.error) == (False, "which containers have devices is unknown")


async def test_calls_that_run_meanwhile_are_noted(short_dir: Path) -> None:
    node = Node(short_dir)
    key = f"card {node.address}"
    ended = threading.Event()
    with pytest.raises(HardwareError):
        await node.calls.run(key, ended.wait, timeout=0.01, what="programming")
    found = await node.reader.read()
    ended.set()
    assert key in found.busy
    assert key in found.stuck


# The loop of readings


class Setting:
    """A discovery that reads what a test says."""

    def __init__(self) -> None:
        self.world = world(Inventory((card(0),)))
        self.reads = 0
        self.state = NodeState(Rules())
        self.discovery = Discovery(self.state, self, Recorder(), interval=0.01)
        self.due = self.state.steps.follow()

    async def read(self, *, divides: bool) -> World:  # noqa: ARG002 - the protocol's
        self.reads += 1
        return self.world

    async def offer(self) -> AdvertisedResources:
        """The offer after the next step."""
        async with asyncio.timeout(60):
            await self.due.wait()
        return self.state.ledger.offer


async def test_a_failed_scan_is_logged_once_and_the_known_devices_stay(
    capsys: pytest.CaptureFixture[str],
) -> None:
    setting = Setting()
    async with background(setting.discovery.scan_forever()):
        await setting.offer()
        good, failed = setting.world, setting.reads
        setting.world = replace(good, error="no thread for cards", cards=None, types=None)
        await eventually_async(lambda: setting.reads > failed + 3)
        assert setting.state.ledger.error == "no thread for cards"
        assert list(setting.state.ledger.offer.resources) == [AF_NLB0]
        setting.world = good
        await eventually_async(lambda: setting.state.ledger.error == "")
    assert capsys.readouterr().out.count("[error    ] scan failed") == 1


async def test_nothing_is_offered_until_it_is_known_who_has_devices() -> None:
    setting = Setting()
    good = setting.world
    setting.world = World("which containers have devices is unknown")
    await setting.discovery.run_once()
    assert (setting.state.ledger.offer.resources, setting.state.scanned.is_set()) == ({}, False)
    assert setting.state.ledger.error == "which containers have devices is unknown"
    setting.world = good
    await setting.discovery.run_once()
    assert list((await setting.offer()).resources) == [AF_NLB0]
