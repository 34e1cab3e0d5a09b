"""The user clock of a port: what a bitstream requests, what a port measures, how a PLL makes it.

A function runs on two clocks of its own, one twice as fast as the other; its bitstream names them
in MHz. Cards differ in how they make them:

- a PLL of the IOPLL kind (Stratix 10, Agilex) whose driver takes a whole setting: eight 32-bit
  words, `struct iopll_config` of the OPAE SDK;
- an fPLL (Arria 10), whose registers are written one by one, and a counter that measures what it
  makes: `userclk_freqcntrsts`, bits 0…16 in 10 kHz, bit 32 set if that is the fast clock.

The rules for a setting were derived from those that the OPAE SDK has for every MHz. In an IOPLL,
reference / N * M is the frequency of the oscillator, which the counters C0 and C1 divide; what its
loop filter needs depends on M alone. In an fPLL, half of reference * (M + K / 2^32) is divided by
the counters. `tests/services/programming/test_clock.py` holds samples.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from services.process.errors import InvalidBitstream

REFERENCE: Final = 100
"""MHz that go into a PLL."""

TOLERANCE: Final = 0.02
"""Part by which a clock may be off: not every frequency can be made, and counters aren't exact."""

_FAST: Final = 1 << 32
_COUNT: Final = (1 << 17) - 1
_BYPASS: Final = 1 << 16
_ODD: Final = 1 << 17
_WORDS: Final = struct.Struct("<8I")


@dataclass(frozen=True, slots=True)
class UserClock:
    """The two clocks of a function, in MHz."""

    low: float
    high: float

    def agrees(self, other: "UserClock") -> bool:
        """Whether another one is the same, as far as clocks are exact."""
        return abs(self.low - other.low) <= TOLERANCE * self.low

    def __str__(self) -> str:
        return f"{self.high:g}/{self.low:g} MHz"


def requested_clock(high: float | None, low: float | None) -> UserClock | None:
    """The clocks that a bitstream requests in MHz, None if it specifies neither."""
    if not high and not low:
        return None
    slow = low or (high or 0) / 2
    return UserClock(low=slow, high=high or 2 * slow)


def measured_clock(status: int) -> UserClock | None:
    """The clocks that a port's counter (`userclk_freqcntrsts`) has measured, None if none."""
    found = (status & _COUNT) / 100
    if not found:
        return None
    slow = found / 2 if status & _FAST else found
    return UserClock(low=slow, high=2 * slow)


def read_frequency(text: str) -> UserClock | None:
    """The clocks in `userclk/frequency` of an IOPLL: the slow one and the fast one, in kHz."""
    words = text.split()
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        return None
    low, high = (int(word) / 1000 for word in words)
    return UserClock(low=low, high=high)


@dataclass(frozen=True, slots=True)
class IopllKind:
    """A kind of IOPLL. All frequencies are in MHz."""

    least: int
    """Of its slow clock."""
    most: int
    """Of either clock; a fast clock beyond it is as fast as the slow one."""
    oscillator: tuple[float, float]
    """From and to."""

    @property
    def middle(self) -> int:
        """MHz of a slow clock on the way: a jump from one extreme to the other may not lock."""
        return self.most // 4


IOPLL_KINDS: Final = {
    0: IopllKind(10, 600, (800, 1600)),
    1: IopllKind(10, 800, (720, 1434)),
}
"""By the revision of the user clock's feature: Arria 10 and Stratix 10, Agilex."""


def iopll_setting(kind: IopllKind, low: float) -> bytes:
    """The setting that the driver of an IOPLL takes for a slow clock, in MHz."""
    if not kind.least <= low <= kind.most:
        text = f"a user clock of {low:g} MHz: this card makes {kind.least} to {kind.most} MHz"
        raise InvalidBitstream(text)
    doubled = 2 * low <= kind.most
    _, n, minus_m, slow, fast = min(_ways(kind, low, doubled=doubled))
    m = -minus_m
    made = round(1000 * REFERENCE * m / n / slow)
    counters = map(_counter, (m, n, slow, fast))
    return _WORDS.pack(made, *counters, *_loop_filter(m))


def _ways(
    kind: IopllKind, low: float, *, doubled: bool
) -> Iterator[tuple[float, int, int, int, int]]:
    """Ways to make a clock: how far off each is, N, -M, and what divides for either clock.

    The best comes first: the closest, then the one that divides the reference least.
    """
    least, most = kind.oscillator
    for n in range(1, 11):
        for m in range(8, 160):
            oscillator = REFERENCE * m / n
            if not least <= oscillator <= most:
                continue
            fast = max(1, round(oscillator / (2 * low if doubled else low)))
            slow = 2 * fast if doubled else fast
            off = abs(oscillator / slow - low)
            if oscillator / fast <= kind.most + 1:
                yield round(off, 6), n, -m, slow, fast


def _counter(count: int) -> int:
    """A divider as the PLL takes it: how long high and how long low, or not at all."""
    if count == 1:
        return _BYPASS
    return (count - count // 2) << 8 | count // 2 | (_ODD if count % 2 else 0)


def _loop_filter(m: int) -> tuple[int, int, int]:
    """Loop filter, charge pump and ripple capacitor for a multiplier."""
    if m < 24:
        return 0xC0, 4, 0 if m < 16 else 2
    if m < 44:
        return 0x100, 4, 0
    if m < 65:
        return 0x140, 4, 2
    return 0x180, 4 if m < 125 else 6, 2


FPLL_RANGE: Final = (25, 1200)
"""MHz of an fPLL's fast clock; beyond `_FASTEST` it is muted, and the slow one is as it should."""

_FASTEST: Final = 600
_LEAST_M: Final = 30
_OFF: Final = 0xFF


@dataclass(frozen=True, slots=True)
class FpllWrite:
    """Bits to put into a register of an fPLL."""

    address: int
    mask: int
    value: int


def fpll_setting(high: float) -> tuple[FpllWrite, ...]:
    """What to write into the registers of an Arria 10's fPLL for a fast clock, in this order."""
    least, most = FPLL_RANGE
    if not least <= high <= most:
        text = f"a user clock of {high:g} MHz: this card makes {least} to {most} MHz"
        raise InvalidBitstream(text)
    muted = high > _FASTEST
    wanted = high / 2 if muted else high
    divider = math.ceil(_LEAST_M * REFERENCE / 2 / wanted)
    multiplier = wanted * divider * 2 / REFERENCE
    m = int(multiplier)
    k = int((multiplier - m) * (1 << 32)) or 1
    fast, slow = (_OFF, divider) if muted else (divider, 2 * divider)
    fraction = [(0x12D + n, 0xFF, k >> 8 * n & 0xFF) for n in range(4)]
    registers = [
        *((0x10F, 0xFF, fast), (0x110, 0xFF, slow), (0x111, 0xFF, 0x10 if muted else 0x30)),
        *((0x12A, 0xFC, 0xE4), (0x12B, 0xFF, m), (0x12C, 0xFF, 0x08)),
        *fraction,
        *((0x133, 0x7F, 0x0A), (0x134, 0x7C, 0x10), (0x135, 0xFF, 0x03), (0x142, 0x7F, 0x04)),
    ]
    return tuple(FpllWrite(*each) for each in registers)
