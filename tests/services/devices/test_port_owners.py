from dataclasses import replace

from services.devices.model import Inventory
from services.devices.port_owners import PortOwners, lock_of
from tests.services.cards import card, port, virtual


def free(inventory: Inventory, *allocated: str) -> list[str]:
    owners = PortOwners(inventory, frozenset(allocated))
    ports = [(card, port) for card in inventory.cards for port in card.ports]
    return [port.name for card, port in ports if owners.have(card, port) is False]


def test_ports_that_no_container_has_are_free_whatever_the_mode_it_got_them_in() -> None:
    physical = card(0, port("dfl-port.0"))
    split = virtual(physical, 1, port("dfl-port.1"))
    inventory = Inventory((physical, split, card(2, port("dfl-port.2"))))
    assert free(inventory) == ["dfl-port.0", "dfl-port.1", "dfl-port.2"]
    assert free(inventory, "dfl-port.0") == ["dfl-port.1", "dfl-port.2"]
    assert free(inventory, "dfl-fme.0") == ["dfl-port.2"]
    assert free(inventory, "5e:00.0-1") == ["dfl-port.1", "dfl-port.2"]


def test_who_has_a_port_of_an_unknown_region_is_unknown() -> None:
    lost = virtual(card(3), 1, port("dfl-port.9"))
    owners = PortOwners(Inventory((lost,)), frozenset())
    assert owners.have(lost, lost.ports[0]) is None


def test_a_card_is_locked_together_with_its_virtual_functions() -> None:
    physical = card(0)
    split = virtual(physical, 1, port("dfl-port.1"))
    engineless = replace(card(1), fme=None)
    bare = replace(engineless, pci=None)
    locks = [lock_of(each) for each in (physical, split, engineless, bare)]
    assert locks == ["0000:5e:00.0", "0000:5e:00.0", "0000:5f:00.0", "region1"]
