"""Work that is due when it is requested, and from time to time."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import NoReturn


class Due:
    """Whether some work is due. Requests come from the event loop."""

    def __init__(self) -> None:
        self._requested = asyncio.Event()

    def request(self) -> None:
        """Have the work done soon."""
        self._requested.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Return once the work is due, after some seconds at the latest."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._requested.wait()
        # Before the work: several requests until then are one, and one during it is the next.
        self._requested.clear()

    async def run_forever(
        self,
        work: Callable[[], Awaitable[object]],
        *,
        interval: Callable[[], float | None] = lambda: None,
        spacing: float = 0.0,
    ) -> NoReturn:
        """Do the work whenever it is due, until cancelled.

        Args:
            work: Does it once. What it raises ends the loop.
            interval: Returns the seconds after which it is due without a request, if any.
            spacing: Seconds between the end of the work and its next beginning, at least.
        """
        while True:
            await self.wait(interval())
            await work()
            await asyncio.sleep(spacing)
