"""Waiting for a cluster: until a deadline, and telling what was seen last."""

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from services.process.errors import ClusterError

T = TypeVar("T")

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.5


class NotYet(Exception):
    """What is waited for hasn't come; says what was seen instead."""


def until(look: Callable[[], T], *, seconds: float, what: str) -> T:
    """What `look` gives, once it no longer raises `NotYet`; fails with the last one's text.

    An API server that doesn't answer for a moment is waited for as well.
    """
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE
    while True:
        try:
            return look()
        except (NotYet, ClusterError) as seen:
            last = str(seen)
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds:.0f} s in vain for {what}; last seen: {last}")
        time.sleep(pause)  # between two looks
        pause = min(pause * 1.5, LONGEST_PAUSE)


def holds(condition: bool, otherwise: str) -> None:
    """Goes on if a condition holds."""
    if not condition:
        raise NotYet(otherwise)
