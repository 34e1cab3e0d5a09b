"""The order in which requests are answered."""

import asyncio
from typing import Final, NamedTuple

from webhook.connections import Connection, Connections, Phase

LARGE: Final = 16 * 1024
"""Bytes of a request for which it lets as many later ones go first as were waiting when it came."""
MOST: Final = 4
"""How many times as many go first at most."""


class _Turn(NamedTuple):
    due: float
    begins: "asyncio.Future[None]"


class Turns:
    """Begins one answer in each round of the event loop, in which others' bytes arrive too.

    The address that has waited longest since its last answer is next, and of its requests a small
    one goes before large ones that came with it.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._waiting: dict[Connection, _Turn] = {}
        self._begun = 0
        self._since: dict[str, int] = {}
        """For each address that waits, when it was answered last or came."""

    async def wait(self, connection: Connection) -> None:
        """Wait until a connection's request may be answered, or the connection is closed."""
        self._connections.enter(connection, Phase.TURN)
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._begin_next)
        # The work for a request grows with its bytes at most. Small requests without end don't keep
        # out a large one: an API server waits 5 s, as the manifests say.
        due = self._begun + len(self._waiting) * min(connection.held / LARGE, MOST)
        turn = self._waiting[connection] = _Turn(due, loop.create_future())
        # One that comes again goes behind those that wait, or many would keep out one with a burst.
        self._since.setdefault(connection.client, self._begun)
        await turn.begins

    def _begin_next(self) -> None:
        # A flood from one address delays a request from another one by two answers at most.
        first = min(
            self._waiting, key=lambda each: (self._since[each.client], self._waiting[each].due)
        )
        # Those that were closed end at once, and free their memory.
        closed = [each for each in self._waiting if each not in self._connections]
        for connection in {first, *closed}:
            turn = self._waiting.pop(connection)
            if not turn.begins.done():  # it is if its task was cancelled
                turn.begins.set_result(None)
        self._begun += 1
        self._since[first.client] = self._begun
        self._since = {each.client: self._since[each.client] for each in self._waiting}
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._begin_next)
