"""A deadline for several steps together, with an error of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.process.errors import AccelbindError


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
