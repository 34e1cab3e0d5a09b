"""Many signals, few acts: a burst is answered at once, and once more when it is over or goes on.

The first signal acts at once. Those that follow within the window wait for its end and are one
act, which opens a window again; so after the last signal there is always an act, and never more
than one act a window.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

WINDOW_SECONDS: Final = 0.02
"""Long enough for the events of one card, short enough for nobody to notice."""


class Timer(Protocol):
    """What will happen later, unless it is cancelled."""

    def cancel(self) -> None:
        """Keeps it from happening."""


Later = Callable[[float, Callable[[], None]], Timer]


class Coalescer:
    """Turns signals into acts. For one event loop.

    Args:
        act: What to do; it should be short and raise nothing.
        window: Seconds between two acts at least.
        later: Calls something after some seconds; the running loop's `call_later` unless told.
    """

    def __init__(
        self,
        act: Callable[[], None],
        *,
        window: float = WINDOW_SECONDS,
        later: Later | None = None,
    ) -> None:
        self._act = act
        self._window = window
        self._later = later or asyncio.get_running_loop().call_later
        self._timer: Timer | None = None
        self._waiting = False

    def signal(self) -> None:
        """Something happened."""
        if self._timer is not None:
            self._waiting = True
            return
        self._timer = self._later(self._window, self._over)
        self._act()

    def close(self) -> None:
        """Drops what waits."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._waiting = False

    def _over(self) -> None:
        self._timer = None
        if self._waiting:
            self._waiting = False
            self.signal()
