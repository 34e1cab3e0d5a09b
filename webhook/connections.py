"""Count the connections of all clients and what they hold, and close connections at a limit.

Any pod in the cluster can connect to the webhook. Slow clients push out each other, and a flood
does not push out an API server, which has few connections.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final

import structlog

from services.process.outage import Outage

MEBIBYTE: Final = 1024 * 1024

log = structlog.get_logger(component="server")


class EvictionReason(StrEnum):
    """Why a connection was closed early; the values are metric labels."""

    CONNECTIONS = "connections"
    """There were too many connections."""
    MEMORY = "memory"
    """Unfinished requests and unread answers were too large together."""
    SLOW = "slow"
    """A handshake, a request, or reading its answer took too long."""


class Phase(Enum):
    """What a connection is waiting for: in this order, and then for the next HEAD."""

    HANDSHAKE = "the TLS handshake"
    HEAD = "the first request, or the rest of a request's head"
    BODY = "the request being read"
    TURN = "its turn to be answered, which is the webhook's to give"
    ANSWER = "its answer being read"
    IDLE = "the next request"


UNANSWERED: Final = (Phase.BODY, Phase.TURN, Phase.ANSWER)
"""The phases from a request's head to the end of its answer."""


@dataclass(slots=True, eq=False)
class Connection:
    """One client's connection."""

    client: str
    """The client's address."""
    since: float
    """When its phase began."""
    close: Callable[[], object] = field(init=False)
    """Closes it at once."""
    phase: Phase = Phase.HANDSHAKE
    held: int = 0
    """Bytes of its unfinished request or unread answer."""

    @property
    def has_begun(self) -> bool:
        """Whether it has a request that is not answered yet, or only a part of one."""
        return self.phase in UNANSWERED or (self.phase is Phase.HEAD and self.held > 0)


class Connections:
    """The open connections of a server.

    Attributes:
        held_bytes: Bytes of all unfinished requests and unread answers.
        evicted: Number of connections closed at a limit, by reason.
    """

    def __init__(
        self,
        *,
        most: int = 400,  # a TLS connection costs about 60 KiB, its socket's buffers up to 64
        most_held: int = 24 * MEBIBYTE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.held_bytes = 0
        self.evicted: dict[str, int] = dict.fromkeys(EvictionReason, 0)
        self._most = most
        self._most_held = most_held
        self.clock = clock
        self._open: dict[Connection, None] = {}  # in the order they were accepted
        self._outage = Outage(
            log,
            "closing connections to stay within limits",
            "connections are within limits again",
            clock=clock,
        )

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._open

    def __len__(self) -> int:
        return len(self._open)

    @property
    def full(self) -> bool:
        """Whether one more connection would push out another."""
        return len(self._open) >= self._most

    def in_phase(self, *phases: Phase) -> list[Connection]:
        """Return the connections in some phases."""
        return [connection for connection in self._open if connection.phase in phases]

    def begun(self) -> list[Connection]:
        """Return the connections whose client has begun a request that is not answered."""
        return [connection for connection in self._open if connection.has_begun]

    def add(self, client: str) -> Connection:
        """Add a connection that was accepted; the caller sets its `close`."""
        if self.full:
            self.make_room(EvictionReason.CONNECTIONS)
        connection = Connection(client, self.clock())
        self._open[connection] = None
        return connection

    def remove(self, connection: Connection) -> None:
        """Remove a connection, if it is there."""
        if connection in self._open:
            del self._open[connection]
            self.held_bytes -= connection.held

    def enter(self, connection: Connection, phase: Phase) -> None:
        """Record what a connection waits for from now on."""
        connection.phase, connection.since = phase, self.clock()

    def hold(self, connection: Connection, size: int) -> bool:
        """Count bytes that a connection holds; return whether it is still open."""
        if connection in self._open:
            connection.held += size
            self.held_bytes += size
        while self.held_bytes > self._most_held:
            self.make_room(EvictionReason.MEMORY)
        return connection in self._open

    def make_room(self, reason: EvictionReason) -> None:
        """Close a connection, if there is one that has some of what is short."""
        shares = {
            connection: connection.held if reason is EvictionReason.MEMORY else 1
            for connection in self._open
        }
        holders = [connection for connection, share in shares.items() if share]
        idle = [each for each in holders if each.phase is Phase.IDLE]
        arrived = [each for each in holders if each.phase is Phase.TURN]
        waiting = [each for each in holders if each.phase not in (Phase.IDLE, Phase.TURN)]
        # An API server never keeps the webhook waiting for a second.
        slow = [each for each in waiting if self.clock() - each.since > 1]
        # A flood within a second pushes out itself: it is what there is most of, whether its
        # clients connect, ask, or do nothing.
        candidates = slow or max(
            waiting, idle, arrived, key=lambda group: sum(shares[each] for each in group)
        )
        if not candidates:
            return
        # So 40 pods with ten slow connections each don't push out the few of an API server.
        totals: Counter[str] = Counter()
        for each in candidates:
            totals[each.client] += shares[each]
        self._evict(min(candidates, key=lambda each: (-totals[each.client], each.since)), reason)

    def close_slow(self) -> None:
        """Close connections whose clients are too slow; to be called once a second."""
        now = self.clock()
        for connection in list(self._open):
            # An API server waits 30 s for an answer at most. uvicorn closes idle connections.
            longest = 5 if connection.phase is Phase.HANDSHAKE else 30
            if connection.phase is not Phase.IDLE and now - connection.since > longest:
                self._evict(connection, EvictionReason.SLOW)
        self._outage.ended_if_quiet(10)

    def _evict(self, connection: Connection, reason: EvictionReason) -> None:
        self._outage.failed(
            reason,
            client=connection.client,
            connections=len(self._open),
            held_bytes=self.held_bytes,
        )
        self.remove(connection)
        connection.close()
        self.evicted[reason] += 1
