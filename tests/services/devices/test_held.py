from dataclasses import replace

import pytest

from services.devices.held import HELD, held_functions, held_parts, port_resources
from services.devices.model import Inventory, PluginMode
from services.devices.ofs import in_use
from services.devices.topology import Topology, lock_of
from tests.services.cards import AF_NLB0, REGION, UNIT, advertise, card, port, virtual
from tests.services.devices.test_ofs import ofs_card
from tests.services.devices.test_ofs import virtual as virtual_function


def held(inventory: Inventory, *allocated: str) -> list[str]:
    parts, node = held_parts([("r", device) for device in allocated]), Topology(inventory.cards)
    ports = [(card, port) for card in inventory.cards for port in card.ports]
    return [port.name for card, port in ports if port_resources(parts, node, card, port)]


def test_a_port_is_held_whatever_the_mode_a_container_got_it_in() -> None:
    physical = card(0, port("dfl-port.0"))
    split = virtual(physical, 1, port("dfl-port.1"))
    inventory = Inventory((physical, split, card(2, port("dfl-port.2"))))
    assert held(inventory) == []
    assert held(inventory, "dfl-port.0") == ["dfl-port.0"]
    assert held(inventory, "dfl-fme.0") == ["dfl-port.0", "dfl-port.1"]
    assert held(inventory, "5e:00.0-1") == ["dfl-port.0"]


def test_who_has_a_port_of_an_unknown_region_is_unknown() -> None:
    lost = virtual(card(3), 1, port("dfl-port.9"))
    assert port_resources({}, Topology([lost]), lost, lost.ports[0]) is None


OTHER = f"{AF_NLB0}-before"


@pytest.mark.parametrize(
    ("mode", "allocated", "healthy"),
    [
        (PluginMode.AF, [(AF_NLB0, "dfl-port.0"), (OTHER, "dfl-port.1")], True),
        (PluginMode.AF, [(OTHER, "dfl-port.0")], False),
        (PluginMode.AF, [(AF_NLB0, "dfl-port.0"), (OTHER, "dfl-port.0")], False),
        (PluginMode.AF, [(REGION, "dfl-fme.0")], False),
        (PluginMode.AF, [(UNIT, "5e:00.0")], False),
        (PluginMode.REGION, [(AF_NLB0, "dfl-port.0")], False),
        (PluginMode.REGIONDEVEL, [("device.accelbind.dev/t", "0000-5e-00-0-r2")], False),
        (PluginMode.BDF, [(REGION, "dfl-fme.0")], False),
    ],
)
def test_a_device_held_as_another_resource_is_unhealthy(
    mode: PluginMode, allocated: list[tuple[str, str]], *, healthy: bool
) -> None:
    inventory = Inventory((card(0),))
    (device,) = advertise(inventory, mode, allocated=allocated).devices()
    assert {each.code for each in device.reasons} == (set() if healthy else {HELD})


def test_a_card_is_locked_together_with_its_virtual_functions() -> None:
    physical = card(0)
    split = virtual(physical, 1, port("dfl-port.1"))
    engineless = replace(card(1), fme=None)
    bare = replace(engineless, pci=None)
    locks = [lock_of(each) for each in (physical, split, engineless, bare)]
    assert locks == ["0000:5e:00.0", "0000:5e:00.0", "0000:5f:00.0", "region1"]


def test_a_virtual_function_of_an_ofs_card_is_held_by_its_id_or_its_engine() -> None:
    found = ofs_card(virtual_function(5), virtual_function(6))
    inventory = Inventory((found,))
    first, both = {"0000:b1:00.5"}, {"0000:b1:00.5", "0000:b1:00.6"}
    assert held_functions([found], held_parts([("a", "0000-b1-00-5")])) == first
    assert held_functions([found], held_parts([("a", "dfl-fme.0")])) == both
    assert held_functions([card(0)], held_parts([("a", "dfl-port.0")])) == set()
    assert held(inventory, "0000-b1-00-6") == ["dfl-port.0"], "programming would change it"
    allocated = [("device.accelbind.dev/he-mem", "0000-b1-00-6")]
    (region,) = advertise(inventory, PluginMode.REGIONDEVEL, allocated=allocated).devices()
    assert [each.code for each in region.reasons] == [HELD]


def test_a_function_in_use_since_before_the_start_stays_under_the_resource_of_its_container() -> (
    None
):
    unknown = virtual_function(5, "", in_use("0000:b1:00.5"))
    inventory = Inventory((ofs_card(unknown, virtual_function(6)),))
    allocated = [(AF_NLB0, "0000-b1-00-5"), (REGION, "0000-b1-00-5"), (AF_NLB0, "0000-b1-00-6")]
    offer = advertise(inventory, PluginMode.AF, allocated=allocated)
    (device,) = offer.resources[AF_NLB0].values()
    assert (device.id, device.healthy) == ("0000-b1-00-5", False)
    assert device.cdi
    assert "0000:b1:00.5" in device.claims
    known = [*offer.devices()]
    again = advertise(inventory, PluginMode.AF, previous=known)
    assert "0000-b1-00-5" in again.resources[AF_NLB0]
