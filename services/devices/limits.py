"""What an administrator tolerates in a card: how hot, how much power, which errors.

A card reports by itself that it is too hot or broken (`services.devices.health`). Limits make one
unhealthy that has reported nothing; ignored errors make nothing unhealthy.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from services.devices.model import Fme, Port, Problem
from services.devices.reasons import FLAGS, REGISTERS
from services.devices.sensors import CardSensors, Gauge
from services.process.errors import InvalidSettings
from services.process.text import listing

TOO_HOT: Final = "too-hot"
TOO_MUCH_POWER: Final = "too-much-power"

RELIEF_CELSIUS: Final = 5.0
"""How far below its limit a temperature is fine again."""
RELIEF_SHARE: Final = 0.05
"""How far below its limit a power is fine again, as a share of the limit."""

_MASKED: Final = re.compile(r"([a-z0-9-]+)=(0[xX][0-9a-fA-F]{1,16})")

_SHOWN: Final = 3
"""Sensors that a message names."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is tolerated."""

    max_temperature: float | None = None
    """°C at the hottest place of a card; None: only what the card reports counts."""
    max_power: float | None = None
    """W; None: only what the card reports counts."""
    ignored: Mapping[str, int | None] = field(default_factory=dict)
    """Bits of errors that make nothing unhealthy, by reason; None means all bits. Some boards have
    a bit that is always set."""

    @property
    def measure(self) -> bool:
        """Whether there is a limit for what sensors measure."""
        return self.max_temperature is not None or self.max_power is not None


def parse_ignored(words: Iterable[str]) -> dict[str, int | None]:
    """The errors to ignore: bits by reason, None for all bits.

    `port-errors` is all errors of a register or flag, `port-errors=0x8` some bits of a register.
    """
    ignored: dict[str, int | None] = {}
    for word in words:
        masked = _MASKED.fullmatch(word)
        reason = masked[1] if masked else word
        if reason not in REGISTERS and (masked or reason not in FLAGS):
            raise InvalidSettings(
                f"{word!r:.60} is not an error that can be ignored: use one of"
                f" {listing([*REGISTERS, *FLAGS], last='or')}, or some bits of the first"
                f" {len(REGISTERS)}, as in port-errors=0x8"
            )
        known = ignored.get(reason, 0)
        ignored[reason] = None if masked is None or known is None else known | int(masked[2], 16)
    return ignored


def limit_problems(
    readings: Iterable[CardSensors], limits: Limits, before: Mapping[str, Problem] | None = None
) -> dict[str, Problem]:
    """The problem of each card that is beyond a limit, by its name; heat comes before power.

    A card that was beyond its limit `before` keeps that problem until it is well below, or its
    sensor is gone.
    """
    known, problems = before or {}, dict[str, Problem]()
    power_relief = RELIEF_SHARE * (limits.max_power or 0)
    for sensors in readings:
        last = known.get(sensors.card)
        for reason, gauges, limit, relief, flag, unit in (
            (TOO_MUCH_POWER, sensors.powers, limits.max_power, power_relief, "--max-power", "W"),
            (
                TOO_HOT,
                sensors.temperatures,
                limits.max_temperature,
                RELIEF_CELSIUS,
                "--max-temperature",
                "°C",
            ),
        ):
            if limit is None:
                continue
            if over := _beyond(gauges, limit):
                text = f"{over} of {sensors.card} went beyond {flag}, {limit:g} {unit}"
                problems[sensors.card] = Problem(reason, text)
            # Damping can't replace this: sensors are read less often than cards, so a card at its
            # limit would be healthy between two reads.
            elif last and last.reason == reason and _beyond(gauges, limit - relief):
                problems[sensors.card] = last
    return problems


def _beyond(gauges: Iterable[Gauge], limit: float) -> str:
    """The sensors beyond a limit."""
    # Without their values: a message that changes is logged again.
    names = sorted(each.label for each in gauges if each.value > limit)
    return listing(names, most=_SHOWN) if names else ""


def ignored_problems(part: Fme | Port, limits: Limits) -> tuple[Problem, ...]:
    """The problems of a part that are ignored."""
    values: Mapping[str, int | None] = (
        dict(part.errors) if isinstance(part, Fme) else {"port-errors": part.errors}
    )
    ignored = []
    for problem in part.problems:
        if problem.reason in limits.ignored:
            mask, value = limits.ignored[problem.reason], values.get(problem.reason)
            # All bits that are set must be in the mask; those of a card that doesn't answer aren't.
            if mask is None or (value is not None and not value & ~mask):
                ignored.append(problem)
    return tuple(ignored)
