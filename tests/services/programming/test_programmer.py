"""Programming below an injected root, with a stand-in for the driver; see tests/umockdev too."""

import errno
import os
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from services.devices.hardware.scan import scan
from services.names import OPENCL_AFU
from services.process.errors import DeviceBusy, DeviceRefused, HardwareError, InvalidBitstream
from services.programming.assignment import regions_of
from services.programming.clock import UserClock
from services.programming.clock_registers import ClockPolicy
from services.programming.ioctls import DriverNode
from services.programming.lock import card_lock
from services.programming.programmer import Image, Programmer
from simulator.card_faults import Fault
from simulator.cards import A10_INTERFACE, D5005_INTERFACE, NLB0, NLB3, CardSpec, Rack
from simulator.driver import DriverStandIn, SimulatedCalls, raw_bitstream

PORTS = {"opae": "intel-fpga-port.0", "dfl": "dfl-port.0"}
PROGRAM = "1" * 40


@pytest.fixture(params=["opae", "dfl"])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def rack(short_dir: Path) -> Rack:
    return Rack(short_dir / "root")


@pytest.fixture
def stand_in(rack: Rack) -> Iterator[DriverStandIn]:
    with DriverStandIn(rack.root) as standing_in:
        yield standing_in


@pytest.fixture
def programmer(short_dir: Path, rack: Rack) -> Programmer:
    return Programmer(
        rack.root, short_dir / "state", calls=SimulatedCalls(), verify_seconds=0.2, lock_seconds=0.1
    )


def image(afu_id: str = NLB3, record: str | None = None, clock: UserClock | None = None) -> Image:
    return Image(A10_INTERFACE, afu_id, lambda: array("B", raw_bitstream(afu_id)), clock, record)


def whats(stand_in: DriverStandIn) -> list[str]:
    return [each.what for each in stand_in.done]


def test_what_is_not_there_is_programmed_and_what_is_there_is_reset(
    rack: Rack, stand_in: DriverStandIn, programmer: Programmer, driver: str
) -> None:
    rack.add_card(CardSpec(driver))
    stages: list[str] = []
    first = programmer.ensure(PORTS[driver], image(), on_step=stages.append)
    second = programmer.ensure(PORTS[driver], image())
    assert (first.programmed, first.before, second.programmed) == (True, NLB0, False)
    assert whats(stand_in) == ["programmed", "reset", "reset"]
    assert stages[-3:] == ["programming 4096 bytes", "verifying", "resetting the port"]


