"""What the tests of this room share."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager


@asynccontextmanager
async def background(loop: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """A loop that runs meanwhile, and must not end by itself."""
    task = asyncio.create_task(loop)
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
