"""Driving the fPLL that makes an Arria 10's user clock, as the OPAE SDK does.

Both drivers give the port's two command registers and two status registers as attributes. A command
goes to a state machine in the port, which reads or writes a register of the PLL: a sequence number,
whether to write, the address and the data. It is done when the status shows the same number. To
change the clock the PLL is powered down, its registers are written, it is calibrated and powered
up, and must lock.
"""

import time
from collections.abc import Callable
from typing import Final

from services.devices.health import register_value
from services.process.errors import DeviceRefused
from services.programming.clock import FpllWrite, UserClock, fpll_setting
from services.programming.port import DeviceFiles

COMMAND: Final = "userclk_freqcmd"
STATUS: Final = "userclk_freqsts"
COUNTER: Final = "userclk_freqcntrsts"

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

Write = Callable[[str, bytes], None]
"""Writes an attribute of the port in one go."""


class Fpll:
    """The fPLL of a port.

    Args:
        port: The port's files.
        write: Writes one of them.
    """

    def __init__(self, port: DeviceFiles, write: Write) -> None:
        self._port = port
        self._write_file = write
        self._sequence = 0

    def set(self, asked: UserClock) -> None:
        """Makes it make a clock.

        Raises:
            DeviceRefused: It doesn't answer, or doesn't lock.
            InvalidBitstream: It can't make that clock.
        """
        setting = fpll_setting(asked.high)
        self._begin()
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

    def _begin(self) -> None:
        """Resets the state machine, and sees that it and the PLL are of a kind that is known."""
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
        """Changes the bits of a register that a mask has."""
        before = self._access(write.address)
        self._access(write.address, before & ~write.mask & _DATA | write.value & write.mask)
        if not verify:
            return
        found = self._access(write.address)
        if (found ^ write.value) & write.mask:
            raise self._failed(f"register {write.address:#x} reads {found:#x}")

    def _access(self, address: int, data: int | None = None) -> int:
        """Reads a register, or writes it; what the status has as data then."""
        self._sequence = (self._sequence + 1) % 4
        command = _RUN | self._sequence << _SEQUENCE_AT | address << _ADDRESS_AT
        self._command(command if data is None else command | _WRITE | data)
        self._wait(
            lambda: self._status() >> _SEQUENCE_AT & 3 == self._sequence,
            "doesn't answer",
        )
        return self._status() & _DATA

    def _command(self, command: int) -> None:
        self._write_file(COMMAND, f"{command:#018x}\n".encode())
        time.sleep(SETTLING_SECONDS)

    def _status(self) -> int:
        status = register_value(self._port.text(STATUS))
        if status is None:
            raise self._failed(f"{STATUS} can't be read")
        return status

    def _wait(self, done: Callable[[], bool], trouble: str) -> None:
        deadline = time.monotonic() + ANSWER_SECONDS
        while not done():
            if time.monotonic() > deadline:
                raise self._failed(trouble)
            time.sleep(SETTLING_SECONDS)

    def _failed(self, why: str) -> DeviceRefused:
        return DeviceRefused(f"the user clock of {self._port.name} can't be set: its PLL {why}")
