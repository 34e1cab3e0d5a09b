"""One failure that may last: logged when it starts, changes and ends, and counted each time."""

import time
from collections.abc import Callable
from typing import Final, Literal

from structlog.typing import FilteringBoundLogger

MAX_REASONS: Final = 8
"""Reasons of one outage that are logged; each may have a number in it that always changes."""


class Outage:
    """The current outage of one thing, if any.

    Args:
        log: The logger of the module.
        failure: The message when it fails; `reason` is added.
        recovery: The message when that has ended; the `seconds` that it took are added.
        level: Of the failure's message.
        count: Called for each failure, such as a counter's `inc`.
        clock: Returns seconds.
        fields: Added to each message.
    """

    def __init__(
        self,
        log: FilteringBoundLogger,
        failure: str,
        recovery: str,
        *,
        level: Literal["info", "warning", "error"] = "warning",
        count: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        **fields: object,
    ) -> None:
        self.reason = ""
        """Why it fails; empty while it doesn't."""
        self.failures = 0
        """How often it has failed."""
        self._log = log
        self._failure = failure
        self._recovery = recovery
        self._level = level
        self._count = count
        self._clock = clock
        self._fields = fields
        self._since = 0.0
        self._logged: set[str] = set()

    def failed(self, reason: str, **fields: object) -> None:
        """Note a failure."""
        if not self.reason:
            self._since = self._clock()
            self._logged.clear()
        self.reason = reason
        self.failures += 1
        self._count()
        # Once in an outage, so that two reasons that take turns don't fill the log.
        write_log = self._log.debug
        if reason not in self._logged and len(self._logged) < MAX_REASONS:
            self._logged.add(reason)
            write_log = getattr(self._log, self._level)
        write_log(self._failure, reason=reason, **self._fields, **fields)

    def ended(self, **fields: object) -> None:
        """Note that it works: to be called each time that it does."""
        if self.reason:
            seconds = round(self._clock() - self._since, 1)
            self._log.info(self._recovery, seconds=seconds, **self._fields, **fields)
        self.reason = ""

    def update(self, reason: str, **fields: object) -> None:
        """Note a failure, or that it works if the reason is empty."""
        if reason:
            self.failed(reason, **fields)
        else:
            self.ended(**fields)
