"""Programming below an injected root, with a stand-in for the driver; see tests/kernel too."""

import errno
import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.bitstreams.model import UserClock
from services.devices.hardware.scan import scan
from services.devices.model import Inventory
from services.names import OPENCL_AFU
from services.process.errors import (
    DeviceBusy,
    DeviceGone,
    DeviceRefused,
    HardwareError,
    InvalidBitstream,
)
from services.programming.host_state import HostState
from services.programming.image import Image, Programmed
from services.programming.ioctls import KERNEL
from services.programming.programmer import Programmer
from simulator.card_faults import Fault
from simulator.cards import A10_INTERFACE, D5005_INTERFACE, NLB0, NLB3, CardSpec, Rack
from simulator.driver import DriverStandIn, SimulatedCalls, raw_bitstream
from tests.recorded import record_ports
from tests.services.ofs_cards import HE_MEM, INTERFACE, OfsNode

PROGRAM = "1" * 40


def image(afu_id: str = NLB3, program: str = "", clock: UserClock | None = None) -> Image:
    return Image(A10_INTERFACE, afu_id, lambda: array("B", raw_bitstream(afu_id)), clock, program)


class Bench:
    """A rack with one card, the stand-in for its driver, and a programmer."""

    def __init__(self, folder: Path, driver: str) -> None:
        self.driver, self.state = driver, folder / "state"
        self.rack = Rack(folder / "root")
        self.stand_in = DriverStandIn(self.rack.root)
        self.programmer = Programmer(
            self.rack.root, self.state, calls=SimulatedCalls(), lock_seconds=0.1
        )

    def card(self, **spec: Any) -> str:
        return self.rack.add_card(CardSpec(self.driver, **spec))

    @property
    def port(self) -> str:
        (name,) = [port.name for card in scan(self.rack.root).cards for port in card.ports]
        return name

    @property
    def contents(self) -> dict[str, str]:
        return self.programmer.contents(scan(self.rack.root))

    @property
    def unfinished(self) -> frozenset[str]:
        return HostState(self.state).records.unfinished()

    def ensure(self, wanted: Image | None = None) -> Programmed:
        return self.programmer.ensure(self.port, wanted or image())

    def refused(self, words: str, wanted: Image | None = None) -> None:
        with pytest.raises(HardwareError, match=words):
            self.ensure(wanted)

    @property
    def done(self) -> list[str]:
        return [each.what for each in self.stand_in.done]


@pytest.fixture
def bench(driver: str, short_dir: Path) -> Iterator[Bench]:
    made = Bench(short_dir, driver)
    with made.stand_in:
        yield made


def test_a_port_that_shows_another_function_afterwards_is_an_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.programming.programmer.VERIFY_SECONDS", 0.2)
    bench.card()
    other = Image(A10_INTERFACE, NLB3, lambda: array("B", raw_bitstream(OPENCL_AFU)))
    bench.refused(f'shows AFU "{OPENCL_AFU}" and not {NLB3}', other)
    assert bench.done == ["programmed"]
    assert bench.contents == {bench.port: ""}


def test_bytes_are_read_only_when_they_are_needed(bench: Bench) -> None:
    def unwanted() -> "array[int]":
        pytest.fail("nobody needs them")

    bench.card()
    record_ports(bench.rack.root, bench.state)
    assert not bench.ensure(Image(A10_INTERFACE, NLB0, unwanted)).programmed
    with pytest.raises(InvalidBitstream):
        bench.ensure(Image(D5005_INTERFACE, NLB3, unwanted))
    assert bench.done == ["reset"]


def test_an_opencl_id_alone_does_not_identify_what_is_there(bench: Bench) -> None:
    bench.card(afu_ids=(OPENCL_AFU,))
    programs = (PROGRAM, PROGRAM, "", "", PROGRAM)
    programmed = [bench.ensure(image(OPENCL_AFU, each)).programmed for each in programs]
    assert programmed == [True, False, True, True, True]


@pytest.mark.parametrize("error", [0, errno.EBUSY, errno.EINVAL, errno.ENOMEM, errno.ENODEV])
def test_a_programming_that_failed_leaves_the_content_unknown_until_one_succeeds(
    bench: Bench, error: int
) -> None:
    """Whatever the driver answers, and though the port shows what was there before."""
    bench.card(afu_ids=(NLB0,))
    record_ports(bench.rack.root, bench.state)
    assert bench.contents == {bench.port: NLB0}
    bench.stand_in.refuse, bench.stand_in.fail_with = not error, error
    bench.refused("can't be programmed with" if error else "must be reprogrammed")
    assert bench.contents == {bench.port: ""}
    bench.stand_in.refuse, bench.stand_in.fail_with = False, 0
    assert bench.programmer.check(bench.port, image(NLB0)).programmed
    assert bench.ensure(image(NLB0)).programmed
    assert not bench.ensure(image(NLB0)).programmed
    assert bench.contents == {bench.port: NLB0}


