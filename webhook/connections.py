"""Count connections and the memory they hold, and close connections at a limit.

Any pod in the cluster can connect to the webhook, so everything that a client can make the process
hold is limited here.

A connection is a newcomer until one of its requests was answered, and known from then on: an API
server keeps its connections open. While newcomers have more than a quarter of a resource, the first
of them to arrive is closed first; otherwise a known connection is, first those without a request.
So neither kind can push out the other completely.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import structlog

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
LEAST_SECONDS: Final = 1.0
"""How long each connection has for its handshake and request before a new one may push it out. New
ones wait in the kernel's queue until then, so a flood can't push out an API server's connection
before its request has arrived."""
OTHER_DESCRIPTORS: Final = 200
"""File descriptors for everything but clients: mappings, certificates, metrics, the API server."""
QUIET_SECONDS: Final = 10.0
"""Time without a closed connection after which a series of them has ended, for the log."""

log = structlog.get_logger(component="server")


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
    """Limits for all clients together; the defaults add up to less than 110 MiB."""

    connections: int = 400
    """Open connections, including those in the handshake."""
    handshakes: int = 200
    held_bytes: int = 24 * MEBIBYTE
    """Unfinished requests, answers that clients do not read, and TLS buffers."""
    handshake_seconds: float = 10.0
    request_seconds: float = 30.0
    """Time for a request to arrive, or for an answer to be read."""
    pipelined: int = 8
    """Requests on one connection that wait for the answer to an earlier one."""


def limits_for(max_body: int, descriptors: int) -> Limits:
    """Return the limits for bodies of a size, in a process with so many descriptors (-1: any)."""
    usual = Limits()
    connections = usual.connections
    if descriptors >= 0:
        connections = max(16, min(connections, descriptors - OTHER_DESCRIPTORS))
    return Limits(
        connections,
        handshakes=min(usual.handshakes, connections // 2),
        held_bytes=max(usual.held_bytes, 4 * max_body),
    )


@dataclass(slots=True, eq=False)
class Connection:
    """What one connection makes the process hold, and until when its client owes something."""

    client: str
    """Its address."""
    abort: Callable[[], None]
    """Closes it at once."""
    accepted_at: float
    deadline: float | None
    """When the client must have done what it owes: a handshake, a request, the rest of one, or
    reading an answer. None while it owes nothing."""
    secured: bool = False
    """Whether its handshake is done."""
    known: bool = False
    """Whether one of its requests was answered, or its client showed a valid certificate."""
    busy: bool = False
    """Whether a request has begun that is not answered."""
    held: int = 0
    """Bytes of its unfinished request or unread answer."""
    buffers: int = 0
    """Bytes that TLS and TCP keep for it."""


class ConnectionLimiter:
    """The connections of a server, in the order in which they are closed.

    A connection moves to the end when its request begins and when it was answered.
    """

    def __init__(
        self, limits: Limits | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits or Limits()
        self.clock = clock
        self.held_bytes = 0
        self.evicted: dict[str, int] = dict.fromkeys(EvictionReason, 0)
        """Connections closed since the start, by reason."""
        self._open: dict[Connection, None] = {}
        self._series: Counter[str] = Counter()
        self._last_evicted = 0.0

    @property
    def handshakes(self) -> int:
        """Number of connections in the TLS handshake."""
        return sum(not connection.secured for connection in self._open)

    @property
    def connections(self) -> int:
        """Number of connections."""
        return len(self._open)

    def seconds_until_room(self) -> float:
        """Return how long the next connection must wait before it may push out another one."""
        leaving = self._first_to_go()
        return 0.0 if leaving is None else leaving[0].accepted_at + LEAST_SECONDS - self.clock()

    def open(self, client: str, abort: Callable[[], None]) -> Connection:
        """Add a connection that starts its handshake."""
        if (leaving := self._first_to_go()) is not None:
            self.evict(*leaving)
        now = self.clock()
        connection = Connection(client, abort, now, now + self.limits.handshake_seconds)
        self._open[connection] = None
        return connection

    def secure(self, connection: Connection, *, known: bool) -> None:
        """Record a finished handshake; `known` if the client showed a valid certificate."""
        connection.secured, connection.known = True, known
        self.await_client(connection)

    def await_client(self, connection: Connection) -> None:
        """Give the client time for what it owes."""
        connection.deadline = self.clock() + self.limits.request_seconds

    def start(self, connection: Connection) -> None:
        """Record that a request begins to arrive."""
        self.await_client(connection)
        if not connection.busy:
            connection.busy = True
            self._move_to_end(connection)

    def hold(self, connection: Connection, size: int) -> None:
        """Add bytes that a connection holds."""
        if connection in self._open:
            connection.held += size
            self._add(size)

    def buffer(self, connection: Connection, size: int) -> None:
        """Record bytes that arrived at once, for their buffers."""
        self._buffer(connection, BUFFER_FACTOR * size - CONNECTION_BYTES)

    def finish(self, connection: Connection) -> None:
        """Record that a request was answered; the answer to a large one stays in buffers."""
        held, connection.held = connection.held, 0
        connection.known, connection.busy = True, False
        self._move_to_end(connection)
        if connection in self._open:
            self.held_bytes -= held
        if held > CONNECTION_BYTES:
            self._buffer(connection, ANSWER_FACTOR * held)

    def close(self, connection: Connection) -> None:
        """Remove a connection, if it is there."""
        if connection in self._open:
            del self._open[connection]
            self.held_bytes -= connection.held + connection.buffers
        # It refers to the protocol, which refers to the connection. Without the cycle both are
        # freed now, with the body and the TLS buffers, and not by the next garbage collection.
        connection.abort = _do_nothing

    def evict(self, connection: Connection, reason: EvictionReason) -> None:
        """Close a connection at once, and count it; log the first of a series."""
        abort = connection.abort
        self.close(connection)
        abort()
        if not self._series:
            log.warning(
                "closing connections to stay within limits",
                reason=reason,
                connections=self.connections,
                handshakes=self.handshakes,
                held_bytes=self.held_bytes,
                client=connection.client,
            )
        self.evicted[reason] += 1
        self._series[reason] += 1
        self._last_evicted = self.clock()

    def sweep(self) -> None:
        """Close connections past their deadline; log the end of a series of closed connections."""
        now = self.clock()
        for connection in list(self._open):
            if connection.deadline is not None and now > connection.deadline:
                self.evict(connection, EvictionReason.SLOW)
        if self._series and now - self._last_evicted >= QUIET_SECONDS:
            log.warning("connections are within limits again", closed=dict(self._series))
            self._series.clear()

    def _first_to_go(self) -> tuple[Connection, EvictionReason] | None:
        """Return the connection that one more would push out; None if there is room."""
        if self.handshakes >= self.limits.handshakes:
            oldest = next(connection for connection in self._open if not connection.secured)
            return oldest, EvictionReason.HANDSHAKES
        if len(self._open) >= self.limits.connections:
            return self._choose(lambda _: 1), EvictionReason.CONNECTIONS
        return None

    def _move_to_end(self, connection: Connection) -> None:
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def _buffer(self, connection: Connection, size: int) -> None:
        more = size - connection.buffers
        if more > 0 and connection in self._open:
            connection.buffers = size
            self._add(more)

    def _add(self, size: int) -> None:
        self.held_bytes += size
        while self.held_bytes > self.limits.held_bytes:
            leaving = self._choose(lambda connection: connection.held + connection.buffers)
            self.evict(leaving, EvictionReason.MEMORY)

    def _choose(self, share: Callable[[Connection], int]) -> Connection:
        """Return who is closed first: of those with a share of a resource."""
        holders = [connection for connection in self._open if share(connection)]
        newcomers = [connection for connection in holders if not connection.known]
        known = [connection for connection in holders if connection.known]
        of_newcomers = sum(map(share, newcomers))
        if newcomers and NEWCOMERS_SHARE * of_newcomers > sum(map(share, holders)):
            return newcomers[0]
        return next((connection for connection in known if not connection.busy), known[0])


def _do_nothing() -> None:
    """Close nothing: the connection is closed."""
