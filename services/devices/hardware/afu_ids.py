"""Which AFU is behind each virtual function of an OFS card: its GUID stands in BAR0.

A function that a container has keeps its last value. One that is free is read again after
`INTERVAL`; at once if it is new, or was in use.
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from services.devices.model import Inventory, VirtualFunction
from services.devices.ofs import afu_id, in_use
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError
from services.process.problem import Problem

PROGRAM: Final = Path(__file__).with_name("bar0.py")
PATIENCE: Final = 10.0
"""Seconds within which a child must answer; it takes some hundredths, on a busy node seconds."""
INTERVAL: Final = 60.0
"""Seconds after which a free function is read again: nothing tells that a card was programmed from
outside."""

_WORDS: Final = re.compile(r"[0-9a-f]{16}(?: [0-9a-f]{16}){2}")


@dataclass(frozen=True, slots=True)
class Bar:
    """The BAR0 of a function."""

    address: str
    path: str
    """Of its file, below the root."""
    inode: int | None
    """Of its folder in sysfs."""


Answer = str | Problem


@dataclass(frozen=True, slots=True)
class _Known:
    answer: Answer
    at: float
    """When it was read; minus infinity for a function that has been in use since."""


class AfuIds:
    """Finds out the AFUs behind functions, again and again; `calls` run the children."""

    def __init__(
        self,
        root: Path,
        calls: BlockingCalls,
        *,
        patience: float = PATIENCE,
        program: Path = PROGRAM,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = str(root).rstrip("/")
        self._calls = calls
        self._patience = patience
        self._program = program
        self._clock = clock
        self._known: dict[Bar, _Known] = {}

    async def identify(self, inventory: Inventory, held: Collection[str]) -> Inventory:
        """The same with the AFUs of OFS cards; `held` are addresses of functions in use."""
        answers = await self.answers(_bars(inventory), held)
        return _with(inventory, answers) if answers else inventory

    async def answers(self, bars: Sequence[Bar], held: Collection[str]) -> dict[str, Answer]:
        """The AFUs behind functions, by address."""
        if not bars and not self._known:
            return {}
        known: dict[Bar, _Known] = {}
        due = self._clock() - INTERVAL
        for bar in bars:
            last = self._known.get(bar)
            # One that a container has may be in a reset.
            if bar.address not in held and (last is None or last.at <= due):
                try:
                    answer: Answer = await self._calls.run(
                        bar.path,
                        partial(self._read, bar),
                        timeout=self._patience,
                        what=f"reading {bar.path}",
                    )
                except HardwareError as error:
                    answer = _unreadable(bar, str(error))
                known[bar] = _Known(answer, self._clock())
            elif last is not None:
                in_use_since = float("-inf") if bar.address in held else last.at
                known[bar] = replace(last, at=in_use_since)
        self._known = known
        return {
            bar.address: known[bar].answer if bar in known else in_use(bar.address) for bar in bars
        }

    def _read(self, bar: Bar) -> Answer:
        """Read a function in a child of its own."""
        # A function that takes its reader with it harms no other.
        command = [sys.executable, "-I", "-S", str(self._program), f"{self._root}{bar.path}"]
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                command, stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
        except OSError as error:
            raise HardwareError(f"no process for it: {error}") from error
        line = done.stdout.decode(errors="replace").strip()
        if _WORDS.fullmatch(line):
            return afu_id(bar.address, [int(word, 16) for word in line.split()])
        ended = done.returncode
        name = signal.Signals(-ended).name if ended < 0 else f"exit code {ended}"
        return _unreadable(bar, line or f"its reader ended with {name}: has the card gone?")


def _unreadable(bar: Bar, why: str) -> Problem:
    return Problem("function-unreadable", f"{bar.path} can't be read: {why[:200]}")


def _bars(inventory: Inventory) -> list[Bar]:
    """The BARs to read: of functions that a container can have."""
    return [
        Bar(function.pci.address, function.bar, function.inode)
        for card in inventory.cards
        for function in card.functions or ()
        if not function.problems
    ]


def _with(inventory: Inventory, answers: Mapping[str, Answer]) -> Inventory:
    cards = (
        replace(card, functions=tuple(_of_function(each, answers) for each in card.functions))
        if card.functions
        else card
        for card in inventory.cards
    )
    return replace(inventory, cards=tuple(cards))


def _of_function(function: VirtualFunction, answers: Mapping[str, Answer]) -> VirtualFunction:
    answer = answers.get(function.pci.address, "")
    if isinstance(answer, Problem):
        return replace(function, problems=(answer,))
    return replace(function, afu_id=answer)
