import asyncio

import pytest

from services.process.waits import Due
from tests.services.node.support import background
from tests.support import eventually_async

pytestmark = pytest.mark.anyio


class Work:
    def __init__(self) -> None:
        self.count = 0
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def run_once(self) -> None:
        self.count += 1
        await self.may_end.wait()


async def test_requests_before_work_begins_are_one_and_those_during_it_one_more() -> None:
    due, work = Due(), Work()
    due.request()
    due.request()
    work.may_end.clear()
    async with background(due.run_forever(work.run_once)):
        await eventually_async(lambda: work.count == 1)
        for _ in range(5):
            due.request()
        work.may_end.set()
        await eventually_async(lambda: work.count == 2)
        for _ in range(5):
            await asyncio.sleep(0)
        assert work.count == 2


async def test_work_is_due_after_its_interval_without_a_request() -> None:
    work = Work()
    async with background(Due().run_forever(work.run_once, interval=lambda: 0.01)):
        await eventually_async(lambda: work.count > 3)
