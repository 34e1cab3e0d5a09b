"""Measurements and counts of a card: temperatures, power, error registers, errors on its bus.

`services.devices.hardware.sensor_reader` reads, this module turns texts into numbers.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MAX_LABEL: Final = 64
"""Characters of a sensor's label; longer ones are cut."""

_INTEGER = re.compile(r"-?[0-9]{1,12}|0[xX][0-9a-fA-F]{1,8}")
"""Decimal or hexadecimal, as both drivers write it."""
_TOTAL = re.compile(r"TOTAL_ERR_[A-Z]+\s+([0-9]{1,20})")
_UNPRINTABLE = re.compile(r"[^ -~]")

# A missing sensor often reads as all ones.
_CELSIUS = (-100.0, 400.0)
_WATTS = (0.0, 5000.0)


@dataclass(frozen=True, slots=True)
class Gauge:
    """One sensor of a card."""

    label: str
    """What it measures, in the words of the driver; unique among those of its kind on a card."""
    value: float
    """In °C or W."""


@dataclass(frozen=True, slots=True)
class ErrorRegister:
    """An error register of a card."""

    part: str
    """The engine or port that has it: `dfl-fme.0`."""
    name: str
    """`fme_errors`, `catfatal_errors`, …; `port_errors` for a port's."""
    value: int
    """What it reads, a bit an error; zero is good."""


@dataclass(frozen=True, slots=True)
class BusErrors:
    """Errors that a PCI function has reported since it came up (PCIe AER), None where unknown."""

    correctable: int | None = None
    nonfatal: int | None = None
    fatal: int | None = None


@dataclass(frozen=True, slots=True)
class CardSensors:
    """Readings of a card's sensors and registers at one moment."""

    card: str
    address: str
    temperatures: tuple[Gauge, ...] = ()
    powers: tuple[Gauge, ...] = ()
    registers: tuple[ErrorRegister, ...] = ()
    """Of its engine and its ports."""
    bus_errors: BusErrors = BusErrors()


def celsius(text: str, *, unit: float = 1.0) -> float | None:
    """A temperature in °C, None if it can't be one; `unit` is 0.001 below `hwmon`."""
    return _measured(text, unit, *_CELSIUS)


def watts(text: str, *, unit: float = 1.0) -> float | None:
    """A power in W, as `celsius`; its unit is 0.000001 below `hwmon`."""
    return _measured(text, unit, *_WATTS)


def board_watts(text: str) -> float | None:
    """The power of a board, as its controller's driver reports it: in µW, or in mW."""
    # The N6000's driver wrote mW for µW before Linux 6.10, and the C6100's does. A board that runs
    # draws more than a watt (10⁶ µW) and less than a kilowatt (10⁶ mW).
    power = watts(text, unit=1e-6)
    return watts(text, unit=1e-3) if power is not None and power < 1 else power


def _measured(text: str, unit: float, least: float, most: float) -> float | None:
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text, 16 if "x" in text.lower() else 10) * unit
    return round(value, 6) if least <= value <= most else None


def label(*words: str) -> str:
    """A sensor's label, valid in a metric, from words that may be empty."""
    return _UNPRINTABLE.sub("?", " ".join(filter(None, words)))[:MAX_LABEL].strip()


def gauges(readings: Iterable[tuple[str, float | None]]) -> tuple[Gauge, ...]:
    """Sensors by label, with the labels made unique, without those that measure nothing."""
    named: dict[str, float] = {}
    for text, value in readings:
        name, count = text, 1
        while name in named:
            count += 1
            name = f"{text} ({count})"
        if value is not None:
            named[name] = value
    return tuple(Gauge(*each) for each in named.items())


def aer_total(text: str) -> int | None:
    """The total of an `aer_dev_*` file, None if there is none: `TOTAL_ERR_…` in its last line.

    Linux, `Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats`.
    """
    match = _TOTAL.search(text)
    return int(match[1]) if match else None
