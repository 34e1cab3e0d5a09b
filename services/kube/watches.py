"""The timing of watches, and the lines that they consist of."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from services.kube.client import BadStatus, Status, Unreadable
from services.kube.lists import decode_pruned
from services.process.json import UNREADABLE
from services.process.retry import FIRST_SECONDS, LONGEST_SECONDS, SPREAD, Backoff
from services.process.text import plain


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """The pauses and time-outs of watches, in seconds; and the sources of time and randomness."""

    first: float = FIRST_SECONDS
    longest: float = LONGEST_SECONDS
    spread: float = SPREAD
    """As in `Backoff`."""
    # A watch that was open this long resets the pauses, however it ended: at most four such watches
    # per minute, each with a list, are few enough.
    steady: float = 15.0
    # Bounds the age of what is known, and how long a dead connection stays unnoticed.
    watch: float = 60.0
    grace: float = 10.0
    """How much longer than `watch` one may take before it counts as hanging."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    jitter: Callable[[], float] = random.random

    def backoff(self) -> Backoff:
        """The pauses between attempts."""
        return Backoff(self.first, self.longest, spread=self.spread, jitter=self.jitter)


USUAL_TIMING: Final = WatchTiming()


class WatchEvent(msgspec.Struct):
    """A line of a watch; its object is not decoded."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


_LINE: Final = msgspec.json.Decoder(WatchEvent)
_STATUS: Final = msgspec.json.Decoder(Status)


async def read_line(line: bytes) -> WatchEvent:
    """Decode a line.

    Raises:
        BadStatus: It reports an error, which ends the watch.
        Unreadable: It isn't JSON, or no event.
    """
    # A line that can't be read may be cut off, or hold a change: the objects must be read again.
    try:
        event = await decode_pruned(_LINE, line)
        status = _STATUS.decode(event.object) if event.type == "ERROR" else None
    except UNREADABLE as error:
        raise unreadable_line(error) from error
    if status is not None:
        raise BadStatus(
            f"the watch ended with {status.code}: {plain(status.message, 200)}",
            status.code,
        )
    return event


def unreadable_line(error: Exception) -> Unreadable:
    """The error for a line of a watch that can't be decoded."""
    return Unreadable(f"a line of the watch can't be read: {plain(str(error), 200)}")
