"""The features of DFL cards, each a block of registers with its behaviour.

Names, offsets and bits are those of Linux's `drivers/fpga/dfl.h`, `dfl-fme-*.c` and `dfl-afu-*.c`.
A fault is a method or an attribute of the feature that has it.
"""

import time
from typing import ClassVar

from simulator.driver import RAW

AFU, PRIVATE, FIU = 1, 3, 4
"""Types of a device feature header."""


class Feature:
    """A block of registers of 8 bytes, which keeps nothing that is written to it."""

    kind: ClassVar = PRIVATE
    size: ClassVar = 0x1000

    def __init__(self, number: int, revision: int = 0) -> None:
        self.number = number
        self.revision = revision
        self.registers: dict[int, int] = {}

    def link(self, following: int, *, is_last: bool) -> None:
        """Write the header: the distance to the next feature, and whether this is the last."""
        self.registers[0] = (
            self.kind << 60 | is_last << 40 | following << 16 | self.revision << 12 | self.number
        )

    def read(self, offset: int) -> int:
        """The value of a register."""
        return self.registers.get(offset, 0)

    def write(self, offset: int, value: int) -> None:
        """Write a register."""

    def put_id(self, offset: int, text: str) -> None:
        """Write an id of 32 hex digits, lower half first."""
        self.registers[offset] = int(text[16:], 16)
        self.registers[offset + 8] = int(text[:16], 16)

    def put_field(self, offset: int, low: int, high: int, value: int) -> None:
        """Write the bits from low to high of a register."""
        mask = (1 << high - low + 1) - 1
        kept = self.registers.get(offset, 0) & ~(mask << low)
        self.registers[offset] = kept | (value & mask) << low


class Engine(Feature):
    """The header of a management engine (FME)."""

    kind = FIU

    def __init__(self, ports: int) -> None:
        super().__init__(0)
        self.put_field(0x30, 17, 19, ports)
        self.registers |= {0x60: 0x2300011001030F, 0x68: 0x180119}

    def place_port(self, number: int, bar: int, offset: int) -> None:
        """Note where a port's list begins."""
        self.registers[0x38 + 8 * number] = 1 << 60 | bar << 32 | offset


class Thermal(Feature):
    """Temperature and its thresholds, in °C."""

    def __init__(self) -> None:
        super().__init__(1)
        self.registers[8] = 93 << 24 | 90 << 8 | 80
        self.heat(50)

    def heat(self, celsius: int) -> None:
        """Set the temperature, and the alarms of the thresholds that it reaches."""
        self.put_field(0x10, 0, 6, celsius)
        self.put_field(8, 32, 32, celsius >= self.read(8) & 0x7F)
        self.put_field(8, 33, 33, celsius >= self.read(8) >> 8 & 0x7F)


class Power(Feature):
    """Power and its thresholds, in W."""

    def __init__(self) -> None:
        super().__init__(2)
        self.registers |= {8: 30, 0x10: 66 << 8 | 60}

    def draw(self, watts: int) -> None:
        """Set the power, and the alarms of the thresholds that it reaches."""
        self.put_field(8, 0, 17, watts)
        self.put_field(0x10, 16, 16, watts >= self.read(0x10) & 0x7F)
        self.put_field(0x10, 17, 17, watts >= self.read(0x10) >> 8 & 0x7F)

    def write(self, offset: int, value: int) -> None:
        """Write a register; the thresholds are kept."""
        if offset == 0x10:
            self.put_field(0x10, 0, 15, value)


class Errors(Feature):
    """Error registers: a bit that is written is cleared, unless it sticks."""

    clearable: ClassVar[dict[str, int]]
    fixed: ClassVar[dict[str, int]] = {}

    def __init__(self, number: int, revision: int = 0) -> None:
        super().__init__(number, revision)
        self.sticks = 0
        """Bits that come back at once."""

    def report(self, name: str, bits: int) -> None:
        """Set the bits of a register, named as its file in sysfs."""
        self.registers[(self.clearable | self.fixed)[name]] = bits

    def write(self, offset: int, value: int) -> None:
        """Write a register."""
        if offset in self.clearable.values():
            self.registers[offset] = self.read(offset) & ~(value & ~self.sticks)


class EngineErrors(Errors):
    """The error registers of an engine."""

    clearable: ClassVar[dict[str, int]] = {
        "fme_errors": 0x10,
        "pcie0_errors": 0x20,
        "pcie1_errors": 0x30,
    }
    fixed: ClassVar[dict[str, int]] = {
        "first_error": 0x38,
        "nonfatal_errors": 0x50,
        "catfatal_errors": 0x60,
    }

    def __init__(self) -> None:
        super().__init__(4, revision=1)


class PortErrors(Errors):
    """The error registers of a port."""

    clearable: ClassVar[dict[str, int]] = {"errors": 0x10, "first_error": 0x18}

    def __init__(self) -> None:
        super().__init__(0x10)


class Afu(Feature):
    """The function in a port; without its port, which is in reset, nothing answers."""

    kind = AFU
    size = 0x40000

    def __init__(self, port: "Port", guid: str) -> None:
        super().__init__(0)
        self._port = port
        self.put_id(8, guid)

    def read(self, offset: int) -> int:
        """The value of a register."""
        return 2**64 - 1 if self._port.is_in_reset else super().read(offset)


