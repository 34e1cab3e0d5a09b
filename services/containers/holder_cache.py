"""Which containers have which device, cached for metrics and `/devices`.

A scrape must not make the kubelet work, so its answer is cached. It is asked again every 30 s, when
its checkpoint has changed, and when `fresh` finds the answer old. An answer older than
`STALE_SECONDS` is dropped: no holder is better than a wrong one.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Final

import structlog

from services.containers.holder_source import HolderSnapshot, HolderSource
from services.containers.holders import Holders
from services.kubelet.sockets import checkpoint_file

QUERY_SECONDS: Final = 30.0
"""Between two queries without another reason: pods that end change no file."""

LOOK_SECONDS: Final = 3.0
"""Between two looks at the checkpoint: several containers of a pod are one query."""

FRESH_SECONDS: Final = 1.0
"""A younger answer is not asked for again, unless the checkpoint has changed."""

WAIT_SECONDS: Final = 2.0

STALE_SECONDS: Final = 120.0

log = structlog.get_logger(component="plugin")


class HolderCache:
    """Caches which containers have which device."""

    def __init__(self, source: HolderSource, kubelet_dir: Path) -> None:
        self._source = source
        self._checkpoint = checkpoint_file(kubelet_dir)
        self._snapshot = HolderSnapshot()
        self._queried_at = float("-inf")
        self._version: tuple[int, int] | None = None
        self._query_task: asyncio.Task[None] | None = None

    @property
    def holders(self) -> Holders:
        """The containers of each device, as last read; empty if that is too old."""
        return self._snapshot.holders if self._age() < STALE_SECONDS else {}

    async def refresh_forever(self) -> None:
        """Query the kubelet in the background, until cancelled."""
        try:
            while True:
                if self._version != self._version_now() or self._age() >= QUERY_SECONDS:
                    await self._refresh()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            if self._query_task is not None:
                self._query_task.cancel()

    async def fresh(self) -> HolderSnapshot:
        """The containers of each device now, or as last read if the kubelet is slow."""
        if self._age() >= FRESH_SECONDS or self._version != self._version_now():
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    await self._refresh()
            except TimeoutError:
                text = f"the holders may be old: the kubelet takes more than {WAIT_SECONDS:g} s"
                return HolderSnapshot(self.holders, (*self._snapshot.problems, text))
        return HolderSnapshot(self.holders, self._snapshot.problems)

    async def _refresh(self) -> None:
        """One query, which all callers wait for."""
        if self._query_task is None or self._query_task.done():
            self._query_task = asyncio.create_task(self._query())
        await asyncio.shield(self._query_task)

    async def _query(self) -> None:
        self._version = self._version_now()
        snapshot = await self._source.snapshot()
        for problem in snapshot.problems:
            if problem not in self._snapshot.problems:
                log.info("the holders of devices are not fully known", reason=problem)
        self._snapshot, self._queried_at = snapshot, time.monotonic()

    def _age(self) -> float:
        return time.monotonic() - self._queried_at

    def _version_now(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._checkpoint)  # noqa: PTH116 - a few microseconds
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino
