"""A budget of memory for large content: who needs more than is free waits."""

import asyncio


class MemoryBudget:
    """Bytes that may be in use at once, within one event loop.

    Args:
        size: How many. A larger reservation is granted once nothing else is reserved.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._reserved = 0
        self._freed = asyncio.Event()

    async def reserve(self, size: int) -> "Reservation":
        """Waits until so many bytes are free, and reserves them."""
        while self._reserved and self._reserved + size > self._size:
            self._freed.clear()
            await self._freed.wait()
        self.change(size)
        return Reservation(self, size)

    def change(self, size: int) -> None:
        """Reserves or frees bytes without waiting; for `Reservation`."""
        self._reserved += size
        self._freed.set()


class Reservation:
    """Bytes that are reserved of a budget."""

    def __init__(self, budget: MemoryBudget, size: int) -> None:
        self._budget = budget
        self._size = size

    def resize(self, size: int) -> None:
        """Changes how much is reserved, usually to less; doesn't wait if it is more."""
        self._budget.change(size - self._size)
        self._size = size

    def release(self) -> None:
        """Frees all of it."""
        self.resize(0)
