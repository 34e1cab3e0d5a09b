"""How often an API server is asked."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from services.process.retry import FIRST_SECONDS, LONGEST_SECONDS, Backoff


@dataclass(frozen=True, slots=True)
class Pace:
    """How often an API server is asked, and for how long; in seconds.

    Attributes:
        first: the pause after a first failure; it grows with each one that follows.
        longest: the pause that it grows to.
        steady: a watch that was open for so long is no failure for the pauses, however it ended;
            four of them in a minute, each with a list, are few enough.
        watch: how long a watch should last. A server that is there says something that often, so
            it bounds how old what we know may be, and how long a dead connection goes unnoticed.
        grace: how much later than that a connection counts as dead.
    """

    first: float = FIRST_SECONDS
    longest: float = LONGEST_SECONDS
    steady: float = 15.0
    watch: float = 60.0
    grace: float = 10.0

    def backoff(self, jitter: Callable[[], float] = random.random) -> Backoff:
        """Returns the pauses of one retry loop.

        Args:
            jitter: gives numbers from 0 to 1.
        """
        return Backoff(self.first, self.longest, jitter=jitter)
