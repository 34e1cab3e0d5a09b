"""Readings of a node."""

import json
import threading
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from services.containers.holders import Holder, Holders
from services.devices.hardware.scan import Scanner
from services.devices.model import PluginMode
from services.devices.topology import card_key
from services.node.metrics import NodeMetrics
from services.node.reading import WorldReader
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError
from services.programming.records import PortRecords
from simulator.cards import CardSpec, Rack
from simulator.devices import DeviceTree
from tests.plugin.support import settings
from tests.services.cards import AF_NLB0
from tests.services.devices.types.making import Types, document

pytestmark = pytest.mark.anyio


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
        self.registry = CollectorRegistry()
        self.metrics = NodeMetrics(self.registry)
        self.calls = BlockingCalls(max_threads=8)
        self.records = PortRecords(folder / "records")
        self.reader = WorldReader(
            settings(folder, device_types=types.folder),
            mode,
            self.calls,
            scanner=Scanner(self.rack.root, self.calls),
            holders=self,
            records=self.records,
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
    node.records.empty(f"{node.address}-port0")
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
    key = card_key(node.address)
    ended = threading.Event()
    with pytest.raises(HardwareError):
        await node.calls.run(key, ended.wait, timeout=0.01, what="programming")
    found = await node.reader.read()
    ended.set()
    assert key in found.busy
    assert key in found.stuck
