"""How often to ask: longer and longer pauses, never two clients in step."""

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """How often an API server is asked, and for how long; in seconds.

    Attributes:
        first: the pause after a first failure; it doubles with each one that follows.
        longest: the pause that it grows to.
        steady: a watch that held for so long was no failure, however it ended.
        asked: the longest that the server may ask us to wait (`Retry-After`).
        watch: how long a watch should last. A server that is there says something that often, so
            it bounds how old what we know may be, and how long a dead connection goes unnoticed.
        grace: how much later than that a connection counts as dead.
        remind: how often a problem that lasts is told again.
        news: how soon one that has changed is.
    """

    first: float = 0.25
    longest: float = 10.0
    steady: float = 1.0
    asked: float = 60.0
    watch: float = 60.0
    grace: float = 10.0
    remind: float = 60.0
    news: float = 5.0


class Backoff:
    """Pauses that grow with each failure in a row.

    Args:
        pace: how fast and how far.
        jitter: gives numbers from 0 to 1; a pause is half to all of what it could be.

    Attributes:
        failures: how many pauses there were in a row.
    """

    def __init__(self, pace: Pace, jitter: Callable[[], float] = random.random) -> None:
        self._pace = pace
        self._jitter = jitter
        self.failures = 0

    def reset(self) -> None:
        """Begins anew: something went well."""
        self.failures = 0

    def pause(self, asked: float = 0.0) -> float:
        """Returns how long to wait now.

        Args:
            asked: how long the server wants us to wait at least.
        """
        grown = min(self._pace.longest, self._pace.first * 2.0 ** min(self.failures, 30))
        self.failures += 1
        spread = 1 + self._jitter()
        return max(grown * spread / 2, min(asked, self._pace.asked) * spread)
