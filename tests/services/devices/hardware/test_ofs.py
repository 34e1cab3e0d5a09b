"""OFS cards as sysfs shows them, and what is behind their virtual functions."""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from services.devices.hardware.afu_ids import INTERVAL, AfuIds
from services.devices.hardware.scan import scan
from services.devices.model import Inventory, VirtualFunction
from services.process.blocking import BlockingCalls
from tests.services.ofs_cards import AFUS, HE_HSSI, HE_MEM, MEM_TG, OfsNode
from tests.support import eventually

FIRST, SECOND, THIRD = ADDRESSES = [f"0000:b1:00.{number}" for number in (5, 6, 7)]


class Bench:
    """A node with a card, whose functions are identified again and again."""

    def __init__(self, root: Path, *, program: Path | None = None, patience: float = 20) -> None:
        self.node = OfsNode(root)
        self.node.add_card()
        self.root, self.now, self.held = root, 100.0, set[str]()
        options = {"program": program} if program else {}
        self.calls = BlockingCalls()
        self.ids = AfuIds(root, self.calls, patience=patience, clock=lambda: self.now, **options)

    def bind_all(self) -> None:
        for address, afu in zip(ADDRESSES, AFUS, strict=True):
            self.node.bind(address, afu)

    def functions(self) -> tuple[VirtualFunction, ...]:
        (card,) = asyncio.run(self.ids.identify(scan(self.root), self.held)).cards
        assert card.functions is not None
        return card.functions

    def found(self) -> list[str]:
        """The AFU or the reason of each function."""
        return [each.afu_id or each.problems[0].code for each in self.functions()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path / "node")
    made.bind_all()
    return made


def test_the_afus_of_a_card_are_read_behind_its_virtual_functions(bench: Bench) -> None:
    first, *_ = bench.functions()
    assert bench.found() == [HE_MEM, HE_HSSI, MEM_TG]
    assert (first.pci.address, first.pci.physfn, first.pci.numa_node) == (FIRST, "0000:b1:00.0", 1)
    assert [node.name for node in first.nodes] == ["vfio/1770", "vfio/vfio"]
    assert first.nodes[1].number == (10, 196)


