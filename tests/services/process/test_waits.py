import asyncio

import pytest

from services.process.waits import Due, first_of
from tests.support import background, eventually_async


async def test_requests_before_work_begins_are_one_and_those_during_it_one_more() -> None:
    due, begun, may_end = Due(), list[int](), asyncio.Event()

    async def work() -> None:
        begun.append(1)
        await may_end.wait()

    due.request()
    due.request()
    async with background(due.run_forever(work)):
        await eventually_async(lambda: len(begun) == 1)
        for _ in range(5):
            due.request()
        may_end.set()
        await eventually_async(lambda: len(begun) == 2)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(begun) == 2


async def test_work_is_due_after_its_interval_without_a_request() -> None:
    begun = list[int]()

    async def work() -> None:
        begun.append(1)

    async with background(Due().run_forever(work, interval=lambda: 0.01)):
        await eventually_async(lambda: len(begun) > 3)


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
