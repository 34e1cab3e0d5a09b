"""Deadlines, work that is due, and waits for the first of several things to happen."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, NoReturn
from weakref import WeakSet

from services.process.errors import AccelbindError


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


class Followers:
    """Work that is due after the same events, by whoever follows them."""

    def __init__(self) -> None:
        self._followers = WeakSet[Due]()  # that of a stream goes with the stream

    def follow(self) -> Due:
        """Work that is due after each event from now on."""
        due = Due()
        self._followers.add(due)
        return due

    def request(self) -> None:
        """Have the work of all who follow done soon."""
        for due in self._followers:
            due.request()


@asynccontextmanager
async def deadline(seconds: float, error: AccelbindError) -> AsyncIterator[None]:
    """Cancel what runs within it after some seconds, and raise an error for it."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as cause:
        if not limit.expired():  # it is a step's own
            raise
        raise error from cause


Waits = Mapping[str, Coroutine[Any, Any, object]]
"""What to wait for, by name."""


async def first_of(waits: Waits) -> str:
    """Wait for the first of several to finish, cancel the others, and return its name.

    What the first one raises is raised.
    """
    tasks = {name: asyncio.ensure_future(wait) for name, wait in waits.items()}
    try:
        await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        # Of those that finish together, the one that is listed first.
        first = next(name for name, task in tasks.items() if task.done())
        tasks[first].result()
        return first
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def innermost(group: ExceptionGroup[Exception]) -> Exception:
    """The first error of a group, and of the groups in it."""
    first = group.exceptions[0]
    return innermost(first) if isinstance(first, ExceptionGroup) else first
