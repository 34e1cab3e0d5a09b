"""What a scrape finds of devices, their holders and their cards."""

from dataclasses import dataclass, field, replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from plugin.metrics import PluginMetrics
from services.containers.holders import Holder, Holders
from services.devices.model import Card, Device, PciFunction, PluginMode, Problem
from services.devices.resources import AdvertisedResources, OfferMemory
from services.devices.sensors import BusErrors, CardSensors, ErrorRegister, Gauge
from services.node.state import NodeState
from services.process.http import build_info, new_registry
from tests.plugin.promlint import lint

OK = Device("p0", "d/r", healthy=True, card="region0", numa_node=1)
BAD = replace(OK, id="p1", healthy=False, reasons=(Problem("a", "m"), Problem("b", "m")))
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

    state: NodeState = field(default_factory=lambda: NodeState(PluginMode.AF))
    holders: Holders = field(default_factory=dict)
    cards: tuple[Card, ...] = ()
    found: tuple[CardSensors, ...] = ()
    hanging: int = 1
    registry: CollectorRegistry = field(default_factory=new_registry)

    def __post_init__(self) -> None:
        PluginMetrics(self.registry).show_node(self.state, self, self, lambda: 2)

    def offer(self, *devices: Device, not_offered: tuple[Device, ...] = ()) -> None:
        placed = {device.id: device for device in devices}
        self.state.advertised = AdvertisedResources(
            {"d/r": placed} if placed else {}, not_offered, OfferMemory(PluginMode.AF)
        )

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def text(self) -> str:
        return generate_latest(self.registry).decode()


@pytest.fixture
def node() -> Node:
    return Node()


def test_devices_are_counted_as_a_scrape_finds_them(node: Node) -> None:
    def count(resource: str, health: str, reason: str) -> float | None:
        return node.value("accelbind_devices", resource=resource, health=health, reason=reason)

    node.offer(OK, BAD, replace(OK, id="p2"), not_offered=(replace(BAD, resource=""),) * 2)
    assert count("d/r", "Healthy", "") == 2
    assert count("d/r", "Unhealthy", "a") == 1
    assert count("", "Unhealthy", "a") == 2
    node.offer(replace(BAD, healthy=True, reasons=()))
    assert count("d/r", "Healthy", "") == 1
    assert count("d/r", "Unhealthy", "a") is None


def test_each_device_has_a_series_and_each_of_its_reasons(node: Node) -> None:
    node.offer(OK, BAD)
    labels = {"resource": "d/r", "card": "region0", "numa_node": "1"}
    assert node.value("accelbind_device_healthy", device="p0", **labels) == 1
    assert node.value("accelbind_device_healthy", device="p1", **labels) == 0
    for reason in ("a", "b"):
        found = node.value("accelbind_device_reason", device="p1", resource="d/r", reason=reason)
        assert found == 1
    node.offer()
    assert "accelbind_device_healthy{" not in node.text()
    assert "accelbind_device_reason{" not in node.text()


def test_two_devices_of_one_name_do_not_spoil_the_scrape(node: Node) -> None:
    node.offer(not_offered=(replace(BAD, resource=""),) * 2)
    assert node.text().count("accelbind_device_healthy{") == 1


def test_a_device_that_a_container_has_names_it(node: Node) -> None:
    node.offer(OK)
    node.holders = {
        ("d/r", "p0"): (Holder("ns", "p", "c"), Holder("ns", "p", "i")),
        ("nvidia.com/gpu", "0"): (Holder("ns", "p", "c"),),
    }
    labels = {"device": "p0", "resource": "d/r", "namespace": "ns", "pod": "p"}
    assert node.value("accelbind_device_holder", container="c", **labels) == 1
    assert node.value("accelbind_device_holder", container="i", **labels) == 1
    assert "nvidia" not in node.text()
    node.holders = {}
    assert "accelbind_device_holder{" not in node.text()


def test_a_card_tells_what_it_measures(node: Node) -> None:
    node.cards, node.found = (CARD,), (SENSORS,)
    card = {"card": "region0"}
    assert (
        node.value(
            "accelbind_card_info", driver="dfl", pci_address="0000:5e:00.0", numa_node="1", **card
        )
        == 1
    )
    assert node.value("accelbind_card_temperature_celsius", sensor="Board", **card) == 38.5
    assert node.value("accelbind_card_power_watts", sensor="Board", **card) == 23
    errors = {"part": "dfl-fme.0", "register": "fme_errors"}
    assert node.value("accelbind_card_errors", **card, **errors) == 0x40
    bus = {"pci_address": "0000:5e:00.0", **card}
    assert node.value("accelbind_pci_errors_total", severity="correctable", **bus) == 3
    assert node.value("accelbind_pci_errors_total", severity="fatal", **bus) == 0
    assert node.value("accelbind_pci_errors_total", severity="nonfatal", **bus) is None
    node.cards, node.found = (), ()
    assert "region0" not in node.text()


def test_a_card_that_tells_nothing_has_no_series(node: Node) -> None:
    node.cards = (Card("dfl", "region1", None, None),)
    node.found = (CardSensors("region1", "", problem=Problem("sensors-hung", "m")),)
    shown = [line for line in node.text().splitlines() if "region1" in line]
    assert shown == [
        'accelbind_card_info{card="region1",driver="dfl",numa_node="",pci_address=""} 1.0'
    ]


def test_the_names_and_helps_of_all_metrics_are_as_prometheus_wants_them(node: Node) -> None:
    node.offer(OK, BAD)
    node.cards, node.found = (CARD,), (SENSORS,)
    build_info(node.registry, "plugin")
    assert lint(node.text()) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("# HELP accelbind_x_total X.\n# TYPE accelbind_x_total gauge\n", "_total"),
        ("# HELP accelbind_x X.\n# TYPE accelbind_x gauge\n", "no unit"),
        ("# HELP accelbind_x_info x\n# TYPE accelbind_x_info gauge\n", "no sentence"),
        ("# HELP accelbind_X_info X.\n# TYPE accelbind_X_info gauge\n", "small letters"),
        (
            "# HELP accelbind_x_info X.\n# TYPE accelbind_x_info gauge\n"
            + 'accelbind_x_info{a="b"} 1\n' * 2,
            "twice",
        ),
        ("", "nothing of ours"),
    ],
)
def test_the_rules_find_what_is_wrong(text: str, wrong: str) -> None:
    assert wrong in " ".join(lint(text))
