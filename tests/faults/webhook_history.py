"""What a store held when, and whether an answer follows from any of it.

The judge knows nothing of the product: names of resources are put together here.

An answer is right if it follows from a state of its namespace that held at some time between a
moment before the request (`lag`; while the API server is away, and until it is watched again, since
before it went) and the answer. And time never goes back: what follows from an old state is wrong
once an answer was there that follows from a newer one only.
"""

import base64
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.faults.webhook_load import DOMAIN, FUNCTION, Asked

LAG: Final = 1.5
"""Seconds that a change may take to the webhook, on a machine that is busy with all of this."""
KEPT: Final = 30.0
"""Seconds of states that are kept: no answer is later than that."""

Spec = Mapping[str, str]
State = Mapping[str, Spec]


@dataclass(slots=True)
class _Shelf:
    """The states of one kind in one namespace: since when, and which."""

    since: list[float] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    first: int = 0
    seen_at: list[float] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)

    def forget(self, before: float) -> None:
        """Drops states that had ended before a time."""
        old = bisect_right(self.since, before) - 1
        if old > 1000:
            self.first += old
            del self.since[:old], self.states[:old]
            kept = bisect_left(self.seen_at, before)
            del self.seen_at[: max(0, kept - 1)], self.seen[: max(0, kept - 1)]


@dataclass
class History:
    """The states of a store, and the times it was away.

    Attributes:
        lag: seconds that a change may take.
    """

    lag: float = LAG
    shelves: dict[tuple[str, str], _Shelf] = field(default_factory=dict)
    outages: list[tuple[float, float]] = field(default_factory=list)
    exact: int = 0
    """How many answers were judged while the webhook had no excuse to be late."""

    def became(self, at: float, namespace: str, kind: str, state: State) -> None:
        """Notes a state and when it began."""
        shelf = self.shelves.setdefault((namespace, kind), _Shelf())
        shelf.since.append(at)
        shelf.states.append(dict(state))
        shelf.forget(at - KEPT)

    def went(self, at: float) -> None:
        """The API server goes away."""
        if not self.outages or self.outages[-1][1] < at:
            self.outages.append((at, float("inf")))

    def came(self, at: float) -> None:
        """It is watched again."""
        self.outages[-1] = (self.outages[-1][0], at)

    def oldest(self, sent: float) -> float:
        """How old a state may be that an answer to a request of this time follows from."""
        for begun, ended in reversed(self.outages[-8:]):
            if begun <= sent <= ended + LAG:
                sent = begun
        return sent - self.lag

    def problem(self, asked: Asked) -> str:
        """What is wrong with an answer; empty if it is right."""
        shelf = self.shelves[asked.namespace, asked.kind]
        oldest = self.oldest(asked.sent)
        self.exact += oldest == asked.sent - self.lag
        start = max(0, bisect_right(shelf.since, oldest) - 1)
        end = bisect_right(shelf.since, asked.answered)
        known = bisect_right(shelf.seen_at, asked.sent)
        floor = shelf.seen[known - 1] - shelf.first if known else 0
        for number in range(start, end):
            if number >= floor and follows(asked, shelf.states[number]):
                self._saw(shelf, asked.answered, number + shelf.first)
                return ""
        late = next((n for n in range(end) if follows(asked, shelf.states[n])), None)
        when = "no state"
        if late is not None:
            newest = max(n for n in range(end) if follows(asked, shelf.states[n]))
            ended = shelf.since[newest + 1] if newest + 1 < len(shelf.since) else float("inf")
            when = f"a state that ended {asked.sent - ended:.3f} s before the request"
            when += ", after a newer one was seen" if newest >= start else ""
        return f"{asked} follows from {when} ({end - start} states could be; {oldest=})"

    def _saw(self, shelf: _Shelf, at: float, number: int) -> None:
        """Notes that from some time on no older state may be seen."""
        if shelf.seen and number <= shelf.seen[-1]:
            return
        if shelf.seen_at and at < shelf.seen_at[-1]:
            at = shelf.seen_at[-1]  # answers are judged in about the order in which they came
        shelf.seen_at.append(at)
        shelf.seen.append(number)


def follows(asked: Asked, state: State) -> bool:
    """Whether an answer is what it should be while a state holds."""
    unmapped = tuple(sorted({name for name in asked.names if name not in state}))
    if unmapped:
        return asked.refused == unmapped
    if asked.refused is not None:
        return False
    wanted = zip(asked.names, asked.units, strict=True)
    return asked.given == tuple(_given(asked.kind, state[name], units) for name, units in wanted)


def _given(kind: str, spec: Spec, units: int) -> tuple[str, int, tuple[str, ...]]:
    interface = spec["interfaceId"]
    if kind != FUNCTION:
        return f"{DOMAIN}/region-{interface}", units, ()
    afu = spec["afuId"]
    if spec["mode"] == "region":
        return f"{DOMAIN}/region-{interface}", units, (interface, afu) * units
    packed = base64.urlsafe_b64encode(bytes.fromhex(interface + afu)).decode().rstrip("=")
    return f"{DOMAIN}/af-{interface[:3]}.{afu[:3]}.{packed}", units, ()
