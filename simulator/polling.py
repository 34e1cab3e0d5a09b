"""Waiting for other processes."""

import time
from collections.abc import Callable
from typing import TypeVar

from services.process.errors import ExternalFailure

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds."""


def poll_until(
    poll: Callable[[], T | None],
    what: str,
    *,
    pause: float = 0.02,
    ignoring: tuple[type[Exception], ...] = (),
) -> T:
    """Call a function until it returns something true; ExternalFailure if that takes too long."""
    deadline, problem = time.monotonic() + PATIENCE, ""
    while True:
        try:
            if value := poll():
                return value
        except ignoring as error:
            problem = f": {error}"
        if time.monotonic() > deadline:
            raise ExternalFailure(f"{what}: not after {PATIENCE:.0f} s{problem}")
        time.sleep(pause)
