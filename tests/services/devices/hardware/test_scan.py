import errno
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from services.devices.hardware.scan import Scanner, scan
from services.devices.model import Card, Inventory, PluginMode
from services.devices.resources import AdvertisedResources
from services.process.blocking import BlockingCalls
from services.process.problem import Problem
from simulator.card_faults import Fault
from simulator.cards import NLB0, NLB3, CardSpec, Rack, lay_out
from tests.services.cards import advertise
from tests.services.devices.hardware.blocking import Barrier, WatchedFiles, threads
from tests.support import eventually


def the_card(inventory: Inventory) -> Card:
    (card,) = inventory.cards
    return card


# Faults


def test_a_register_that_is_garbled_is_only_a_remark(tmp_path: Path) -> None:
    """What any other fault does in each mode is in tests/golden/files/broken-cards.jsonl."""
    lay_out(tmp_path, [CardSpec("dfl", faults=(Fault.PORT_ERRORS_GARBAGE,))])
    card = the_card(scan(tmp_path))
    assert [problem.code for problem in card.problems] == ["port-errors-unreadable"]
    assert card.ports[0].problems == ()


def scan_with(root: Path, announce: Callable[[str], None]) -> Inventory:
    """Scan while something happens at each look at a file."""
    files = partial(WatchedFiles, announce=announce)
    return Scanner(root, BlockingCalls(), files=files).scan_sync()


def test_a_card_whose_folder_does_not_answer_is_told_and_hides_nothing(tmp_path: Path) -> None:
    rack = lay_out(tmp_path, [CardSpec("dfl"), CardSpec("dfl")])

    def fail(look: str) -> None:
        if look.startswith("list ") and look.endswith("/region0"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    broken, good = scan_with(tmp_path, fail).cards
    assert broken.failure is not None
    assert broken.failure.code == "card-unreadable"
    assert broken.address == rack.addresses[0]
    assert good.failure is None


def test_an_entry_whose_target_is_gone_still_tells_the_card_by_its_address(tmp_path: Path) -> None:
    rack = lay_out(tmp_path, [CardSpec("dfl", ports=2, address="0000:5e:00.0")])
    virtual = rack.move_to_vf("0000:5e:00.0", 1)
    entry = tmp_path / "sys/class/fpga_region/region2"
    shutil.rmtree(entry.resolve())
    lost = scan(tmp_path).cards[1]
    assert lost.failure is not None
    assert lost.failure.code == "card-dangling"
    assert lost.pci is not None
    assert (lost.address, lost.pci.physfn) == (virtual, "0000:5e:00.0")


# Cards that are not as usual


def test_the_first_usable_region_of_an_engine_stands_for_all(tmp_path: Path) -> None:
    lay_out(tmp_path, [CardSpec("dfl")])
    engine = tmp_path / "sys/class/fpga_region/region0/dfl-fme.0"
    for number, text in ((10, "f" * 32), (2, NLB0.upper()), (3, NLB3)):
        folder = engine / f"dfl-fme-region.{number}/fpga_region/region{number + 20}"
        folder.mkdir(parents=True)
        (folder / "compat_id").write_text(text)
    (engine / "dfl-fme-region.0/fpga_region/region1/compat_id").write_text(" " * 4096)
    card = the_card(scan(tmp_path))
    assert card.fme is not None
    assert (card.fme.interface_id, card.fme.problems) == (NLB0, ())
    text = f"the regions of dfl-fme.0 differ ({NLB0}, {NLB3}); {NLB0} stands for all"
    assert card.problems == (Problem("interface-ids-differ", text),)


def test_a_card_that_vanishes_while_it_is_read_is_not_there(tmp_path: Path) -> None:
    rack = lay_out(tmp_path, [CardSpec("dfl"), CardSpec("dfl")])

    def vanish(look: str) -> None:
        if look.startswith("list ") and look.endswith("/region0"):
            rack.remove_card(rack.addresses[0])

    assert [card.name for card in scan_with(tmp_path, vanish).cards] == ["region2"]


# Nodes without cards


UNLOADED = (
    "neither /sys/class/fpga nor /sys/class/fpga_region exists: load the driver, intel-fpga-pci or"
    " dfl-pci"
)


@pytest.mark.parametrize(
    ("files", "reason", "message"),
    [
        ([], "no-sysfs", "there is no sys folder below {root}: name the host's root with --root"),
        (["sys/bus/pci/devices/0000:5e:00.0/vendor"], "no-driver", UNLOADED),
        (
            ["sys/class/fpga_region/regions/x"],
            "no-cards",
            "/sys/class/fpga_region list no card with a port",
        ),
        (
            ["sys/class/fpga"],
            "class-unreadable",
            "/sys/class/fpga can't be listed: Not a directory",
        ),
    ],
)
def test_a_node_without_cards_says_why(
    tmp_path: Path, files: list[str], reason: str, message: str
) -> None:
    for each in files:
        (tmp_path / each).parent.mkdir(parents=True)
        (tmp_path / each).write_text("0x120000\n")
    inventory = scan(tmp_path)
    assert inventory == Inventory((), (Problem(reason, message.format(root=tmp_path)),))


@pytest.mark.parametrize(
    "file", ["thermal_mgmt/threshold2_reached", "hwmon/hwmon0/temp1_crit_alarm"]
)
def test_the_drivers_of_all_ages_report_heat(tmp_path: Path, file: str) -> None:
    rack = lay_out(tmp_path, [CardSpec("dfl")])
    flag = rack.root / rack.places(rack.addresses[0])["entry"] / "dfl-fme.0" / file
    flag.parent.mkdir(exist_ok=True)
    flag.write_text("1\n")
    fme = the_card(scan(tmp_path)).fme
    assert fme is not None
    assert fme.problems == (Problem("overheated", f"{file} of dfl-fme.0 reads 0x1"),)


# Cards, class folders and nodes whose reads hang


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
