"""What the process says of itself: that it is not ready, and that its event loop hangs.

Both would show in probes alone, and in these without a reason that lasts: a pod that was restarted,
or left out of its Service for a while, leaves nothing but its log. While the loop hangs nothing in
it can answer, on either port; for the kubelet that is a failed probe as soon as its own time is up.
"""

import asyncio
import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NoReturn

import structlog

REMIND_SECONDS: Final = 60.0
"""How often it is told again that the process is not ready."""
START_SECONDS: Final = 5.0
"""How long it may take to become ready at the start before that is told."""
HANGING_SECONDS: Final = 4.0
"""How long the event loop may not run before that is told."""
_FRAMES: Final = 8

log = structlog.get_logger(room="process")


async def tell_readiness(
    because: Callable[[], str],
    *,
    interval: float = 1.0,
    clock: Callable[[], float] = time.monotonic,
) -> NoReturn:
    """Logs when the process becomes ready or ceases to be, and now and then why it is not.

    Args:
        because: What is missing; empty when ready.
        interval: Seconds between two looks.
        clock: Seconds, from any beginning.
    """
    since = clock()
    told = since + START_SECONDS - REMIND_SECONDS
    was_ready = False
    while True:
        missing, now = because(), clock()
        if missing and was_ready:
            since = now
        if missing and (was_ready or now - told >= REMIND_SECONDS):
            log.warning("not ready", because=missing, seconds=round(now - since))
            told = now
        elif not missing and not was_ready:
            log.info("ready", after=round(now - since, 1))
        was_ready = not missing
        await asyncio.sleep(interval)


@contextlib.contextmanager
def hanging_told(longest: float = HANGING_SECONDS) -> Iterator[None]:
    """Logs from a thread when the event loop that this is called in doesn't run, and where it is.

    Args:
        longest: Seconds that it may not run.
    """
    watch = _Watch(threading.get_ident(), longest)
    watch.beat()
    beating = asyncio.get_running_loop().create_task(watch.beat_on())
    thread = threading.Thread(target=watch.look_on, name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.over.set()
        beating.cancel()


class _Watch:
    """Looks at the beats of an event loop."""

    def __init__(self, loop_thread: int, longest: float) -> None:
        self.over = threading.Event()
        self._thread = loop_thread
        self._longest = longest
        self._last = 0.0

    def beat(self) -> None:
        self._last = time.monotonic()

    async def beat_on(self) -> NoReturn:
        while True:
            self.beat()
            await asyncio.sleep(self._longest / 4)

    def look_on(self) -> None:
        hangs = 0.0
        while not self.over.wait(self._longest / 4):
            silent = time.monotonic() - self._last
            if silent > self._longest and not hangs:
                log.error("the event loop hangs", seconds=round(silent, 1), where=self._where())
            elif hangs and silent < hangs:
                log.warning("the event loop runs again", seconds=round(hangs, 1))
            hangs = silent if silent > self._longest else 0.0

    def _where(self) -> str:
        """The innermost calls of the loop's thread, outermost first."""
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - that is its name
        calls = [
            f"{each.f_code.co_name} ({each.f_code.co_filename}:{line})"
            for each, line in islice(traceback.walk_stack(frame), _FRAMES)
        ]
        return " > ".join(reversed(calls))
