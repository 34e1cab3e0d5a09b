"""Setting a port's user clock, as far as its driver offers a way.

- `<feature>/userclk/frequency` below the port: an IOPLL, whose driver takes a whole setting (see
  `services.programming.clock`) and says what it makes in kHz. The way is that of the OPAE SDK: by a
  middle frequency first, since a jump from one extreme to the other may not lock.
- `userclk_freqcmd` and its like in the port: an fPLL, which is measured, left alone if it makes
  what is asked for, and else driven register by register (`services.programming.fpll`).
- Neither: newer cards' ports of the in-tree driver have a clock that nobody can set.
"""

import os
import time
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

from services.devices.health import register_value
from services.process.errors import DeviceRefused
from services.programming.clock import (
    IOPLL_KINDS,
    UserClock,
    iopll_setting,
    measured_clock,
    read_frequency,
)
from services.programming.fpll import Fpll
from services.programming.port import DeviceFiles

MEASURE_SECONDS: Final = 0.01
"""What the counter needs for a measurement, as in the OPAE SDK."""

_SLOW: Final = b"0x0000000000000000\n"
"""Bit 32 would ask for the fast clock, which may be muted."""


class ClockPolicy(StrEnum):
    """What to do where a bitstream asks for a clock that can't be had."""

    REQUIRE = "require"
    """Don't program it: a function may not work, or not all the time, on another clock."""
    TRY = "try"
    """Program it all the same, and say so."""
    LEAVE = "leave"
    """Don't look at clocks at all."""


def set_user_clock(port: DeviceFiles, asked: UserClock) -> None:
    """Sees that a port has the clock that a bitstream asks for.

    Args:
        port: The port's files.
        asked: The clock.

    Raises:
        DeviceRefused: It can't be had.
        InvalidBitstream: No card of this kind makes it.
    """
    feature = _feature(port)
    if feature:
        _set_iopll(port, feature, asked)
        return
    found = _measure(port)
    if found is None:
        raise DeviceRefused(
            f"the bitstream asks for a user clock of {asked}, and {port.name} has none to set"
        )
    if asked.agrees(found):
        return
    Fpll(port, partial(_write, port)).set(asked)
    found = _measure(port)
    if found is not None and not asked.agrees(found):
        raise DeviceRefused(_other(port, asked, found))


def _other(port: DeviceFiles, asked: UserClock, found: UserClock) -> str:
    return f"the user clock of {port.name} was set to {asked} and is {found}"


def read_user_clock(port: DeviceFiles) -> UserClock | None:
    """The clock that a port says it has; None if it doesn't say."""
    feature = _feature(port)
    if feature:
        return read_frequency(port.text(f"{feature}/userclk/frequency"))
    status = register_value(port.text("userclk_freqcntrsts"))
    return None if status is None else measured_clock(status)


def _feature(port: DeviceFiles) -> str:
    """The folder of the feature that makes the clock, empty if there is none."""
    for name in port.names():
        if port.path(f"{name}/userclk/frequency") is not None:
            return name
    return ""


def _set_iopll(port: DeviceFiles, feature: str, asked: UserClock) -> None:
    revision = register_value(port.text(f"{feature}/feature_rev")) or 0
    kind = IOPLL_KINDS.get(revision)
    if kind is None:
        raise DeviceRefused(
            f"the bitstream asks for a user clock of {asked}, and that of {port.name} is of a"
            f" newer kind ({revision}) than those known here"
        )
    setting = iopll_setting(kind, asked.low)
    if asked.low != kind.middle:
        _write(port, f"{feature}/userclk/frequency", iopll_setting(kind, kind.middle))
    _write(port, f"{feature}/userclk/frequency", setting)
    found = read_user_clock(port)
    if found is not None and not asked.agrees(found):
        raise DeviceRefused(_other(port, asked, found))


def _measure(port: DeviceFiles) -> UserClock | None:
    if port.path("userclk_freqcntrsts") is None:
        return None
    if port.path("userclk_freqcntrcmd") is not None:
        _write(port, "userclk_freqcntrcmd", _SLOW)
        time.sleep(MEASURE_SECONDS)
    return read_user_clock(port)


def _write(port: DeviceFiles, file: str, content: bytes) -> None:
    """Writes in one go to an attribute, which takes one write as one value."""
    path: Path | None = port.path(file)
    try:
        if path is None:
            raise FileNotFoundError(2, "no such file")
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
    except OSError as error:
        reason = error.strerror or str(error)
        text = f"the user clock of {port.name} can't be set: {file}: {reason}"
        raise DeviceRefused(text) from error
