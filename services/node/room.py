"""Room for what is large: so many bytes are held at once, and who needs more than is free waits."""

import asyncio


class Room:
    """Bytes that may be held at once, within one event loop.

    Args:
        size: How many. What is larger gets in once nothing else is held.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._held = 0
        self._freed = asyncio.Event()

    async def take(self, size: int) -> "Part":
        """Waits until so many bytes are free, and holds them."""
        while self._held and self._held + size > self._size:
            self._freed.clear()
            await self._freed.wait()
        self._held += size
        return Part(self, size)

    def _change(self, size: int) -> None:
        self._held += size
        self._freed.set()


class Part:
    """What somebody holds of a room."""

    def __init__(self, room: Room, size: int) -> None:
        self._room = room
        self._size = size

    def keep(self, size: int) -> None:
        """Holds so many bytes from now on, usually less; it doesn't wait for more."""
        self._room._change(size - self._size)  # noqa: SLF001 - one thing in two classes
        self._size = size

    def give_back(self) -> None:
        """Holds nothing any more."""
        self.keep(0)
