"""Pauses between retries: longer each time, with jitter.

Every retry uses these pauses. They grow to 30-45 s and no further: a cluster of thousands of nodes
doesn't overload an API server, and a broken watch is replaced by a list within a minute.
"""

import random
from collections.abc import Callable
from typing import Final

FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 45.0
GROWTH: Final = 3.0
_SPREAD: Final = 1 / 3
"""How much of a pause is left to chance."""


class Backoff:
    """Pauses that grow with each failure in a row; jitter makes each up to a third shorter.

    Args:
        first: Seconds of the first pause.
        longest: Seconds that pauses grow to.
        asked: The most seconds that a server may ask for (`Retry-After`).
        jitter: Gives numbers from 0 to 1.

    Attributes:
        failures: How many pauses there were in a row.
    """

    def __init__(
        self,
        first: float = FIRST_SECONDS,
        longest: float = LONGEST_SECONDS,
        *,
        asked: float = LONGEST_SECONDS,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.failures = 0
        self._first = first
        self._longest = longest
        self._asked = asked
        self._jitter = jitter
        self._next = first

    def reset(self) -> None:
        """Start over with the first pause; call it only when what failed has worked."""
        self.failures = 0
        self._next = self._first

    def pause(self, asked: float = 0.0, *, growth: float = GROWTH) -> float:
        """How many seconds to wait now.

        Args:
            asked: Seconds that the server asks for at least.
            growth: How many times longer the next pause is.
        """
        self.failures += 1
        grown, self._next = self._next, min(self._next * growth, self._longest)
        jitter = self._jitter()
        return max(
            min(grown, self._longest) * (1 - _SPREAD * (1 - jitter)),
            min(asked * (1 + jitter), self._asked),
        )
