"""The health of a card, from its files: ids, error registers, event flags, device nodes.

`services.devices.hardware` reads, this module evaluates. The result is a value and, if something is
wrong, a `Problem` with a stable reason (`services.devices.reasons` lists them all). An
administrator may say which errors make nothing unhealthy.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

from services.devices.model import Fme, Port
from services.devices.reasons import FLAGS, REGISTERS
from services.names import CRASHED, ID_DIGITS, canonical_id
from services.process.errors import InvalidSettings
from services.process.problem import Problem
from services.process.text import listing

PORT_DISABLED: Final = "port-disabled"
PORT_WITHOUT_DRIVER: Final = "port-without-driver"
_UNUSABLE: Final = frozenset({PORT_DISABLED, PORT_WITHOUT_DRIVER})

_ID = re.compile(rf"[0-9a-f]{{{ID_DIGITS}}}")
_ALL_F = re.compile(r"f+")
_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,64})")


class Failure(Enum):
    """Why a file could not be read."""

    MISSING = auto()
    UNREADABLE = auto()
    """No permission, or a folder in its place."""
    BUSY = auto()
    """The driver refuses it for now."""
    DEAD = auto()
    """The device doesn't answer: an I/O error, or a pipe on which whoever waits for it hangs."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading one attribute."""

    text: str = ""
    """Its content without the blanks, newlines and NULs around it."""
    failure: Failure | None = None
    """None if it could be read."""
    detail: str = ""
    """For a failure, the system's error message."""


def evaluate_id(what: str, file: str, owner: str, reading: Reading) -> tuple[str, Problem | None]:
    """The canonical id that a file holds, or an empty string and what is wrong with it.

    `what` is the start of the reason: `afu-id` or `interface-id`.
    """
    shown_id = canonical_id(reading.text)
    if _ID.fullmatch(shown_id) and shown_id != CRASHED:
        return shown_id, None
    return "", _id_problem(what, file, owner, reading, shown_id)


def _id_problem(what: str, file: str, owner: str, reading: Reading, shown_id: str) -> Problem:
    if reading.failure is Failure.MISSING:
        return Problem(f"{what}-missing", f"{owner} has no {file}")
    if reading.failure is Failure.BUSY and what == "afu-id":
        return Problem(PORT_DISABLED, port_disabled(owner))
    if reading.failure is not None:
        text = f"{file} of {owner} can't be read: {reading.detail}"
        return Problem(f"{what}-unreadable", text)
    if not shown_id:
        return Problem(f"{what}-empty", f"{file} of {owner} is empty")
    if _ALL_F.fullmatch(shown_id):
        text = f"{file} of {owner} is all f: the card's firmware has crashed"
        return Problem(f"{what}-all-f", text)
    text = f"{file} of {owner} is not {ID_DIGITS} hex digits: {_shown(reading)}"
    return Problem(f"{what}-invalid", text)


def port_disabled(port: str) -> str:
    """The sentence for a port whose function the driver doesn't show (EBUSY)."""
    # After a failed programming the drivers don't enable the port, nor after a reset or a clearing
    # of errors that the port does not acknowledge. From then on they count one disabling too many:
    # further programmings work and leave it disabled, a reset does too (`fpga_region_program_fpga`
    # in `drivers/fpga/fpga-region.c`, `disable_count` in `drivers/fpga/dfl-afu-main.c`; seen with
    # Linux 6.1 and 6.12).
    return (
        f"{port} is disabled: unless it is being programmed now, its driver keeps it so after a"
        f" failed programming or reset, until it is rebound: accelbind fpga rebind {port}"
    )


def port_without_driver(port: str) -> Problem:
    """The problem of a port that no driver serves."""
    # The in-tree driver adds the device of a released port a second time when it is assigned
    # (`dfl_fpga_cdev_assign_port`), and Linux gives a driver only to devices that are new (`dead`
    # in `drivers/base/dd.c`; seen with Linux 6.1 and 6.12). Later ones make a new
    # device.
    return Problem(
        PORT_WITHOUT_DRIVER,
        f"{port} has no driver, as after it was released and assigned, until the driver of its card"
        f" is rebound: accelbind fpga rebind {port}",
    )


def unusable(port: Port) -> str:
    """Why a port can't be used until its card's driver is rebound; empty if it can."""
    return next((each.text for each in port.problems if each.code in _UNUSABLE), "")


@dataclass(frozen=True, slots=True)
class RegisterStatus:
    """The state of a register."""

    value: int | None = None
    """Its value, None if it can't be read."""
    problem: Problem | None = None
    """Set if it makes its owner unhealthy."""
    remark: Problem | None = None
    """Set if it is worth reporting but makes nothing unhealthy."""


def evaluate_register(reason: str, file: str, owner: str, reading: Reading) -> RegisterStatus:
    """Evaluate an error register or an event flag; both are hex text, zero is good."""
    if reading.failure is Failure.MISSING:
        return RegisterStatus()  # older cards lack some
    unreadable = f"{reason}-unreadable"
    if reading.failure is not None:
        text = f"{file} of {owner} can't be read: {reading.detail}"
        problem = Problem(unreadable, text)
        # A lack of permission says nothing of the card; an I/O error, that it doesn't answer.
        is_dead = reading.failure in (Failure.BUSY, Failure.DEAD)
        return RegisterStatus(problem=problem) if is_dead else RegisterStatus(remark=problem)
    value = register_value(reading.text)
    if value is None:
        text = f"{file} of {owner} is not a hex number: {_shown(reading)}"
        return RegisterStatus(remark=Problem(unreadable, text))
    if value == 0:
        return RegisterStatus(value)
    return RegisterStatus(value, problem=Problem(reason, f"{file} of {owner} reads {value:#x}"))


def register_value(text: str) -> int | None:
    """The value of a register, which drivers write in hex, with or without `0x`."""
    match = _HEX.fullmatch(text)
    return int(match[1], 16) if match else None


def _shown(reading: Reading) -> str:
    """The content of a file, short enough for a message."""
    return repr(reading.text[:48])


def no_fme(owner: str, physfn: str | None) -> Problem:
    """The problem of a port whose card has no engine."""
    where = f"its physical function {physfn}" if physfn else "its card"
    return Problem("no-fme", f"{owner} can't be programmed or named: {where} has no FME")


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
