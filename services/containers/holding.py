"""Whose the devices are, kept for those who ask often.

A scrape must not make the kubelet work, so what it said is kept: asked again after a while, when
its checkpoint has changed, and when somebody who wants to know it now finds it old. What is older
than `STALE_SECONDS` is nothing: better no holder than a wrong one.
"""

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import Final

import structlog

from services.containers.holder_source import HolderSource, Look
from services.containers.holders import Holders
from services.kubelet.sockets import checkpoint_file

ASK_SECONDS: Final = 30.0
"""Between two questions if nothing calls for one: pods that end change no file."""

SOON_SECONDS: Final = 0.5
"""After a change of the checkpoint: several containers of a pod are one question."""

SPACING_SECONDS: Final = 3.0
"""Between two questions that nobody waits for: a card that flaps changes the checkpoint too."""

FRESH_SECONDS: Final = 1.0
"""What is younger needn't be asked again, however many want to know."""

WAIT_SECONDS: Final = 2.0
"""For the answer, of who wants to know it now."""

STALE_SECONDS: Final = 120.0

DENIED: Final = "Permission denied"
"""In what the system says of a path that this user may not use."""

log = structlog.get_logger(room="plugin")


class Holding:
    """Keeps whose the devices are.

    Args:
        source: Asks the kubelet.
        kubelet_dir: Holds `device-plugins/`.
        ask_seconds: Between two questions at most.
    """

    def __init__(
        self, source: HolderSource, kubelet_dir: Path, *, ask_seconds: float = ASK_SECONDS
    ) -> None:
        self._source = source
        self._checkpoint = checkpoint_file(kubelet_dir)
        self._ask_seconds = ask_seconds
        self._look = Look()
        self._asked = float("-inf")
        self._version: tuple[int, int] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._due = asyncio.Event()
        self._due.set()

    @property
    def holders(self) -> Holders:
        """Who has which device, as last told; nobody if that is too long ago."""
        return self._look.holders if self._age() < STALE_SECONDS else {}

    @property
    def problems(self) -> tuple[str, ...]:
        """What couldn't be found out when last asked."""
        return self._look.problems

    def notice(self) -> None:
        """Looks whether the kubelet has given out devices; costs one look at a file."""
        version = self._version_now()
        if version != self._version:
            self._version = version
            self._due.set()

    async def run(self) -> None:
        """Asks now and then, until cancelled."""
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._ask_seconds):
                        await self._due.wait()
                        await asyncio.sleep(SOON_SECONDS)
                self._due.clear()
                await self._ask()
                await asyncio.sleep(min(SPACING_SECONDS, self._ask_seconds))
        finally:
            if self._asking is not None:
                self._asking.cancel()

    async def fresh(self) -> Look:
        """Who has which device now, or as last told if the kubelet takes its time."""
        if self._age() >= FRESH_SECONDS:
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    await self._ask()
            except TimeoutError:
                text = f"the holders may be old: the kubelet takes more than {WAIT_SECONDS:g} s"
                return Look(self.holders, (*self.problems, text))
        return Look(self.holders, self.problems)

    async def _ask(self) -> None:
        """One question, that all who want it wait for."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._take())
        await asyncio.shield(self._asking)

    async def _take(self) -> None:
        self._version = self._version_now()
        look = await self._source.look()
        for problem in look.problems:
            # Missing permissions are told by services.node.permissions, with what gives them.
            if problem not in self._look.problems and DENIED not in problem:
                log.info("whose the devices are isn't known for sure", reason=problem)
        self._look, self._asked = look, time.monotonic()

    def _age(self) -> float:
        return time.monotonic() - self._asked

    def _version_now(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._checkpoint)  # noqa: PTH116 - a few microseconds, each scan
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino
