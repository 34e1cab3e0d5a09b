from dataclasses import replace

from services.devices.limits import Limits
from services.devices.model import Inventory, Problem
from services.devices.port_owners import HELD, free_ports, held_problems, lock_of
from services.devices.resources import with_problems
from tests.services.cards import BAD, NLB0, card, port, virtual

OFF = Problem("card-unreadable", "it can't be read")


def free(inventory: Inventory, *allocated: str) -> list[str]:
    return [each.name for _, each in free_ports(inventory, allocated)]


def test_ports_that_no_container_has_are_free_whatever_the_mode_it_got_them_in() -> None:
    physical = card(0, port("dfl-port.0"))
    split = virtual(physical, 1, port("dfl-port.1"))
    inventory = Inventory((physical, split, card(2, port("dfl-port.2"))))
    assert free(inventory) == ["dfl-port.0", "dfl-port.1", "dfl-port.2"]
    assert free(inventory, "dfl-port.0") == ["dfl-port.1", "dfl-port.2"]
    assert free(inventory, "dfl-fme.0") == ["dfl-port.2"]
    assert free(inventory, "5e:00.0-1") == ["dfl-port.1", "dfl-port.2"]


def test_a_port_is_not_free_if_it_or_its_card_is_broken_or_its_region_unknown() -> None:
    lost = virtual(card(3), 1, port("dfl-port.9"))
    failed = replace(card(1, port("dfl-port.1")), failure=OFF)
    broken = card(2, port("dfl-port.2", NLB0, BAD))
    assert free(Inventory((lost, failed, broken))) == []


def test_held_ports_are_marked_and_stay_free() -> None:
    inventory = Inventory((card(0, port("dfl-port.0")), card(1, port("dfl-port.1"))))
    marked = with_problems(inventory, held_problems({"dfl-port.1"}), Limits())
    reasons = {
        each.name: [problem.reason for problem in each.problems]
        for card in marked.cards
        for each in card.ports
    }
    assert reasons == {"dfl-port.0": [], "dfl-port.1": [HELD]}
    assert free(marked) == ["dfl-port.0", "dfl-port.1"]


def test_a_card_is_locked_together_with_its_virtual_functions() -> None:
    physical = card(0)
    split = virtual(physical, 1, port("dfl-port.1"))
    engineless = replace(card(1), fme=None)
    bare = replace(engineless, pci=None)
    locks = [lock_of(each) for each in (physical, split, engineless, bare)]
    assert locks == ["0000:5e:00.0", "0000:5e:00.0", "0000:5f:00.0", "region1"]
