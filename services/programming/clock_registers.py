"""Setting a port's user clock, as far as its driver offers a way.

- `<feature>/userclk/frequency` below the port: an IOPLL, whose driver takes a whole setting (see
  `services.programming.clock`) and reports what it makes in kHz. As in the OPAE SDK, a middle
  frequency is set first, since a jump from one extreme to the other may not lock.
- `userclk_freqcmd` and its like in the port: an fPLL (Arria 10). It is measured, left alone if it
  makes the requested clock, and otherwise driven register by register (`_Fpll`).
- Neither: newer cards' ports of the in-tree driver have a clock that can't be set.
"""

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from services.devices.health import register_value
from services.process.errors import DeviceRefused
from services.programming.clock import (
    IOPLL_KINDS,
    FpllWrite,
    UserClock,
    fpll_setting,
    iopll_setting,
    measured_clock,
    read_frequency,
)
from services.programming.port import DeviceFiles

MEASURE_SECONDS: Final = 0.01
"""What the counter needs for a measurement, as in the OPAE SDK."""

COMMAND: Final = "userclk_freqcmd"
STATUS: Final = "userclk_freqsts"
MEASURE: Final = "userclk_freqcntrcmd"
COUNTER: Final = "userclk_freqcntrsts"


class ClockPolicy(StrEnum):
    """What to do if a card can't make the clock that a bitstream requests."""

    REQUIRE = "require"
    """Don't program it: a function may not work, or not all the time, on another clock."""
    TRY = "try"
    """Program it all the same, with a remark."""
    LEAVE = "leave"
    """Don't read or set clocks at all."""


def set_user_clock(port: DeviceFiles, requested: UserClock) -> None:
    """Give a port the clock that a bitstream requests."""
    if feature := _feature(port):
        _set_iopll(port, feature, requested)
    else:
        _set_fpll(port, requested)


def read_user_clock(port: DeviceFiles) -> UserClock | None:
    """The clock that a port reports, None if it reports none."""
    feature = _feature(port)
    if feature:
        return read_frequency(port.text(f"{feature}/userclk/frequency"))
    status = register_value(port.text(COUNTER))
    return None if status is None else measured_clock(status)


def _feature(port: DeviceFiles) -> str:
    """The folder of the feature that makes the clock, empty if there is none."""
    for name in port.names():
        if port.path(f"{name}/userclk/frequency") is not None:
            return name
    return ""


def _set_iopll(port: DeviceFiles, feature: str, requested: UserClock) -> None:
    revision = register_value(port.text(f"{feature}/feature_rev")) or 0
    kind = IOPLL_KINDS.get(revision)
    if kind is None:
        raise DeviceRefused(
            f"the bitstream asks for a user clock of {requested}, and that of {port.name} is of a"
            f" newer kind ({revision}) than those known here"
        )
    file, setting = f"{feature}/userclk/frequency", iopll_setting(kind, requested.low)
    if requested.low != kind.middle:
        _write(port, file, iopll_setting(kind, kind.middle))
    _write(port, file, setting)
    _check_clock(port, requested, read_user_clock(port))


def _set_fpll(port: DeviceFiles, requested: UserClock) -> None:
    found = _measure(port)
    if found is None:
        raise DeviceRefused(
            f"the bitstream asks for a user clock of {requested}, and {port.name} has none to set"
        )
    if not requested.agrees(found):
        _Fpll(port).set(requested)
        _check_clock(port, requested, _measure(port))


def _check_clock(port: DeviceFiles, requested: UserClock, found: UserClock | None) -> None:
    if found is not None and not requested.agrees(found):
        raise DeviceRefused(f"the user clock of {port.name} was set to {requested} and is {found}")


def _measure(port: DeviceFiles) -> UserClock | None:
    if port.path(COUNTER) is None:
        return None
    if port.path(MEASURE) is not None:
        _write(port, MEASURE, _hex(0))  # bit 32 selects the fast clock, which may be muted
        time.sleep(MEASURE_SECONDS)
    return read_user_clock(port)


def _hex(value: int) -> bytes:
    return f"{value:#018x}\n".encode()


def _write(port: DeviceFiles, file: str, content: bytes) -> None:
    try:
        port.write(file, content)
    except OSError as error:
        reason = error.strerror or str(error)
        text = f"the user clock of {port.name} can't be set: {file}: {reason}"
        raise DeviceRefused(text) from error


# The fPLL of an Arria 10 -------------------------------------------------------------------------

_RESET: Final = 1 << 56
_RUN: Final = 1 << 52
_SEQUENCE_AT: Final = 48
_WRITE: Final = 1 << 44
_ADDRESS_AT: Final = 32
_DATA: Final = (1 << 32) - 1
_BUSY: Final = 1 << 61
_LOCKED: Final = 1 << 60

