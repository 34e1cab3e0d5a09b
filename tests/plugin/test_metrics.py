"""What is counted, and what a scrape finds of devices, their holders and their cards."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from plugin.device_plugin.metrics import PluginMetrics
from plugin.mode import ModeChoice, ModeMetrics
from services.containers.holders import Holder, Holders
from services.devices.model import Card, Device, Inventory, PciFunction, PluginMode
from services.devices.resources import AdvertisedResources
from services.devices.sensors import BusErrors, CardSensors, ErrorRegister, Gauge
from services.node.ledger import Rules
from services.node.metrics import NodeCollector
from services.node.state import NodeState
from services.process.http import new_registry
from services.process.problem import Problem
from tests.services.node.support import set_state

OK = Device("p0", "d/r", card="region0", numa_node=1)
BAD = replace(OK, id="p1", reasons=(Problem("a", "m"), Problem("b", "m")))
CARD = Card("dfl", "region0", PciFunction("0000:5e:00.0", numa_node=1), None)
SENSORS = CardSensors(
    "region0",
    "0000:5e:00.0",
    temperatures=(Gauge("Board", 38.5), Gauge('odd "label"', 40.0)),
    powers=(Gauge("Board", 23.0),),
    registers=(ErrorRegister("dfl-fme.0", "fme_errors", 0x40),),
    bus_errors=BusErrors(correctable=3, fatal=0),
)


@dataclass
class Node:
    """What is known, as a test has it."""

    state: NodeState = field(default_factory=lambda: NodeState(Rules()))
    registry: CollectorRegistry = field(default_factory=new_registry)

    def __post_init__(self) -> None:
        self.metrics = PluginMetrics(self.registry)
        known, scanner = cast("Any", self), cast("Any", SimpleNamespace(hanging=("one", "other")))
        ModeMetrics(self.registry).show(ModeChoice(PluginMode.AF, "flag"))
        self.collector = NodeCollector(self.state, scanner, known)
        self.registry.register(self.collector)

    def offer(self, *devices: Device, not_offered: tuple[Device, ...] = ()) -> None:
        placed = {device.id: device for device in devices}
        offer = AdvertisedResources({"d/r": placed} if placed else {}, not_offered)
        set_state(self.state, advertised=offer)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"accelbind_{name}", labels)

    def text(self) -> str:
        return generate_latest(self.registry).decode()


@pytest.fixture
def node() -> Node:
    return Node()


def test_no_series_of_a_resource_stays_when_it_has_ended(node: Node) -> None:
    for resource in ("d/r", "d/s"):
        node.metrics.registrations.labels(resource, "ok").inc()
        node.metrics.registrations.labels(resource, "failed").inc()
        node.metrics.allocations.labels(resource, "given").inc()
    node.metrics.forget("d/r")
    assert 'resource="d/r"' not in node.text()
    assert node.value("registrations_total", outcome="failed", resource="d/s") == 1


def test_devices_are_counted_and_have_a_series_each_and_one_of_each_reason(node: Node) -> None:
    def count(resource: str, health: str, reason: str) -> float | None:
        return node.value("devices", resource=resource, health=health, reason=reason)

    unnamed = (replace(BAD, resource=""),) * 2
    node.offer(OK, BAD, replace(OK, id="p2"), not_offered=unnamed)
    assert count("d/r", "Healthy", "") == 2
    assert count("d/r", "Unhealthy", "a") == 1
    assert count("", "Unhealthy", "a") == 2
    labels = {"resource": "d/r", "card": "region0", "numa_node": "1"}
    assert node.value("device_healthy", device="p0", **labels) == 1
    assert node.value("device_healthy", device="p1", **labels) == 0
    for reason in ("a", "b"):
        assert node.value("device_reason", device="p1", resource="d/r", reason=reason) == 1
    assert node.text().count("accelbind_device_healthy{") == 4, "two of one name, one series"
    node.offer(replace(BAD, reasons=()))
    assert count("d/r", "Healthy", "") == 1
    assert count("d/r", "Unhealthy", "a") is None
    assert "accelbind_device_reason{" not in node.text()


def test_a_device_that_a_container_has_names_it(node: Node) -> None:
    node.offer(OK)
    holders: Holders = {
        ("d/r", "p0"): (Holder("ns", "p", "c"), Holder("ns", "p", "i")),
        ("nvidia.com/gpu", "0"): (Holder("ns", "p", "c"),),
    }
    set_state(node.state, holders=holders)
    labels = {
        "device": "p0",
        "resource": "d/r",
        "holder_namespace": "ns",
        "holder_pod": "p",
        "claim": "",
    }
    assert node.value("device_holder", holder_container="c", **labels) == 1
    assert node.value("device_holder", holder_container="i", **labels) == 1
    assert "nvidia" not in node.text()
    set_state(node.state, holders={})
    assert "accelbind_device_holder{" not in node.text()


def test_a_card_shows_what_it_measures(node: Node) -> None:
    set_state(node.state, Inventory((CARD,)))
    node.collector.readings = (SENSORS,)
    card, place = {"card": "region0"}, {"pci_address": "0000:5e:00.0"}
    assert node.value("card_info", driver="dfl", numa_node="1", **place, **card) == 1
    assert node.value("card_temperature_celsius", sensor="Board", **card) == 38.5
    assert node.value("card_power_watts", sensor="Board", **card) == 23
    assert node.value("card_errors", part="dfl-fme.0", register="fme_errors", **card) == 0x40
    bus = {**place, **card}
    assert node.value("pci_errors_total", severity="correctable", **bus) == 3
    assert node.value("pci_errors_total", severity="fatal", **bus) == 0
    assert node.value("pci_errors_total", severity="nonfatal", **bus) is None
    assert node.value("hanging_reads") == 2
    set_state(node.state, Inventory())
    node.collector.readings = ()
    assert "region0" not in node.text()
