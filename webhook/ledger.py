"""Which connections there are, what memory they hold, and which of them must go.

Anybody in the cluster can connect to the webhook, so everything that a client can make the process
hold is bounded here. `ConnectionLedger` only counts and decides; `webhook.limits` closes what it
names.

States of a connection:

- handshake: accepted, TLS is not done.
- waiting: TLS is done, and no request has been answered yet.
- idle: a request was answered, and no other has begun.
- busy: a request was answered, and another one is arriving or being answered.

The first two are newcomers, the others are known: an API server keeps its connections open. The
oldest newcomers are closed first, but only while newcomers have more than a quarter of what there
is. So neither new connections nor known ones can push out all of the other kind.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, TypeAlias, TypeVar

KIBIBYTE: Final = 1024
MEBIBYTE: Final = 1024 * KIBIBYTE
CONNECTION_BYTES: Final = 64 * KIBIBYTE
"""What an open TLS connection costs that has sent little: measured, 53 to 62 KiB."""
BUFFER_FACTOR: Final = 3
"""Bytes of buffers for each byte that came at once: TLS keeps that much until the end of the
connection (its read buffer, and a BIO that grows by a third and never shrinks)."""
ANSWER_FACTOR: Final = 2
"""Bytes of an answer for each byte of a large request. TCP keeps an answer until the client reads
it, which an event loop doesn't show, so it counts until the end of the connection."""
NEWCOMERS_SHARE: Final = 4
"""Newcomers may have one part in so many before they are closed ahead of known connections."""

Key = TypeVar("Key")
Evicted: TypeAlias = list[tuple[Key, "EvictionReason"]]


class EvictionReason(StrEnum):
    """Why a connection was closed before its client was done; the values are metric labels."""

    CONNECTIONS = "connections"
    """There were too many connections."""
    HANDSHAKES = "handshakes"
    """Too many connections had not finished their TLS handshake."""
    MEMORY = "memory"
    """Unfinished requests and buffers held too much memory."""
    SLOW = "slow"
    """A handshake, a request, or the reading of an answer took too long."""
    PIPELINED = "pipelined"
    """Too many requests came before the first one was answered."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What all clients together may have; the defaults add up to less than 110 MiB.

    Attributes:
        connections: Open connections, handshakes included.
        handshakes: Connections whose TLS handshake isn't done.
        held_bytes: Bodies of unfinished requests, answers that clients don't read, and TLS buffers.
        handshake_seconds: How long a handshake may take.
        request_seconds: How long a request may take to arrive, or an answer to be read.
        pipelined: Requests of one connection that wait for an answer to an earlier one.
    """

    connections: int = 400
    handshakes: int = 200
    held_bytes: int = 24 * MEBIBYTE
    handshake_seconds: float = 10.0
    request_seconds: float = 30.0
    pipelined: int = 8


def limits_for(max_body: int, descriptors: int) -> Limits:
    """The limits of a process.

    Args:
        max_body: Bytes that one body may have; there is room for at least four of these.
        descriptors: How many files the process may have open; some are for other things.
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
        known: Whether a request of it was answered.
        held: Bytes of its unfinished request, or unread answer.
        buffers: Bytes that TLS and TCP keep for it.
    """

    number: int
    known: bool = False
    held: int = 0
    buffers: int = 0


@dataclass(slots=True)
class ConnectionLedger(Generic[Key]):
    """All connections of a server. Each dict is in the order in which its connections go.

    Attributes:
        limits: What they may have together.
        held_bytes: What bodies, answers and buffers take.
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
        """Connections whose handshake isn't done."""
        return len(self._handshakes)

    @property
    def connections(self) -> int:
        """All connections."""
        return len(self._entries)

    def open(self, key: Key) -> Evicted[Key]:
        """Adds a connection whose handshake begins; returns which one must be closed for it."""
        leaving = self.first_to_go()
        evicted = [] if leaving is None else [self._evict(*leaving)]
        self._number += 1
        self._entries[key] = _Entry(self._number)
        self._handshakes[key] = None
        return evicted

    def first_to_go(self) -> tuple[Key, EvictionReason] | None:
        """Returns the connection that one more would push out; None if there is room."""
        if len(self._handshakes) >= self.limits.handshakes:
            return next(iter(self._handshakes)), EvictionReason.HANDSHAKES
        if len(self._entries) >= self.limits.connections:
            return self._oldest(), EvictionReason.CONNECTIONS
        return None

    def secure(self, key: Key, *, known: bool = False) -> None:
        """The handshake is done; `known` if it has shown who the client is."""
        if (entry := self._entries.get(key)) is None:
            return
        del self._handshakes[key]
        entry.known = known
        (self._idle if known else self._waiting)[key] = None

    def begin(self, key: Key) -> None:
        """A request begins to arrive."""
        if key in self._idle:
            del self._idle[key]
            self._busy[key] = None

    def hold(self, key: Key, size: int) -> Evicted[Key]:
        """A connection holds so many more bytes; returns which ones must be closed for that."""
        if (entry := self._entries.get(key)) is None:
            return []
        entry.held += size
        return self._add(key, entry, size)

    def buffer(self, key: Key, size: int) -> Evicted[Key]:
        """So many bytes came at once; returns which connections must be closed for the buffers."""
        entry = self._entries.get(key)
        more = 0 if entry is None else BUFFER_FACTOR * size - CONNECTION_BYTES - entry.buffers
        if entry is None or more <= 0:
            return []
        entry.buffers += more
        return self._add(key, entry, more)

    def finish(self, key: Key, *, known: bool = True) -> Evicted[Key]:
        """No request is unfinished any more; `known` if one was answered in full.

        Returns which connections must be closed for its answer.
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
        """A connection is no more; nothing happens if it is not in the ledger."""
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
    """Counts evictions, and knows when a series of them begins and ends.

    Attributes:
        counts: Evictions since the start, by reason.
    """

    QUIET_SECONDS: Final = 10.0

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(EvictionReason, 0)
        self._before: dict[str, int] | None = None
        self._last = 0.0

    def count(self, reason: EvictionReason, now: float) -> bool:
        """Counts one; returns whether it is the first of a series."""
        begins = self._before is None
        if self._before is None:
            self._before = dict(self.counts)
        self.counts[reason] += 1
        self._last = now
        return begins

    def ended(self, now: float) -> dict[str, int]:
        """The counts of a series that has just ended, by reason; empty while none has."""
        before = self._before
        if before is None or now - self._last < self.QUIET_SECONDS:
            return {}
        self._before = None
        return {
            reason: count - before[reason]
            for reason, count in self.counts.items()
            if count > before[reason]
        }
