"""How long to wait before trying again: longer each time, and never in step with others."""

import random
from collections.abc import Callable
from typing import Final

FIRST_SECONDS: Final = 0.1
MOST_SECONDS: Final = 5.0
_JITTER: Final = 0.25


class Backoff:
    """Waiting times that double from `first` to `most`, each up to a quarter shorter or longer.

    Args:
        first: Seconds of the first.
        most: Seconds of the longest, before jitter.
        jitter: Gives a number from the range it is asked for.
    """

    def __init__(
        self,
        first: float = FIRST_SECONDS,
        most: float = MOST_SECONDS,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first = first
        self._most = most
        self._jitter = jitter
        self._next = first

    def next(self) -> float:
        """Seconds to wait now."""
        seconds, self._next = self._next, min(self._next * 2, self._most)
        return seconds * self._jitter(1 - _JITTER, 1 + _JITTER)

    def reset(self) -> None:
        """Starts over: all is well again."""
        self._next = self._first