def test_functions_that_vfio_does_not_have_are_not_read(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.found() == ["vfio-not-bound"] * 3
    bench.node.bind(FIRST, HE_MEM, driver="dfl-pci")
    (bench.node.folder(SECOND) / "iommu_group").unlink()
    bench.node.bind(THIRD, MEM_TG)
    shutil.rmtree(tmp_path / "dev/vfio")
    assert bench.found() == ["vfio-not-bound", "vfio-no-group", "node-missing"]
    assert bench.calls.abandoned == {}


def test_a_group_of_several_functions_is_given_to_nobody(bench: Bench) -> None:
    link = bench.node.folder(SECOND) / "iommu_group"
    link.unlink()
    bench.node.tree.group(bench.node.path(SECOND), 1770)
    assert bench.found() == ["vfio-group-shared", "vfio-group-shared", MEM_TG]


@pytest.mark.parametrize(("file", "text"), [("subsystem_device", "0xbeef"), ("device", "")])
def test_other_cards_have_no_functions_that_are_read(tmp_path: Path, file: str, text: str) -> None:
    bench = Bench(tmp_path)
    bench.bind_all()
    (bench.node.folder("0000:b1:00.0") / file).write_text(text)
    (card,) = scan(tmp_path).cards
    assert card.functions is None


def too_short(bar: Path) -> None:
    bar.write_bytes(b"x" * 23)


def fifo(bar: Path) -> None:
    bar.unlink()
    os.mkfifo(bar)


def leads_away(bar: Path) -> None:
    bar.unlink()
    good = bar.parent.parent / FIRST / "resource0"
    assert good.exists()
    bar.symlink_to(good)


@pytest.mark.parametrize("spoil", [too_short, fifo, leads_away])
def test_a_bar_that_is_none_harms_no_other(bench: Bench, spoil: Callable[[Path], None]) -> None:
    spoil(bench.node.folder(SECOND) / "resource0")
    assert bench.found() == [HE_MEM, "function-unreadable", MEM_TG]


def test_functions_come_and_go(bench: Bench) -> None:
    bench.found()
    bench.node.unbind(FIRST)
    bench.now += INTERVAL
    assert bench.found() == ["vfio-not-bound", HE_HSSI, MEM_TG]
    shutil.rmtree(bench.node.folder(SECOND))  # its links lead nowhere now
    assert bench.found() == ["vfio-not-bound", MEM_TG]
    for path in bench.node.folder("0000:b1:00.0").glob("virtfn*"):
        path.unlink()
    assert bench.functions() == ()


# When they are read


def test_a_free_function_is_read_again_now_and_then(bench: Bench) -> None:
    assert bench.found()[0] == HE_MEM
    bench.node.write_bar(FIRST, HE_HSSI)
    assert bench.found()[0] == HE_MEM
    bench.now += INTERVAL
    assert bench.found()[0] == HE_HSSI


def test_a_function_in_use_keeps_what_it_was_and_is_read_at_once_when_it_is_free(
    bench: Bench,
) -> None:
    bench.found()
    bench.held = {FIRST}
    bench.node.write_bar(FIRST, "0" * 32)
    bench.now += 2 * INTERVAL
    assert bench.found()[0] == HE_MEM
    bench.held = set()
    assert bench.found()[0] == "function-invalid"


def test_another_function_at_the_same_address_is_not_the_one_that_was(bench: Bench) -> None:
    bench.found()
    bench.held = {FIRST}
    place = bench.node.folder(FIRST)
    shutil.copytree(place, place.with_name("other"), symlinks=True)
    shutil.rmtree(place)
    place.with_name("other").rename(place)
    assert bench.found()[0] == "function-in-use"


# What takes its reader with it

READER = """\
import os, signal, sys, time
from pathlib import Path
for path in sys.argv[1:]:
    fate = Path(path).with_name("fate")
    if fate.exists():
        with Path(__file__).with_name("pids").open("a") as pids:
            print(os.getpid(), file=pids)
        if fate.read_text() == "dies":
            os.kill(os.getpid(), signal.SIGBUS)
        signal.pause()
    print("1000010000000000 bb652a578330a8eb 8568ab4e6ba54616")
"""


def fated(folder: Path, fate: str, *, patience: float = 20) -> Bench:
    """A bench whose reader dies or hangs at the second function."""
    (folder / "reader.py").write_text(READER)
    bench = Bench(folder / "node", program=folder / "reader.py", patience=patience)
    bench.bind_all()
    (bench.node.folder(SECOND) / "fate").write_text(fate)
    return bench


def test_a_function_that_kills_its_reader_harms_no_other(tmp_path: Path) -> None:
    first, broken, third = fated(tmp_path, "dies").functions()
    assert (first.afu_id, third.afu_id) == (HE_MEM, HE_MEM)
    assert "its reader ended with SIGBUS" in broken.problems[0].text


def test_a_function_that_hangs_harms_no_other_and_is_not_read_while_it_hangs(
    tmp_path: Path,
) -> None:
    bench, pids = fated(tmp_path, "hangs", patience=2), tmp_path / "pids"

    def are_found(*expected: str) -> bool:
        bench.now += INTERVAL
        return bench.found() == [*expected]

    try:
        for _ in range(2):
            eventually(lambda: are_found(HE_MEM, "function-unreadable", HE_MEM))
        assert len(pids.read_text().split()) == 1
    finally:
        (bench.node.folder(SECOND) / "fate").unlink()
        for pid in pids.read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    eventually(lambda: not bench.calls.abandoned)
    eventually(lambda: are_found(HE_MEM, HE_MEM, HE_MEM))


async def test_a_node_without_such_cards_costs_nothing(tmp_path: Path) -> None:
    inventory = Inventory()
    calls = BlockingCalls(max_threads=0)
    assert await AfuIds(tmp_path, calls).identify(inventory, ()) is inventory