class UnreadableAtFirst(SimulatedCalls):
    """After programming, `afu_id` can't be read for a moment (the driver answers EBUSY)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hidden: list[tuple[Path, str]] = []

    def ioctl(
        self,
        node: DriverNode,
        request: int,
        argument: int | bytearray,
        data: "array[int] | None" = None,
    ) -> int:
        result = super().ioctl(node, request, argument, data)
        if request == node.ioctls.program:
            (file,) = (self.root / "sys/devices").glob("*/*/*/*/*port.0/afu_id")
            self.hidden.append((file, file.read_text()))
            file.unlink()
        return result

    def show(self, _: float) -> None:
        for file, text in self.hidden:
            file.write_text(text)


def test_a_port_that_can_not_be_read_right_after_programming_is_waited_for(
    rack: Rack,
    stand_in: DriverStandIn,
    short_dir: Path,
    driver: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rack.add_card(CardSpec(driver))
    calls = UnreadableAtFirst(rack.root)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=calls.show)
    monkeypatch.setattr("services.programming.programmer.time", clock)
    assert (
        Programmer(rack.root, short_dir / "state", calls=calls)
        .ensure(PORTS[driver], image())
        .programmed
    )
    assert len(calls.hidden) == 1
    assert whats(stand_in) == ["programmed", "reset"]


def test_a_port_that_shows_another_function_afterwards_is_an_error(
    rack: Rack, stand_in: DriverStandIn, programmer: Programmer, driver: str
) -> None:
    rack.add_card(CardSpec(driver))
    other = Image(A10_INTERFACE, NLB3, lambda: array("B", raw_bitstream(OPENCL_AFU)))
    with pytest.raises(DeviceRefused, match=f'shows AFU "{OPENCL_AFU}" and not {NLB3}'):
        programmer.ensure(PORTS[driver], other)
    assert whats(stand_in) == ["programmed"]
    assert programmer.recorded(scan(rack.root)) == {PORTS[driver]: ""}


def test_bytes_are_asked_for_only_when_they_are_needed(
    rack: Rack, stand_in: DriverStandIn, programmer: Programmer, driver: str
) -> None:
    def unwanted() -> "array[int]":
        pytest.fail("nobody needs them")

    rack.add_card(CardSpec(driver))
    for afu_id, interface in ((NLB0, A10_INTERFACE), (NLB3, D5005_INTERFACE)):
        wanted = Image(interface, afu_id, unwanted)
        if interface == A10_INTERFACE:
            assert not programmer.ensure(PORTS[driver], wanted).programmed
        else:
            with pytest.raises(InvalidBitstream):
                programmer.ensure(PORTS[driver], wanted)
    assert whats(stand_in) == ["reset"]


def test_an_opencl_id_alone_says_nothing_of_what_is_there(
    rack: Rack, stand_in: DriverStandIn, programmer: Programmer, driver: str
) -> None:
    rack.add_card(CardSpec(driver, afu_ids=(OPENCL_AFU,)))
    port = PORTS[driver]
    assert programmer.ensure(port, image(OPENCL_AFU, PROGRAM)).programmed
    assert not programmer.ensure(port, image(OPENCL_AFU, PROGRAM)).programmed
    assert programmer.ensure(port, image(OPENCL_AFU)).programmed
    assert programmer.ensure(port, image(OPENCL_AFU, PROGRAM)).programmed
    assert len(stand_in.programmed) == 3


def test_a_function_that_hardware_refused_to_replace_is_not_taken_for_being_there(
    rack: Rack, stand_in: DriverStandIn, programmer: Programmer, driver: str
) -> None:
    rack.add_card(CardSpec(driver, afu_ids=(NLB0,)))
    port = PORTS[driver]
    stand_in.refuse = True
    with pytest.raises(DeviceRefused, match="must be reprogrammed"):
        programmer.ensure(port, image(NLB3))
    inventory = scan(rack.root)
    (region,) = regions_of(inventory).values()
    assert region.ports[0].afu_id == NLB0
    assert region.carrier(NLB0, programmer.recorded(inventory)) is None
    stand_in.refuse = False
    assert programmer.ensure(port, image(NLB0)).programmed
    assert not programmer.ensure(port, image(NLB0)).programmed
    assert programmer.recorded(inventory) == {}


@pytest.mark.parametrize("error", [errno.EBUSY, errno.EINVAL, errno.ENOMEM, errno.ENODEV])
def test_a_retry_that_never_reaches_the_hardware_does_not_make_a_half_programmed_port_known(
    rack: Rack, stand_in: DriverStandIn, programmer: Programmer, driver: str, error: int
) -> None:
    rack.add_card(CardSpec(driver, afu_ids=(NLB0,)))
    port = PORTS[driver]
    stand_in.refuse = True
    with pytest.raises(DeviceRefused, match="must be reprogrammed"):
        programmer.ensure(port, image(NLB3))
    stand_in.refuse, stand_in.fail_with = False, error
    for _ in range(2):
        with pytest.raises(HardwareError):
            programmer.ensure(port, image(NLB3))
    assert programmer.check(port, image(NLB0)).programmed
    stand_in.fail_with = 0
    assert programmer.ensure(port, image(NLB0)).programmed
    assert not programmer.ensure(port, image(NLB0)).programmed


def test_a_program_stays_recorded_if_the_hardware_was_not_asked_to_replace_it(
    rack: Rack, stand_in: DriverStandIn, programmer: Programmer, driver: str
) -> None:
    rack.add_card(CardSpec(driver))
    port = PORTS[driver]
    programmer.ensure(port, image(OPENCL_AFU, PROGRAM))
    stand_in.fail_with = errno.EBUSY
    with pytest.raises(HardwareError, match="the device is in use"):
        programmer.ensure(port, image(NLB3))
    assert not programmer.ensure(port, image(OPENCL_AFU, PROGRAM)).programmed


def test_a_half_programmed_port_is_not_trusted_once_its_driver_was_reloaded(
    rack: Rack, stand_in: DriverStandIn, programmer: Programmer, driver: str
) -> None:
    address = rack.add_card(CardSpec(driver, afu_ids=(NLB0,)))
    stand_in.refuse = True
    with pytest.raises(DeviceRefused):
        programmer.ensure(PORTS[driver], image(NLB3))
    rack.remove_card(address)
    rack.add_card(CardSpec(driver, afu_ids=(NLB0,), address=address))
    stand_in.refuse = False
    assert programmer.ensure(PORTS[driver], image(NLB0)).programmed


def test_a_port_that_is_released_to_a_virtual_function_is_reset_and_not_programmed_in_tree(
    rack: Rack, stand_in: DriverStandIn, programmer: Programmer, driver: str
) -> None:
    """The in-tree driver would go through a device that it has deleted."""
    address = rack.add_card(CardSpec(driver, afu_ids=(NLB0,)))
    virtual = rack.move_to_vf(address)
    (port,) = [port.name for card in scan(rack.root).cards for port in card.ports]
    assert not programmer.ensure(port, image(NLB0)).programmed
    if driver == "opae":  # that driver is asked
        with pytest.raises(DeviceRefused, match="the driver refuses the value"):
            programmer.ensure(port, image(NLB3))
        return
    for attempt in (programmer.check, programmer.ensure):
        with pytest.raises(DeviceRefused, match=f"released to virtual function {virtual}.*assign"):
            attempt(port, image(NLB3))
    assert stand_in.programmed == []
    rack.move_back(virtual)
    (port,) = [port.name for card in scan(rack.root).cards for port in card.ports]
    assert programmer.ensure(port, image(NLB3)).programmed


def test_what_can_not_be_recorded_is_programmed_again(
    rack: Rack,
    stand_in: DriverStandIn,
    programmer: Programmer,
    driver: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    rack.add_card(CardSpec(driver))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        done = programmer.ensure(PORTS[driver], image(OPENCL_AFU, PROGRAM))
    assert "No space left on device; it will be programmed again" in done.remarks[0]
    assert programmer.ensure(PORTS[driver], image(OPENCL_AFU, PROGRAM)).remarks == ()
    assert len(stand_in.programmed) == 2


def test_a_card_that_somebody_works_on_is_busy(
    rack: Rack, stand_in: DriverStandIn, programmer: Programmer, short_dir: Path
) -> None:
    address = rack.add_card(CardSpec("dfl"))
    with card_lock(short_dir / "state/locks", address, seconds=1):
        for call in (programmer.reset, lambda port: programmer.ensure(port, image())):
            with pytest.raises(DeviceBusy, match=f"card {address} is busy"):
                call("dfl-port.0")
    assert whats(stand_in) == []


def test_two_threads_take_turns_and_the_second_sees_what_the_first_has_done(
    rack: Rack, stand_in: DriverStandIn, short_dir: Path, driver: str
) -> None:
    rack.add_card(CardSpec(driver))
    programmer = Programmer(rack.root, short_dir / "state", calls=SimulatedCalls(), lock_seconds=30)
    stand_in.go_on.clear()
    done: list[bool] = []

    def ensure() -> None:
        done.append(programmer.ensure(PORTS[driver], image()).programmed)

    both = [threading.Thread(target=ensure) for _ in range(2)]
    for thread in both:
        thread.start()
    stand_in.go_on.set()
    for thread in both:
        thread.join(60)
    assert sorted(done) == [False, True]
    assert len(stand_in.programmed) == 1


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault.INTERFACE_EMPTY, "has no usable interface id"),
        (Fault.FME_MISSING, "can't be programmed or named"),
        (Fault.PORT_ID_GARBAGE, "doesn't report its number"),
        (Fault.PORT_NODE_MISSING, "there is no /dev/"),
        (Fault.FME_NODE_MISSING, "there is no /dev/"),
    ],
)
def test_a_card_that_can_not_be_programmed_says_why(
    rack: Rack, stand_in: DriverStandIn, programmer: Programmer, fault: Fault, said: str
) -> None:
    rack.add_card(CardSpec("dfl", faults=(fault,)))
    with pytest.raises(HardwareError, match=said):
        programmer.ensure("dfl-port.0", image())
    assert stand_in.programmed == []


@pytest.mark.parametrize("policy", list(ClockPolicy))
def test_a_clock_that_can_not_be_set_is_for_the_policy_to_judge(
    rack: Rack, stand_in: DriverStandIn, short_dir: Path, policy: ClockPolicy
) -> None:
    rack.add_card(CardSpec("dfl"))
    for file in rack.root.glob("sys/devices/*/*/fpga_region/*/dfl-port.0/userclk_*"):
        file.unlink()
    programmer = Programmer(rack.root, short_dir / "state", calls=SimulatedCalls(), clock=policy)
    wanted = image(clock=UserClock(200, 400))
    if policy is ClockPolicy.REQUIRE:
        with pytest.raises(DeviceRefused, match="has none to set"):
            programmer.ensure("dfl-port.0", wanted)
    else:
        remarks = programmer.ensure("dfl-port.0", wanted).remarks
        assert len(remarks) == (policy is ClockPolicy.TRY)
    assert len(stand_in.programmed) == (policy is not ClockPolicy.REQUIRE)
