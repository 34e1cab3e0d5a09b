"""User clocks of simulated ports; behind the fPLL's registers is a thread that answers."""

import re
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.devices.hardware.scan import scan
from services.process.errors import DeviceRefused, InvalidBitstream
from services.programming.clock import IOPLL_KINDS, UserClock, iopll_setting
from services.programming.clock_registers import read_user_clock, set_user_clock
from services.programming.port import DeviceFiles, find_port
from simulator.cards import CardSpec, Rack

PORTS = {"opae": "intel-fpga-port.0", "dfl": "dfl-port.0"}


COMMAND = re.compile(r"0x[0-9a-f]{16}\n")


class Pll(threading.Thread):
    """The fPLL behind a port's `userclk_*` files: it takes commands, and its counter measures.

    Args:
        folder: The port's folder.
        kind: What it says it is; 5 and 6 have a reference of 100 MHz.
        locks: Whether it locks once it is powered up again.
    """

    def __init__(self, folder: Path, kind: int, *, locks: bool) -> None:
        super().__init__(daemon=True)
        self.folder, self.locks = folder, locks
        self.registers = {0x200: kind, 0x2E0: 0x02, 0x10F: 5, 0x110: 10, 0x12B: 31, 0x130: 0x33}
        self.written: list[int] = []
        self.over = threading.Event()

    def run(self) -> None:
        last = ""
        file = self.folder / "userclk_freqcmd"
        while not self.over.wait(0.0005):
            text = file.read_text()
            # A regular file may be read in the middle of a write: only what stays is a command.
            if text != last and COMMAND.fullmatch(text) and text == file.read_text():
                last = text
                self.answer(int(text, 16))

    def answer(self, command: int) -> None:
        address, data = command >> 32 & 0x3FF, command & 0xFFFFFFFF
        if command >> 44 & 1:
            self.registers[address] = data
            self.written.append(address)
        data = self.registers.get(address, 0)
        down = self.registers[0x2E0] & 1 or (not self.locks and 0x100 in self.written)
        status = (0 if down else 1) << 60 | (command >> 48 & 3) << 48 | address << 32 | data
        multiplier = self.registers[0x12B] + self.registers[0x130] / 256
        low = 100 * multiplier / 2 / self.registers[0x110]
        self.put("userclk_freqcntrsts", 3 << 60 | round(low * 100))
        self.put("userclk_freqsts", status)

    def put(self, name: str, value: int) -> None:
        beside = self.folder / f".{name}"
        beside.write_text(f"{value:#018x}\n")
        beside.replace(self.folder / name)


@contextmanager
def pll_behind(folder: Path, kind: int = 5, *, locks: bool = True) -> Iterator[None]:
    pll = Pll(folder, kind, locks=locks)
    pll.start()
    try:
        yield
    finally:
        pll.over.set()
        pll.join()


@pytest.fixture(params=["opae", "dfl"])
def port(request: pytest.FixtureRequest, tmp_path: Path) -> DeviceFiles:
    rack = Rack(tmp_path)
    rack.add_card(CardSpec(request.param))
    return DeviceFiles(rack.root, find_port(scan(rack.root), PORTS[request.param]))


def folder_of(port: DeviceFiles) -> Path:
    path = port.path("afu_id")
    assert path is not None
    return path.parent


def test_a_clock_that_a_port_has_already_is_left_alone(port: DeviceFiles) -> None:
    command = (folder_of(port) / "userclk_freqcmd").read_text()
    set_user_clock(port, UserClock(156, 312))
    assert port.text("userclk_freqcntrcmd") == "0x0000000000000000"  # measured: the slow one
    assert (folder_of(port) / "userclk_freqcmd").read_text() == command


@pytest.mark.parametrize("high", [400, 100, 800])
def test_another_clock_is_set_in_the_registers_of_the_pll(port: DeviceFiles, high: int) -> None:
    requested = UserClock(high / 2, high)
    with pll_behind(folder_of(port)):
        set_user_clock(port, requested)
    found = read_user_clock(port)
    assert found is not None
    assert requested.agrees(found)


@pytest.mark.parametrize(
    ("kind", "locks", "reason"),
    [(7, True, "is of kind 7, without a reference of 100 MHz"), (5, False, "its PLL doesn't lock")],
)
def test_a_pll_that_can_not_make_a_clock_is_reported(
    port: DeviceFiles, kind: int, *, locks: bool, reason: str
) -> None:
    refused = pytest.raises(DeviceRefused, match=reason)
    with pll_behind(folder_of(port), kind, locks=locks), refused:
        set_user_clock(port, UserClock(200, 400))


def test_a_pll_that_does_not_answer_is_reported(port: DeviceFiles) -> None:
    with pytest.raises(DeviceRefused, match="can't be set: its PLL doesn't answer"):
        set_user_clock(port, UserClock(200, 400))


def test_a_register_that_takes_nothing_is_reported(port: DeviceFiles) -> None:
    (folder_of(port) / "userclk_freqcmd").unlink()
    with pytest.raises(DeviceRefused, match="userclk_freqcmd: no such file"):
        set_user_clock(port, UserClock(200, 400))


def test_a_port_without_a_clock_to_set_is_reported(port: DeviceFiles) -> None:
    for file in folder_of(port).glob("userclk_*"):
        file.unlink()
    assert read_user_clock(port) is None
    with pytest.raises(DeviceRefused, match=r"312/156 MHz, and .* has none to set"):
        set_user_clock(port, UserClock(156, 312))


@pytest.mark.parametrize("revision", [0, 1, 9])
def test_the_driver_of_an_iopll_takes_a_whole_setting(port: DeviceFiles, revision: int) -> None:
    feature = folder_of(port) / "dfl_dev.8"
    (feature / "userclk").mkdir(parents=True)
    file = feature / "userclk/frequency"
    file.write_text("156250 312500\n")
    (feature / "feature_rev").write_text(f"{revision}\n")
    assert read_user_clock(port) == UserClock(156.25, 312.5)
    if revision not in IOPLL_KINDS:
        with pytest.raises(DeviceRefused, match=r"of a newer kind \(9\)"):
            set_user_clock(port, UserClock(200, 400))
        return
    set_user_clock(port, UserClock(200, 400))
    assert file.read_bytes()[:32] == iopll_setting(IOPLL_KINDS[revision], 200)
    assert struct.unpack_from("<I", file.read_bytes())[0] == 200_000
    with pytest.raises(InvalidBitstream, match="this card makes"):
        set_user_clock(port, UserClock(900, 900))
