"""What time it is for whoever judges certificates: the API servers.

The clocks of our replicas may differ from theirs and from each other. One that runs ahead would
renew what the others find fresh, one that is behind would find their certificates not begun. So all
of them go by the API server's clock, which stands in each of its answers (`Date`).
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Protocol

import structlog

TOLERATED: Final = 5.0
"""Seconds that are no difference: a `Date` counts whole ones, and an answer takes its time."""
REMARKABLE: Final = 60.0

log = structlog.get_logger(room="certs")


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """The present, to the second, with a time zone."""

    def hear(self, date: str) -> None:
        """Takes in what an API server has just said."""


class ClusterClock:
    """The local clock, put right by the API server's where they differ.

    Args:
        local: Seconds since the epoch, as far as this machine knows.

    Attributes:
        offset: Seconds that the API server is ahead of us; 0 where they don't differ.
    """

    def __init__(self, local: Callable[[], float] = time.time) -> None:
        self.offset = 0.0
        self._local = local
        self._told = False

    def now(self) -> datetime:
        """The present, to the second, as certificates count it."""
        return datetime.fromtimestamp(int(self._local() + self.offset), UTC)

    def hear(self, date: str) -> None:
        """Compares with the `Date` of an answer that has just come; what is none is ignored."""
        try:
            said = parsedate_to_datetime(date)
        except (ValueError, TypeError):
            return
        if said.tzinfo is None:
            said = said.replace(tzinfo=UTC)
        differs = said.timestamp() - self._local()
        self.offset = differs if abs(differs) > TOLERATED else 0.0
        self._tell()

    def _tell(self) -> None:
        remarkable = abs(self.offset) > REMARKABLE
        if remarkable and not self._told:
            log.warning(
                "this machine's clock differs from the API server's, whose time counts for"
                " certificates: see to its time synchronisation",
                seconds_behind=round(self.offset),
            )
        elif self._told and not remarkable:
            log.info("this machine's clock agrees with the API server's again")
        self._told = remarkable
