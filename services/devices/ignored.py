"""Errors that make nothing unhealthy, because an administrator says so."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from services.devices.model import Fme, Port
from services.devices.reasons import FLAGS, REGISTERS
from services.process.errors import InvalidSettings
from services.process.problem import Problem
from services.process.text import listing

Ignored: TypeAlias = Mapping[str, int | None]
"""Bits of errors that make nothing unhealthy, by reason; None means all bits. Some boards have a
bit that is always set."""

_MASKED: Final = re.compile(r"([a-z0-9-]+)=(0[xX][0-9a-fA-F]{1,16})")


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


def ignored_problems(part: Fme | Port, ignored_errors: Ignored) -> tuple[Problem, ...]:
    """The problems of a part that are ignored."""
    values: Mapping[str, int | None] = (
        dict(part.errors) if isinstance(part, Fme) else {"port-errors": part.errors}
    )
    ignored = []
    for problem in part.problems:
        if problem.code in ignored_errors:
            mask, value = ignored_errors[problem.code], values.get(problem.code)
            # All bits that are set must be in the mask; those of a card that doesn't answer aren't.
            if mask is None or (value is not None and not value & ~mask):
                ignored.append(problem)
    return tuple(ignored)
