"""The memory for bitstreams."""

import asyncio

import pytest

from services.node.memory_budget import MemoryBudget, Reservation

pytestmark = pytest.mark.anyio


async def settled(*tasks: asyncio.Task[Reservation]) -> list[bool]:
    """Which of them are done once all that can go on has."""
    for _ in range(10):
        await asyncio.sleep(0)
    return [task.done() for task in tasks]


async def test_who_needs_more_than_is_free_waits() -> None:
    budget = MemoryBudget(10)
    first = await budget.reserve(6)
    second, third = (asyncio.create_task(budget.reserve(size)) for size in (5, 4))
    assert await settled(second, third) == [False, True]
    first.resize(1)
    assert await settled(second) == [True]
    for each in (first, await second, await third):
        each.release()
    await budget.reserve(10)


async def test_what_is_larger_than_the_budget_gets_in_alone() -> None:
    budget = MemoryBudget(10)
    first = await budget.reserve(30)
    other = asyncio.create_task(budget.reserve(1))
    assert await settled(other) == [False]
    first.release()
    large = asyncio.create_task(budget.reserve(30))
    assert await settled(other, large) == [True, False]
    (await other).release()
    assert await settled(large) == [True]


async def test_who_gives_up_waiting_reserves_nothing() -> None:
    budget = MemoryBudget(10)
    first = await budget.reserve(10)
    waiting = asyncio.create_task(budget.reserve(10))
    assert await settled(waiting) == [False]
    waiting.cancel()
    first.release()
    async with asyncio.timeout(10):
        await budget.reserve(10)


async def test_what_turns_out_larger_keeps_others_waiting() -> None:
    budget = MemoryBudget(10)
    first = await budget.reserve(0)
    first.resize(30)
    other = asyncio.create_task(budget.reserve(1))
    assert await settled(other) == [False]
    first.release()
    assert await settled(other) == [True]
