"""Waiting for other processes."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def poll_until(
    poll: Callable[[], T | None], what: str, *, seconds: float = 120.0, pause: float = 0.02
) -> T:
    """Call a function until it returns something true, and return that.

    Raises:
        TimeoutError: it took too long; the message names `what`.
    """
    deadline = time.monotonic() + seconds
    while not (found := poll()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not after {seconds:.0f} s")
        time.sleep(pause)
    return found
