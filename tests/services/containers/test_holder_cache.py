"""Whose the devices are, kept: asked sparingly, never old, never in the way of who asks."""

import asyncio
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.containers import holder_cache
from services.containers.holder_cache import HolderCache
from services.containers.holder_source import HolderSnapshot, HolderSource
from services.containers.holders import Holder
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

KEY = ("r", "p0")
FOUND = HolderSnapshot({KEY: (Holder("ns", "p", "c"),)})


class Source(HolderSource):
    """A kubelet that tells what a test wants, when it wants."""

    def __init__(self) -> None:
        self.asked = 0
        self.told = FOUND
        self.free = asyncio.Event()
        self.free.set()

    async def snapshot(self) -> HolderSnapshot:
        self.asked += 1
        await self.free.wait()
        return self.told


@pytest.fixture
async def source(anyio_backend: str) -> Source:  # noqa: ARG001 - async fixtures of anyio need it
    return Source()


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_many_who_want_to_know_now_are_one_question(short_dir: Path, source: Source) -> None:
    kept = HolderCache(source, short_dir)
    assert kept.holders == {}
    assert await asyncio.gather(*(kept.fresh() for _ in range(20))) == [FOUND] * 20
    assert await kept.fresh() == FOUND
    assert source.asked == 1


async def test_a_kubelet_that_takes_its_time_holds_up_nobody(
    short_dir: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder_cache, "WAIT_SECONDS", 0.05)
    kept = HolderCache(source, short_dir)
    source.free.clear()
    for _ in range(3):
        look = await kept.fresh()
        assert look.holders == {}
        assert "the kubelet takes more than" in look.problems[-1]
    assert source.asked == 1
    source.free.set()
    await eventually_async(lambda: kept.holders == FOUND.holders)


async def test_a_new_checkpoint_is_a_reason_to_ask(
    short_dir: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder_cache, "LOOK_SECONDS", 0.01)
    kept = HolderCache(source, short_dir)
    task = asyncio.create_task(kept.refresh_forever())
    await eventually_async(lambda: source.asked == 1)
    file = short_dir / "device-plugins/kubelet_internal_checkpoint"
    file.parent.mkdir()
    for count in (2, 3):
        file.write_text("{}")
        await eventually_async(lambda: source.asked >= count)  # noqa: B023 - awaited here
        os.utime(file, ns=(count, count))
    monkeypatch.setattr(holder_cache, "QUERY_SECONDS", 0.02)
    await eventually_async(lambda: source.asked >= 8)
    await ended(task)


async def test_what_is_old_is_nothing(short_dir: Path, source: Source) -> None:
    kept = HolderCache(source, short_dir)
    await kept.fresh()
    assert kept.holders == FOUND.holders
    kept._queried_at -= holder_cache.STALE_SECONDS
    assert kept.holders == {}


async def test_what_is_not_known_is_said_when_it_is_new(short_dir: Path, source: Source) -> None:
    kept = HolderCache(source, short_dir)
    source.told = HolderSnapshot({}, ("it is away",))
    with capture_logs() as logs:
        for _ in range(3):
            await kept._query()
    assert [each["reason"] for each in logs] == ["it is away"]
    assert (await kept.fresh()).problems == ("it is away",)
