import asyncio

import pytest

from services.process.waits import first_of
from tests.support import eventually_async

pytestmark = pytest.mark.anyio


async def never() -> None:
    await asyncio.Event().wait()


async def at_once() -> None:
    return None


async def failing() -> None:
    raise ValueError("no")


async def test_the_first_of_several_is_named_and_the_others_end() -> None:
    before = asyncio.all_tasks()
    assert await first_of({"slow": never(), "quick": at_once()}) == "quick"
    assert await first_of({"one": at_once(), "other": at_once()}) == "one"
    assert asyncio.all_tasks() <= before


async def test_the_error_of_the_first_is_raised_and_a_cancelled_wait_leaves_nothing() -> None:
    with pytest.raises(ValueError, match="no"):
        await first_of({"slow": never(), "broken": failing()})
    before = asyncio.all_tasks()
    task = asyncio.create_task(first_of({"slow": never(), "slower": never()}))
    await eventually_async(lambda: len(asyncio.all_tasks() - before) == 3)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert asyncio.all_tasks() <= before
