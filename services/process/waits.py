"""Waits for the first of several things to happen, and tells what went wrong first."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

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
