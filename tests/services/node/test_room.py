"""Room for bitstreams."""

import asyncio

import pytest

from services.node.room import Part, Room

pytestmark = pytest.mark.anyio


async def settled(*tasks: asyncio.Task[Part]) -> list[bool]:
    """Which of them are done once all that can go on has."""
    for _ in range(10):
        await asyncio.sleep(0)
    return [task.done() for task in tasks]


async def test_who_needs_more_than_is_free_waits() -> None:
    room = Room(10)
    first = await room.take(6)
    second, third = (asyncio.create_task(room.take(size)) for size in (5, 4))
    assert await settled(second, third) == [False, True]
    first.keep(1)
    assert await settled(second) == [True]
    for part in (first, await second, await third):
        part.give_back()
    await room.take(10)


async def test_what_is_larger_than_the_room_gets_in_alone() -> None:
    room = Room(10)
    first = await room.take(30)
    other = asyncio.create_task(room.take(1))
    assert await settled(other) == [False]
    first.give_back()
    large = asyncio.create_task(room.take(30))
    assert await settled(other, large) == [True, False]
    (await other).give_back()
    assert await settled(large) == [True]


async def test_who_gives_up_waiting_holds_nothing() -> None:
    room = Room(10)
    first = await room.take(10)
    waiting = asyncio.create_task(room.take(10))
    assert await settled(waiting) == [False]
    waiting.cancel()
    first.give_back()
    async with asyncio.timeout(10):
        await room.take(10)


async def test_what_turns_out_larger_keeps_others_waiting() -> None:
    room = Room(10)
    first = await room.take(0)
    first.keep(30)
    other = asyncio.create_task(room.take(1))
    assert await settled(other) == [False]
    first.give_back()
    assert await settled(other) == [True]
