"""Waiting for the first of several things."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


async def until(news: asyncio.Event, met: Callable[[], T]) -> T:
    """Waits until a condition is met, and returns its value.

    Args:
        news: Set whenever the condition may have changed; nobody else may wait for it.
        met: The condition; false until it is met.
    """
    while not (found := met()):
        news.clear()
        await news.wait()
    return found


async def first_of(
    waits: Mapping[str, Coroutine[Any, Any, object]], *, seconds: float | None = None
) -> str | None:
    """Waits for the first of several to finish, and cancels the others.

    Args:
        waits: What to wait for, by name; earlier ones count first if several finish together.
        seconds: How long to wait at most.

    Returns:
        The name of the first; None if none finished in time.

    Raises:
        BaseException: What the first one raised.
    """
    tasks = {name: asyncio.ensure_future(wait) for name, wait in waits.items()}
    try:
        await asyncio.wait(tasks.values(), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for name, task in tasks.items():
            if task.done():
                task.result()
                return name
        return None
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
