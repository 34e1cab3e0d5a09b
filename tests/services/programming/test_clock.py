"""User clocks of simulated ports: they are measured, and nothing but the selection is written."""

from pathlib import Path

import pytest

from services.bitstreams.model import BitstreamMetadata, UserClock
from services.devices.hardware.scan import scan
from services.process.errors import DeviceRefused
from services.programming.clock import check_user_clock, read_user_clock
from services.programming.port import DeviceFiles, find_port
from simulator.cards import CardSpec, Rack

PORTS = {"opae": "intel-fpga-port.0", "dfl": "dfl-port.0"}


@pytest.fixture
def port(driver: str, tmp_path: Path) -> DeviceFiles:
    rack = Rack(tmp_path)
    rack.add_card(CardSpec(driver))
    return DeviceFiles(rack.root, find_port(scan(rack.root), PORTS[driver]))


def folder_of(port: DeviceFiles) -> Path:
    path = port.path("afu_id")
    assert path is not None
    return path.parent


def report(port: DeviceFiles, frequency: str) -> None:
    """Make it a port with a feature that reports its clocks in kHz."""
    folder = folder_of(port)
    for file in folder.glob("userclk_*"):
        file.unlink()
    (folder / "dfl_dev.3/userclk").mkdir(parents=True)
    (folder / "dfl_dev.3/userclk/frequency").write_text(frequency)


@pytest.mark.parametrize(
    ("high", "low", "clock"),
    [
        (None, None, None),
        (0, 0, None),
        (312.0, None, UserClock(156, 312)),
        (None, 156.0, UserClock(156, 312)),
        (400.0, 150.0, UserClock(150, 400)),
    ],
)
def test_a_bitstream_may_leave_out_either_clock(
    high: float | None, low: float | None, clock: UserClock | None
) -> None:
    assert BitstreamMetadata("", "", clock_high=high, clock_low=low).clock == clock


@pytest.mark.parametrize(
    ("frequency", "clock"),
    [
        ("156250 312500\n", UserClock(156.25, 312.5)),
        ("156250\n", None),
        ("fast slow\n", None),
        ("", None),
    ],
)
def test_a_feature_reports_both_clocks(
    port: DeviceFiles, frequency: str, clock: UserClock | None
) -> None:
    report(port, frequency)
    assert read_user_clock(port) == clock


def test_a_port_is_refused_if_either_clock_is_faster_and_a_slower_one_is_a_warning(
    port: DeviceFiles,
) -> None:
    report(port, "156000 312000")
    for requested in (UserClock(150, 312), UserClock(156, 300)):
        with pytest.raises(DeviceRefused, match="on a faster clock it may compute wrong results"):
            check_user_clock(port, requested)
    for requested in (UserClock(156, 330), UserClock(170, 312)):
        assert check_user_clock(port, requested).endswith(": it runs slower")


def test_a_counter_that_can_not_be_selected_is_refused(port: DeviceFiles) -> None:
    """What it shows then may be another clock, or an old one."""
    file = folder_of(port) / "userclk_freqcntrcmd"
    file.unlink()
    file.mkdir()
    with pytest.raises(DeviceRefused, match=r"can't be measured: .*--user-clock leave"):
        check_user_clock(port, UserClock(156, 312))


def test_a_port_that_reports_no_clock_is_not_refused(port: DeviceFiles) -> None:
    for file in folder_of(port).glob("userclk_*"):
        file.unlink()
    assert check_user_clock(port, UserClock(100, 200)) == ""