def test_a_port_that_is_released_to_a_virtual_function_is_reset_and_not_programmed_in_tree(
    bench: Bench,
) -> None:
    """The in-tree driver would go through a device that it has deleted."""
    address = bench.card(afu_ids=(NLB0,))
    virtual = bench.rack.move_to_vf(address)
    record_ports(bench.rack.root, bench.state)
    assert not bench.ensure(image(NLB0)).programmed
    if bench.driver == "opae":  # that driver is asked
        bench.refused("Invalid argument")
        return
    for attempt in (bench.programmer.check, bench.programmer.ensure):
        with pytest.raises(DeviceRefused, match=f"released to virtual function {virtual}.*assign"):
            attempt(bench.port, image(NLB3))
    assert bench.stand_in.programmed == []


def test_a_port_without_a_written_record_is_programmed_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    bench.card()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        done = bench.ensure(image(OPENCL_AFU, PROGRAM))
    assert "No space left on device; it will be programmed again" in done.remarks[0]
    assert bench.ensure(image(OPENCL_AFU, PROGRAM)).remarks == ()
    assert len(bench.stand_in.programmed) == 2


def test_a_card_that_somebody_works_on_is_busy(bench: Bench) -> None:
    address = bench.card()
    with HostState(bench.state).lock_card(address, seconds=1):
        for call in (bench.programmer.reset, lambda _: bench.ensure()):
            with pytest.raises(DeviceBusy, match=f"card {address} is busy"):
                call(bench.port)
    assert bench.done == []


def test_a_card_that_leaves_before_its_lock_is_free_is_not_found(bench: Bench) -> None:
    bench.card()
    port, engine = bench.port, bench.port.replace("port", "fme")
    calls: tuple[Callable[[Programmer], object], ...] = (
        lambda programmer: programmer.reset(port),
        lambda programmer: programmer.release(engine, 0),
        lambda programmer: programmer.assign(engine, 0),
    )
    for call in calls:
        scans = iter((scan(bench.rack.root), Inventory()))
        bench.programmer = Programmer(
            bench.rack.root, bench.state, calls=SimulatedCalls(), scan_cards=scans.__next__
        )
        with pytest.raises(DeviceGone):
            call(bench.programmer)
    assert bench.done == []


def test_a_port_that_must_be_left_alone_is_so_once_the_card_is_free(bench: Bench) -> None:
    """A container may get it while somebody else works on the card."""
    address = bench.card()

    def require(inventory: Inventory) -> None:
        (card,) = inventory.cards
        with HostState(bench.state).lock_card(card.address, seconds=0):
            pytest.fail("the card is not locked")

    with pytest.raises(DeviceBusy, match=f"card {address} is busy"):
        bench.programmer.ensure(bench.port, image(), require=require)
    assert (bench.done, bench.unfinished) == ([], frozenset())


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault.INTERFACE_EMPTY, "has no usable interface id"),
        (Fault.FME_MISSING, "can't be programmed or named"),
        (Fault.PORT_ID_GARBAGE, "doesn't report its number"),
        (Fault.PORT_NODE_MISSING, "there is no /dev/"),
        (Fault.FME_NODE_MISSING, "there is no /dev/"),
    ],
)
def test_a_card_that_can_not_be_programmed_says_why(bench: Bench, fault: Fault, words: str) -> None:
    bench.card(faults=(fault,))
    bench.refused(words)
    assert bench.stand_in.programmed == []
    assert bench.unfinished == frozenset()


def test_the_clock_of_a_function_that_is_there_is_checked_again(bench: Bench) -> None:
    bench.card()
    bench.ensure(image(clock=UserClock(155, 310)))
    (counter,) = bench.rack.root.glob("sys/devices/*/*/*/*/*port.0/userclk_freqcntrsts")
    counter.write_text("0x3000000000007fff\n")
    for call in (bench.ensure, lambda: bench.programmer.check_clock(bench.port)):
        with pytest.raises(DeviceRefused, match="asks for 310/155 MHz"):
            call()
    assert bench.done == ["programmed", "reset"]


def test_the_port_of_an_ofs_card_is_not_programmed(tmp_path: Path) -> None:
    node = OfsNode(tmp_path / "root")
    node.add_card()
    image = Image(INTERFACE, HE_MEM, lambda: array("Q"))
    with pytest.raises(HardwareError, match="are behind its virtual functions; use fpgaconf"):
        Programmer(node.root, tmp_path / "state", calls=KERNEL).check("dfl-port.0", image)
