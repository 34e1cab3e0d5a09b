"""The user clock of a port: what a bitstream asks for, and what the port reports.

A function runs on two clocks of its own, one twice as fast as the other; its bitstream names them
in MHz. accelbind measures them and doesn't set them.
"""

import time
from enum import StrEnum
from typing import Final

from services.bitstreams.model import UserClock
from services.devices.health import register_value
from services.process.errors import DeviceRefused
from services.programming.port import DeviceFiles

TOLERANCE: Final = 0.02
"""Part by which a clock may be off: not every frequency can be made, and counters aren't exact."""

MEASURE_SECONDS: Final = 0.01
"""What the counter needs for a measurement, as in the OPAE SDK."""

_SELECT: Final = "userclk_freqcntrcmd"  # which clock the counter measures
_SLOW: Final = b"0x0000000000000000\n"
_COUNTER: Final = "userclk_freqcntrsts"
_FAST: Final = 1 << 32  # set if the counter has measured the fast clock
_COUNT: Final = (1 << 17) - 1  # in 10 kHz


class ClockCheck(StrEnum):
    """The treatment of user clocks."""

    CHECK = "check"
    """Refuse a clock above what the bitstream asks for, and warn below it."""
    LEAVE = "leave"
    """Don't measure them."""


def read_user_clock(port: DeviceFiles) -> UserClock | None:
    """The clock that a port reports, None if it reports none."""
    # Stratix 10 and Agilex have a feature that reports both; Arria 10 has a counter.
    for name in port.names():
        if text := port.text(f"{name}/userclk/frequency"):
            return _frequency(text)
    status = register_value(port.text(_COUNTER)) or 0
    count = (status & _COUNT) / 100
    if not count:
        return None
    slow = count / 2 if status & _FAST else count
    return UserClock(low=slow, high=2 * slow)


def _frequency(text: str) -> UserClock | None:
    words = text.split()  # the slow clock and the fast one, in kHz
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        return None
    low, high = (int(word) / 1000 for word in words)
    return UserClock(low=low, high=high)


def check_user_clock(port: DeviceFiles, requested: UserClock) -> str:
    """Compare the clock of a port with what a function asks for; a sentence if it is slower.

    Raises:
        DeviceRefused: It is faster, or the port's counter can't be selected.
    """
    measured = _measure(port)
    if measured is None:
        return ""
    ratios = measured.low / requested.low, measured.high / requested.high
    text = (
        f"the user clock of {port.name} is {measured}, and the function in the bitstream asks for"
        f" {requested}"
    )
    if max(ratios) > 1 + TOLERANCE:
        raise DeviceRefused(
            f"{text}: on a faster clock it may compute wrong results; set the clock with the"
            " vendor's tools, or skip this check with --user-clock leave"
        )
    if min(ratios) >= 1 - TOLERANCE:
        return ""
    return f"{text}: it runs slower"


def _measure(port: DeviceFiles) -> UserClock | None:
    if port.path(_SELECT) is not None:
        try:
            port.write(_SELECT, _SLOW)  # the fast clock may be muted
        except OSError as error:
            reason = error.strerror or str(error)
            text = f"the user clock of {port.name} can't be measured: {_SELECT}: {reason}"
            raise DeviceRefused(f"{text}; skip this with --user-clock leave") from error
        time.sleep(MEASURE_SECONDS)
        return read_user_clock(port) or UserClock(0, 0)  # its counter stands still
    return read_user_clock(port)
