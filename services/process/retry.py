"""Pauses between retries: longer each time, with jitter."""

import random
from collections.abc import Callable
from typing import Final

FIRST_SECONDS: Final = 0.5
# With jitter 30 to 45 s: thousands of nodes don't overload an API server, and a list replaces a
# broken watch within a minute.
LONGEST_SECONDS: Final = 45.0
GROWTH: Final = 3.0
SPREAD: Final = 1 / 3
"""The part of a pause that is random."""


class Backoff:
    """Pauses that grow with each failure in a row; jitter makes each up to `spread` shorter.

    `first` and `longest` are seconds; `jitter` returns numbers from 0 to 1.
    """

    def __init__(
        self,
        first: float = FIRST_SECONDS,
        longest: float = LONGEST_SECONDS,
        *,
        spread: float = SPREAD,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._spread = spread
        self._first = first
        self._longest = longest
        self._jitter = jitter
        self._next = first

    def reset(self) -> None:
        """Start over with the first pause; to be called when the failed operation has succeeded."""
        self._next = self._first

    def pause(self, asked: float = 0.0, *, growth: float = GROWTH) -> float:
        """Return the seconds to wait, and let the next pause grow by `growth`.

        `asked` are the seconds that the server requests (`Retry-After`).
        """
        grown, self._next = self._next, min(self._next * growth, self._longest)
        jitter = self._jitter()
        return max(
            min(grown, self._longest) * (1 - self._spread * (1 - jitter)),
            # Longer than asked, so that those that were refused together come back apart.
            min(asked * (1 + jitter), LONGEST_SECONDS),
        )