class Port(Feature):
    """The header of a port, with its reset, its power states and its user clock."""

    kind = FIU
    _reset, _acknowledged = 1, 1 << 4

    def __init__(self, number: int, guid: str | None, revision: int = 0) -> None:
        super().__init__(1, revision)
        self.acknowledges = True
        """Whether it acknowledges that it is in reset."""
        self.clock = 156.25
        """The slow user clock in MHz; 0 if it stands still."""
        self.resets = 0
        """How often it came out of reset."""
        self.errors = PortErrors()
        self.afu = Afu(self, guid) if guid else None
        self.registers[0x30] = (Afu.size >> 10) << 8 | number
        self.registers[0x38] = self._reset | self._acknowledged  # as after power-up

    @property
    def is_in_reset(self) -> bool:
        """Whether it is disabled."""
        return bool(self.read(0x38) & self._reset)

    def throttle(self, state: int) -> None:
        """Put it into a power state: 0, or AP1, AP2, AP6; the first two leave an event."""
        self.put_field(0x40, 8, 11, state)
        if state in (1, 2):
            self.put_field(0x40, 11 + state, 11 + state, 1)

    def write(self, offset: int, value: int) -> None:
        """Write a register."""
        if offset == 0x38:
            self.resets += self.is_in_reset and not value & self._reset
            is_acknowledged = value & self._reset and self.acknowledges
            ack = self._acknowledged if is_acknowledged else 0
            self.registers[offset] = value & ~self._acknowledged | ack
        elif offset == 0x40:  # events are cleared by writing them
            self.registers[offset] = self.read(offset) & ~(value & 0x3000)
        elif offset == 0x58:  # which clock the counter measures, in 10 kHz
            is_fast = value >> 32 & 1
            self.registers[0x68] = is_fast << 32 | round(self.clock * 100) << is_fast


class Reconfiguration(Feature):
    """The engine that programs ports: it takes words while it has credit for them."""

    OPERATION, CRC, INCOMPATIBLE, PROTOCOL, OVERFLOW = (1 << bit for bit in range(5))
    """Errors that it can report."""

    _control, _status, _data, _errors = 8, 0x10, 0x18, 0x20
    _reset, _acknowledged, _start, _complete = 1, 1 << 4, 1 << 12, 1 << 13
    _credit = 64
    """Words that it takes at once: fewer than the bus has buffers for."""

    def __init__(self, interface_id: str, ports: list[Port]) -> None:
        super().__init__(5)
        self._ports = ports
        self.put_id(0xA8, interface_id)
        self.registers[self._status] = self._credit
        self.refusal = 0
        """The errors that it reports after each programming."""
        self.completes = True
        """Whether it ever says that it has finished."""
        self.seconds = 0.0
        """How long it works on the words, once it has all of them."""
        self.pause = 0.0
        """How long it takes no word after the first."""
        self.programmed: list[tuple[int, bytes]] = []
        """The number of each port that it programmed, and the words."""
        self._words = bytearray()
        self._working: tuple[Port, float] | None = None
        """The port that it works on, and until when."""
        self._started = 0.0

    @property
    def is_working(self) -> bool:
        """Whether it has all words and has not finished."""
        return self._working is not None

    def read(self, offset: int) -> int:
        """The value of a register."""
        if self._working and self.completes and time.monotonic() >= self._working[1]:
            self._finish(self._working[0])
            self._working = None
            self.put_field(self._control, 12, 12, 0)
        if offset == self._status and self._words:
            pauses = time.monotonic() < self._started + self.pause
            self.put_field(self._status, 0, 8, 0 if pauses else self._credit)
        return super().read(offset)

    def write(self, offset: int, value: int) -> None:
        """Write a register."""
        if offset == self._data:
            self._words += (value & 0xFFFF_FFFF).to_bytes(4, "little")
        elif offset == self._errors:
            self.registers[offset] = self.read(offset) & ~value
            self.put_field(self._status, 16, 16, self.registers[offset] != 0)
        elif offset == self._control:
            self._command(value)

    def _command(self, value: int) -> None:
        before = self.read(self._control)
        ack = self._acknowledged if value & self._reset else 0
        self.registers[self._control] = value & ~(self._acknowledged | self._complete) | ack
        if value & self._reset:  # ends what was going on, and its errors
            self.put_field(self._status, 0, 63, self._credit)
            self.registers[self._errors] = 0
            self.put_field(self._control, 12, 12, 0)
            self._working = None
        if value & self._start and not before & self._start:
            self._words.clear()
            self._started = time.monotonic()
        if value & self._complete:
            self._working = self._ports[value >> 7 & 7], time.monotonic() + self.seconds

    def _finish(self, port: Port) -> None:
        match = RAW.match(self._words)
        errors = self.refusal or (0 if match else self.INCOMPATIBLE)
        if port.afu and not errors and match:
            self.programmed.append((self._ports.index(port), bytes(self._words)))
            port.afu.put_id(8, match[1].decode())
        self.registers[self._errors] = errors
        self.put_field(self._status, 16, 16, errors != 0)
