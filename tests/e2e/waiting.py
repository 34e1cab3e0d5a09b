"""Waiting for a cluster until a deadline; a failure says what was seen last."""

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from services.process.errors import ClusterError

T = TypeVar("T")

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.5


class NotYet(Exception):
    """The condition does not hold yet; the text says what was seen instead."""


def until(look: Callable[[], T], *, seconds: float, what: str) -> T:
    """The result of `look` once it no longer raises `NotYet`; fails with the last text.

    Errors of the API server are retried too.
    """
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE
    while True:
        try:
            return look()
        except (NotYet, ClusterError) as seen:
            last = str(seen)
        if time.monotonic() > deadline:
            pytest.fail(f"gave up after {seconds:.0f} s waiting for {what}; last seen: {last}")
        time.sleep(pause)  # between two looks
        pause = min(pause * 1.5, LONGEST_PAUSE)


def holds(condition: bool, otherwise: str) -> None:
    """Raise NotYet unless a condition holds."""
    if not condition:
        raise NotYet(otherwise)
