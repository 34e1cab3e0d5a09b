"""Pauses between retries: longer each time, and never two clients in step.

Every retry in the product waits by these pauses. They grow to 30-45 s and no further, so that a
cluster of thousands of nodes doesn't overload an API server, and a watch that is broken is replaced
by a list within a minute.
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
    """Pauses that grow with each failure in a row; each is up to a third shorter.

    Args:
        first: seconds of the first pause.
        longest: seconds that pauses grow to.
        asked: the longest that a server may ask us to wait (`Retry-After`).
        jitter: gives numbers from 0 to 1.

    Attributes:
        failures: how many pauses there were in a row.
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
        """Starts over with the first pause; call it only when what failed has worked."""
        self.failures = 0
        self._next = self._first

    def pause(self, asked: float = 0.0, *, growth: float = GROWTH) -> float:
        """Returns how long to wait now, in seconds.

        Args:
            asked: how long the server wants us to wait at least.
            growth: how many times longer the next pause is.
        """
        self.failures += 1
        grown, self._next = self._next, min(self._next * growth, self._longest)
        jitter = self._jitter()
        return max(
            min(grown, self._longest) * (1 - _SPREAD * (1 - jitter)),
            min(asked * (1 + jitter), self._asked),
        )
