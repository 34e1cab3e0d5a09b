"""Count connections and the memory they hold, and decide which one is closed at a limit.

Any pod in the cluster can connect to the webhook, so everything that a client can make the process
hold is limited here. `ConnectionLedger` only counts and decides; `webhook.limits` closes.

States of a connection:

- handshake: accepted; the TLS handshake is not done.
- waiting: the handshake is done; no request has been answered yet.
- idle: a request was answered; no other has begun.
- busy: a request was answered; another one is arriving or being answered.

Connections in the first two states are newcomers, the others are known: an API server keeps its
connections open. The oldest newcomers are closed first, while newcomers have more than a quarter of
a resource. So neither kind can push out the other completely.
"""

from dataclasses import dataclass, field
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
        descriptors: Files that the process may open; 200 of them are for other uses.
    """
    default = Limits()
    connections = max(16, min(default.connections, descriptors - 200))
    return Limits(
        connections=connections,
        handshakes=min(default.handshakes, max(8, connections // 2)),
        held_bytes=max(default.held_bytes, 4 * max_body),
    )


@dataclass(slots=True)
class _Entry:
    """One connection.

    Attributes:
        number: Its place in the order of opening.
        known: Whether one of its requests was answered.
        held: Bytes of its unfinished request or unread answer.
        buffers: Bytes that TLS and TCP keep for it.
    """

    number: int
    known: bool = False
    held: int = 0
    buffers: int = 0


@dataclass(slots=True)
class ConnectionLedger(Generic[Key]):
    """All connections of a server. Each dict has the connection that is closed first at its start.

    Attributes:
        limits: Limits for all connections together.
        held_bytes: Memory of requests, answers and buffers.
    """

    limits: Limits = field(default_factory=Limits)
    held_bytes: int = 0
    _newcomer_bytes: int = 0
    _number: int = 0
    _entries: dict[Key, _Entry] = field(default_factory=dict)
    _handshakes: dict[Key, None] = field(default_factory=dict)
    _waiting: dict[Key, None] = field(default_factory=dict)
    _idle: dict[Key, None] = field(default_factory=dict)
    _busy: dict[Key, None] = field(default_factory=dict)
    _holding_newcomers: dict[Key, None] = field(default_factory=dict)
    _holding_known: dict[Key, None] = field(default_factory=dict)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    @property
    def handshakes(self) -> int:
        """Number of connections in the TLS handshake."""
        return len(self._handshakes)

    @property
    def connections(self) -> int:
        """Number of connections."""
        return len(self._entries)

    def open(self, key: Key) -> Evicted[Key]:
        """Add a connection that starts its handshake; return which one must be closed for it."""
        leaving = self.first_to_go()
        evicted = [] if leaving is None else [self._evict(*leaving)]
        self._number += 1
        self._entries[key] = _Entry(self._number)
        self._handshakes[key] = None
        return evicted

    def first_to_go(self) -> tuple[Key, EvictionReason] | None:
        """Return the connection that one more would push out; None if there is room."""
        if len(self._handshakes) >= self.limits.handshakes:
            return next(iter(self._handshakes)), EvictionReason.HANDSHAKES
        if len(self._entries) >= self.limits.connections:
            return self._oldest(), EvictionReason.CONNECTIONS
        return None

    def secure(self, key: Key, *, known: bool = False) -> None:
        """Record a finished handshake; `known` if the client showed a valid certificate."""
        if (entry := self._entries.get(key)) is None:
            return
        del self._handshakes[key]
        entry.known = known
        (self._idle if known else self._waiting)[key] = None

    def start(self, key: Key) -> None:
        """Record that a request begins to arrive."""
        if key in self._idle:
            del self._idle[key]
            self._busy[key] = None

    def hold(self, key: Key, size: int) -> Evicted[Key]:
        """Add bytes that a connection holds; return which connections must be closed for them."""
        if (entry := self._entries.get(key)) is None:
            return []
        entry.held += size
        return self._add(key, entry, size)

    def buffer(self, key: Key, size: int) -> Evicted[Key]:
        """Record bytes that arrived at once; return which must be closed for their buffers."""
        entry = self._entries.get(key)
        more = 0 if entry is None else BUFFER_FACTOR * size - CONNECTION_BYTES - entry.buffers
        if entry is None or more <= 0:
            return []
        entry.buffers += more
        return self._add(key, entry, more)

    def finish(self, key: Key, *, known: bool = True) -> Evicted[Key]:
        """Record that no request is unfinished; `known` if one was answered completely.

        Returns which connections must be closed for the answer.
        """
        if (entry := self._entries.get(key)) is None:
            return []
        self._remove(key, entry)
        if entry.held > CONNECTION_BYTES:
            entry.buffers = max(entry.buffers, ANSWER_FACTOR * entry.held)
        entry.held = 0
        if known or entry.known:
            entry.known = True
            self._waiting.pop(key, None)
            self._busy.pop(key, None)
            self._idle.pop(key, None)
            self._idle[key] = None
        return self._add(key, entry, entry.buffers) if entry.buffers else []

    def close(self, key: Key) -> None:
        """Remove a connection, if it is there."""
        if (entry := self._entries.pop(key, None)) is None:
            return
        self._remove(key, entry)
        for state in (self._handshakes, self._waiting, self._idle, self._busy):
            state.pop(key, None)

    def _add(self, key: Key, entry: _Entry, size: int) -> Evicted[Key]:
        self.held_bytes += size
        if entry.known:
            self._holding_known.setdefault(key)
        else:
            self._newcomer_bytes += size
            self._holding_newcomers.setdefault(key)
        evicted: Evicted[Key] = []
        while self.held_bytes > self.limits.held_bytes:
            evicted.append(self._evict(self._first_holder_to_go(), EvictionReason.MEMORY))
        return evicted

    def _remove(self, key: Key, entry: _Entry) -> None:
        size = entry.held + entry.buffers
        self.held_bytes -= size
        if not entry.known:
            self._newcomer_bytes -= size
        self._holding_newcomers.pop(key, None)
        self._holding_known.pop(key, None)

    def _evict(self, key: Key, reason: EvictionReason) -> tuple[Key, EvictionReason]:
        self.close(key)
        return key, reason

    def _first_holder_to_go(self) -> Key:
        newcomers, known = self._holding_newcomers, self._holding_known
        if known and NEWCOMERS_SHARE * self._newcomer_bytes <= self.held_bytes:
            return next(iter(known))
        return next(iter(newcomers or known))

    def _oldest(self) -> Key:
        newcomers = len(self._handshakes) + len(self._waiting)
        known = self._idle or self._busy
        if known and NEWCOMERS_SHARE * newcomers <= len(self._entries):
            return next(iter(known))
        heads = [next(iter(state)) for state in (self._handshakes, self._waiting) if state]
        return min(heads, key=lambda key: self._entries[key].number)


class EvictionLog:
    """Counts closed connections, and detects when a series of them begins and ends.

    Attributes:
        counts: Closed connections since the start, by reason.
    """

    QUIET_SECONDS: Final = 10.0

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(EvictionReason, 0)
        self._before: dict[str, int] | None = None
        self._last = 0.0

    def count(self, reason: EvictionReason, now: float) -> bool:
        """Count one; return whether it is the first of a series."""
        begins = self._before is None
        if self._before is None:
            self._before = dict(self.counts)
        self.counts[reason] += 1
        self._last = now
        return begins

    def ended(self, now: float) -> dict[str, int]:
        """Return the counts of a series that has just ended, by reason; else nothing."""
        before = self._before
        if before is None or now - self._last < self.QUIET_SECONDS:
            return {}
        self._before = None
        return {
            reason: count - before[reason]
            for reason, count in self.counts.items()
            if count > before[reason]
        }