_VERSIONS: Final = frozenset({1, 3})
_KINDS: Final = frozenset({5, 6})
"""Those with a reference of 100 MHz; 7 has another one, and needs other settings."""

_KIND: Final = 0x200
_POWER: Final = 0x2E0
_DOWN: Final = FpllWrite(_POWER, 0x03, 0x03)
_UP: Final = FpllWrite(_POWER, 0x03, 0x02)
_OURS: Final = FpllWrite(0x000, 0xFF, 0x02)
_CALIBRATE: Final = FpllWrite(0x100, 0x02, 0x02)

ANSWER_SECONDS: Final = 1.0
"""For a command, for a calibration and for the lock; all take some milliseconds at most."""

SETTLING_SECONDS: Final = 0.001


class _Fpll:
    """The fPLL of a port, driven as the OPAE SDK does.

    Both drivers give the port's two command registers and two status registers as attributes. A
    command goes to a state machine in the port, which reads or writes a register of the PLL: a
    sequence number, whether to write, the address and the data. It is done when the status shows
    the same number. To change the clock the PLL is powered down, its registers are written, it is
    calibrated and powered up, and must lock.
    """

    def __init__(self, port: DeviceFiles) -> None:
        self._port = port
        self._sequence = 0

    def set(self, requested: UserClock) -> None:
        """Set the clock, or raise `DeviceRefused`, as `set_user_clock` does."""
        setting = fpll_setting(requested.high)
        self._start()
        self._put(_DOWN)
        time.sleep(SETTLING_SECONDS)
        if self._status() & _LOCKED:
            raise self._failed("doesn't let go of its clock")
        self._command(_RUN)  # with the first reference
        time.sleep(SETTLING_SECONDS)
        for each in setting:
            self._put(each)
        self._wait(lambda: not self._status() & _BUSY, "is busy")
        self._put(_OURS)
        self._put(_CALIBRATE, verify=False)
        self._access(_OURS.address, 0x01)
        time.sleep(SETTLING_SECONDS)
        self._wait(lambda: not self._status() & _BUSY, "doesn't calibrate")
        self._put(_UP)
        self._wait(lambda: bool(self._status() & _LOCKED), "doesn't lock")

    def _start(self) -> None:
        """Reset the state machine, and check that it and the PLL are of a known kind."""
        version = (register_value(self._port.text(COUNTER)) or 0) >> 60
        if version not in _VERSIONS:
            raise self._failed(f"is of version {version}, which is not known here")
        self._wait(lambda: not self._status() & _BUSY, "is busy")
        self._command(_RESET)
        self._command(_RUN)
        self._wait(lambda: not self._status() & _BUSY, "is busy")
        self._sequence = self._status() >> _SEQUENCE_AT & 3
        kind = self._access(_KIND) & 0xFF
        if kind not in _KINDS:
            raise self._failed(f"is of kind {kind}, without a reference of 100 MHz")

    def _put(self, write: FpllWrite, *, verify: bool = True) -> None:
        """Change the masked bits of a register."""
        before = self._access(write.address)
        self._access(write.address, before & ~write.mask & _DATA | write.value & write.mask)
        if not verify:
            return
        found = self._access(write.address)
        if (found ^ write.value) & write.mask:
            raise self._failed(f"register {write.address:#x} reads {found:#x}")

    def _access(self, address: int, data: int | None = None) -> int:
        """Read a register, or write it; the data in the status afterwards."""
        self._sequence = (self._sequence + 1) % 4
        command = _RUN | self._sequence << _SEQUENCE_AT | address << _ADDRESS_AT
        self._command(command if data is None else command | _WRITE | data)
        self._wait(lambda: self._status() >> _SEQUENCE_AT & 3 == self._sequence, "doesn't answer")
        return self._status() & _DATA

    def _command(self, command: int) -> None:
        _write(self._port, COMMAND, _hex(command))
        time.sleep(SETTLING_SECONDS)

    def _status(self) -> int:
        status = register_value(self._port.text(STATUS))
        if status is None:
            raise self._failed(f"{STATUS} can't be read")
        return status

    def _wait(self, is_done: Callable[[], bool], failure: str) -> None:
        deadline = time.monotonic() + ANSWER_SECONDS
        while not is_done():
            if time.monotonic() > deadline:
                raise self._failed(failure)
            time.sleep(SETTLING_SECONDS)

    def _failed(self, reason: str) -> DeviceRefused:
        return DeviceRefused(f"the user clock of {self._port.name} can't be set: its PLL {reason}")
