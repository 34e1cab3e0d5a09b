"""Count connections and the memory they hold, and decide which one is closed at a limit.

Any pod in the cluster can connect to the webhook, so everything that a client can make the process
hold is limited here. `ConnectionLedger` only counts and decides; `webhook.limits` closes.

A connection is a newcomer until one of its requests was answered, and known from then on: an API
server keeps its connections open. While newcomers have more than a quarter of a resource, the first
of them to arrive is closed first; otherwise a known connection is, first those without a request.
So neither kind can push out the other completely.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeAlias, TypeVar

KIBIBYTE: Final = 1024
MEBIBYTE: Final = 1024 * KIBIBYTE
CONNECTION_BYTES: Final = 64 * KIBIBYTE
"""Memory of an open TLS connection that has sent little: measured, 53 to 62 KiB."""
BUFFER_FACTOR: Final = 3
"""Bytes of buffers for each byte that arrived at once. TLS keeps them until the connection closes:
a read buffer, and a BIO that grows by a third and never shrinks."""
ANSWER_FACTOR: Final = 2
"""Bytes of an answer for each byte of a large request. TCP keeps an answer until the client reads
it, which the event loop does not see, so it counts until the connection closes."""
NEWCOMERS_SHARE: Final = 4
"""Newcomers may have this fraction (1/4) before they are closed ahead of known connections."""

Key = TypeVar("Key")
Evicted: TypeAlias = list[tuple[Key, "EvictionReason"]]


class EvictionReason(StrEnum):
    """Why a connection was closed early; the values are metric labels."""

    CONNECTIONS = "connections"
    """There were too many connections."""
    HANDSHAKES = "handshakes"
    """Too many connections had not finished their TLS handshake."""
    MEMORY = "memory"
    """Unfinished requests and buffers held too much memory."""
    SLOW = "slow"
    """A handshake, a request, or reading an answer took too long."""
    PIPELINED = "pipelined"
    """Too many requests arrived before the first one was answered."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for all clients together; the defaults add up to less than 110 MiB.

    Attributes:
        connections: Open connections, including those in the handshake.
        handshakes: Connections in the TLS handshake.
        held_bytes: Unfinished requests, answers that clients do not read, and TLS buffers.
        handshake_seconds: Time for a handshake.
        request_seconds: Time for a request to arrive, or for an answer to be read.
        pipelined: Requests on one connection that wait for the answer to an earlier one.
    """

    connections: int = 400
    handshakes: int = 200
    held_bytes: int = 24 * MEBIBYTE
    handshake_seconds: float = 10.0
    request_seconds: float = 30.0
    pipelined: int = 8


def limits_for(max_body: int, descriptors: int) -> Limits:
    """Adapt the limits to a process.

    Args:
        max_body: Bytes of the largest body; at least four of these fit.
        descriptors: Files that the process may open, -1 for any number; 200 are for other uses.
    """
    default = Limits()
    connections = default.connections
    if descriptors >= 0:
        connections = max(16, min(connections, descriptors - 200))
    return Limits(
        connections=connections,
        handshakes=min(default.handshakes, max(8, connections // 2)),
        held_bytes=max(default.held_bytes, 4 * max_body),
    )


@dataclass(slots=True)
class _Entry:
    """One connection.

    Attributes:
        secured: Whether its handshake is done.
        known: Whether one of its requests was answered, or its client showed a valid certificate.
        busy: Whether a request has begun that is not answered.
        held: Bytes of its unfinished request or unread answer.
        buffers: Bytes that TLS and TCP keep for it.
    """

    secured: bool = False
    known: bool = False
    busy: bool = False
    held: int = 0
    buffers: int = 0


class ConnectionLedger(Generic[Key]):
    """All connections of a server, in the order in which they are closed.

    A connection moves to the end when its request begins and when it was answered.

    Args:
        limits: Limits for all connections together.

    Attributes:
        held_bytes: Memory of requests, answers and buffers.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.held_bytes = 0
        self._entries: dict[Key, _Entry] = {}

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    @property
    def handshakes(self) -> int:
        """Number of connections in the TLS handshake."""
        return sum(not entry.secured for entry in self._entries.values())

    @property
    def connections(self) -> int:
        """Number of connections."""
        return len(self._entries)

    def open(self, key: Key) -> Evicted[Key]:
        """Add a connection that starts its handshake; return which one must be closed for it."""
        leaving = self.first_to_go()
        if leaving is not None:
            self.close(leaving[0])
        self._entries[key] = _Entry()
        return [] if leaving is None else [leaving]

    def first_to_go(self) -> tuple[Key, EvictionReason] | None:
        """Return the connection that one more would push out; None if there is room."""
        if self.handshakes >= self.limits.handshakes:
            handshakes = (key for key, entry in self._entries.items() if not entry.secured)
            return next(handshakes), EvictionReason.HANDSHAKES
        if len(self._entries) >= self.limits.connections:
            return self._choose(lambda _: 1), EvictionReason.CONNECTIONS
        return None

    def secure(self, key: Key, *, known: bool = False) -> None:
        """Record a finished handshake; `known` if the client showed a valid certificate."""
        if (entry := self._entries.get(key)) is not None:
            entry.secured, entry.known = True, known

    def start(self, key: Key) -> None:
        """Record that a request begins to arrive."""
        if (entry := self._entries.get(key)) is not None and not entry.busy:
            entry.busy = True
            self._move_to_end(key)

    def hold(self, key: Key, size: int) -> Evicted[Key]:
        """Add bytes that a connection holds; return which connections must be closed for them."""
        if (entry := self._entries.get(key)) is None:
            return []
        entry.held += size
        return self._add(size)

    def buffer(self, key: Key, size: int) -> Evicted[Key]:
        """Record bytes that arrived at once; return which must be closed for their buffers."""
        entry = self._entries.get(key)
        more = 0 if entry is None else BUFFER_FACTOR * size - CONNECTION_BYTES - entry.buffers
        if entry is None or more <= 0:
            return []
        entry.buffers += more
        return self._add(more)

    def finish(self, key: Key) -> Evicted[Key]:
        """Record that a request was answered; return which must be closed for the answer."""
        if (entry := self._entries.get(key)) is None:
            return []
        answer = ANSWER_FACTOR * entry.held if entry.held > CONNECTION_BYTES else 0
        more = max(0, answer - entry.buffers)
        entry.buffers += more
        held, entry.held = entry.held, 0
        entry.known, entry.busy = True, False
        self._move_to_end(key)
        return self._add(more - held)

    def close(self, key: Key) -> None:
        """Remove a connection, if it is there."""
        if (entry := self._entries.pop(key, None)) is not None:
            self.held_bytes -= entry.held + entry.buffers

    def _move_to_end(self, key: Key) -> None:
        self._entries[key] = self._entries.pop(key)

    def _add(self, size: int) -> Evicted[Key]:
        self.held_bytes += size
        evicted: Evicted[Key] = []
        while self.held_bytes > self.limits.held_bytes:
            key = self._choose(lambda entry: entry.held + entry.buffers)
            self.close(key)
            evicted.append((key, EvictionReason.MEMORY))
        return evicted

    def _choose(self, share: Callable[[_Entry], int]) -> Key:
        """Return who is closed first: of those with a share of a resource, or else any."""
        holders = [(key, entry) for key, entry in self._entries.items() if share(entry)]
        newcomers = [(key, entry) for key, entry in holders if not entry.known]
        known = [(key, entry) for key, entry in holders if entry.known]
        of_newcomers = sum(share(entry) for _, entry in newcomers)
        of_all = of_newcomers + sum(share(entry) for _, entry in known)
        if newcomers and (not known or NEWCOMERS_SHARE * of_newcomers > of_all):
            return newcomers[0][0]
        idle = [key for key, entry in known if not entry.busy]
        return idle[0] if idle else known[0][0]


class EvictionLog:
    """Counts closed connections, and detects when a series of them begins and ends.

    Attributes:
        counts: Closed connections since the start, by reason.
    """

    QUIET_SECONDS: Final = 10.0

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(EvictionReason, 0)
        self._series: Counter[str] = Counter()
        self._last = 0.0

    def count(self, reason: EvictionReason, now: float) -> bool:
        """Count one; return whether it is the first of a series."""
        begins = not self._series
        self.counts[reason] += 1
        self._series[reason] += 1
        self._last = now
        return begins

    def ended(self, now: float) -> dict[str, int]:
        """Return the counts of a series that has just ended, by reason; else nothing."""
        if now - self._last < self.QUIET_SECONDS:
            return {}
        ended, self._series = self._series, Counter()
        return dict(ended)
