"""Cards, class folders and nodes whose reads hang."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.devices.hardware.scan import Scanner
from services.devices.model import Inventory, PluginMode
from services.devices.resources import AdvertisedResources
from services.process.blocking import BlockingCalls
from simulator.cards import CardSpec, Rack, lay_out
from tests.services.cards import advertise
from tests.services.devices.hardware.blocking import Barrier, threads
from tests.support import eventually

PATIENCE = 1.5


@pytest.fixture
def barrier() -> Iterator[Barrier]:
    made = Barrier()
    yield made
    made.release_all()
    eventually(lambda: threads() == 0)


def scanner_of(rack: Rack, barrier: Barrier) -> Scanner:
    return Scanner(rack.root, BlockingCalls(), patience=PATIENCE, files=barrier.files)


def tree_of(inventory: Inventory, after: AdvertisedResources | None = None) -> AdvertisedResources:
    return advertise(inventory, PluginMode.AF, previous=after.devices() if after else ())


def failures(inventory: Inventory) -> dict[str, str]:
    return {card.name: card.failure.code for card in inventory.cards if card.failure}


def test_a_card_that_hangs_is_unhealthy_and_all_others_are_as_they_were(
    tmp_path: Path, barrier: Barrier
) -> None:
    rack = lay_out(tmp_path, [CardSpec("opae") for _ in range(3)] + [CardSpec("dfl")])
    scanner = scanner_of(rack, barrier)
    good = tree_of(scanner.scan_sync())
    part = "look at /dev/{port}$".format(**rack.places(rack.addresses[1]))
    barrier.hang(part)
    inventory = eventually(lambda: _if_hung(scanner.scan_sync(), 1))
    bad = tree_of(inventory, after=good)
    port = rack.ports(rack.addresses[1])[0]
    (hung,) = [device for device in bad.devices() if not device.healthy]
    link = rack.places(rack.addresses[1])["link"]
    (problem,) = hung.reasons
    assert (hung.id, problem.code) == (port, "card-hung")
    assert problem.text == f"reading /{link} hangs: no answer within {PATIENCE} s"
    assert {device.id: device.resource for device in bad.devices()} == {
        device.id: device.resource for device in good.devices()
    }
    assert len(scanner.hanging) == 1
    assert scanner.hanging[0].startswith(f"/{link} -> ")
    barrier.release(part)
    eventually(lambda: scanner.hanging == ())
    assert tree_of(scanner.scan_sync(), after=bad) == good


def _if_hung(inventory: Inventory, count: int) -> Inventory | None:
    """An inventory in which so many cards hang and no others: a busy machine may be late."""
    return inventory if len(failures(inventory)) == count else None


def test_a_card_that_hangs_from_the_start_still_tells_where_it_is(
    tmp_path: Path, barrier: Barrier
) -> None:
    rack = lay_out(tmp_path, [CardSpec("dfl", ports=2, numa_node=1, address="0000:5e:00.0")])
    virtual = rack.move_to_vf("0000:5e:00.0", 1)
    scanner = scanner_of(rack, barrier)
    barrier.hang("list /sys/devices/pci0000:5e/0000:5e:00.1/")
    inventory = eventually(lambda: _if_hung(scanner.scan_sync(), 1))
    lost = inventory.cards[1]
    assert lost.pci is not None
    assert (lost.address, lost.pci.physfn, lost.pci.numa_node) == (virtual, "0000:5e:00.0", 1)
    (region,) = advertise(inventory, PluginMode.REGION).devices()
    assert [problem.code for problem in region.reasons] == ["card-hung"]
    assert scanner.scan_sync() == inventory


def test_cards_beyond_the_number_that_may_hang_say_that_they_were_not_read(
    tmp_path: Path, barrier: Barrier
) -> None:
    rack = lay_out(tmp_path, [CardSpec("opae") for _ in range(4)])
    calls = BlockingCalls(max_threads=3)
    scanner = Scanner(rack.root, calls, patience=0.5, files=barrier.files)
    barrier.hang("intel-fpga-port.")
    inventory = scanner.scan_sync()
    assert list(failures(inventory).values()) == ["card-hung"] * 3 + ["card-unread"]
    last = inventory.cards[3]
    assert last.failure is not None
    assert last.failure.text == (
        "reading /sys/class/fpga/intel-fpga-dev.3 was not tried: 3 other calls run already"
    )
    assert last.address == rack.addresses[3]
