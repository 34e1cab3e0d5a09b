"""A thread for each card: what hangs on one holds up nothing on the others.

An ioctl that reconfigures can't be interrupted: a driver that waits for a dead card waits. So what
is done with a card is done in a thread of the card's own, one call after the other. Whoever waits
gives up at a deadline, and then takes the call out of the queue if it was not begun. A card whose
call is given up while it runs is **stuck** until that call returns: its thread stays behind, and
whatever else is asked of the card is refused at once.

The threads are daemons that end when there is nothing to do, so a process can end, and is not held
by idle ones.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

from services.process.errors import DeviceHung, HardwareError

T = TypeVar("T")

_Job = tuple[Callable[[], Any], "Future[Any]"]


class _Lane:
    """What is to be done with a card."""

    def __init__(self) -> None:
        self.jobs: deque[_Job] = deque()
        self.current: Future[Any] | None = None
        self.began = 0.0
        self.stuck_since: float | None = None


class CardThreads:
    """Does calls on cards, from any thread or event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[str, _Lane] = {}

    @property
    def stuck(self) -> Mapping[str, float]:
        """The cards that are stuck, and for how many seconds since they were given up."""
        now = time.monotonic()
        with self._lock:
            return {
                card: now - lane.stuck_since
                for card, lane in self._lanes.items()
                if lane.stuck_since is not None
            }

    @property
    def working(self) -> frozenset[str]:
        """The cards that are being worked on, stuck or not."""
        with self._lock:
            return frozenset(self._lanes)

    def run(self, card: str, call: Callable[[], T], *, seconds: float, what: str) -> T:
        """The result of a call on a card; waits for the calls before it.

        Args:
            card: Which card; calls on one card follow each other.
            call: What to call.
            seconds: How long to wait at most.
            what: What the call does, for the message.

        Raises:
            DeviceHung: It took too long, or the card is stuck.
            HardwareError: The system gives no thread.
        """
        future = self._submit(card, call, seconds, what)
        try:
            return future.result(seconds)
        except FutureTimeout as error:
            if future.done():
                return future.result()  # in the last moment, or the call's own
            raise self._give_up(card, future, seconds, what) from error

    async def run_async(self, card: str, call: Callable[[], T], *, seconds: float, what: str) -> T:
        """As `run`, for an event loop; cancelling it gives the call up too."""
        future = self._submit(card, call, seconds, what)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(asyncio.wrap_future(future))
        except TimeoutError as error:
            if future.done():
                return future.result()  # in the last moment, or the call's own
            raise self._give_up(card, future, seconds, what) from error
        except asyncio.CancelledError:
            future.cancel()
            self._drop(card, future)
            raise

    def _submit(self, card: str, call: Callable[[], T], seconds: float, what: str) -> "Future[T]":
        future: Future[T] = Future()
        with self._lock:
            lane, now = self._lanes.get(card), time.monotonic()
            if lane is None:
                lane = self._begin(card)
            elif lane.stuck_since is None and lane.current and now - lane.began >= seconds:
                lane.stuck_since = now  # whoever waited for it has gone before this was a hang
            if lane.stuck_since is not None:
                gone = now - lane.stuck_since
                raise DeviceHung(
                    f"{what}: card {card} still hangs in a call given up {gone:.0f} s ago; if it"
                    " doesn't come back, reset the card or restart the node"
                )
            lane.jobs.append((call, future))
        return future

    def _begin(self, card: str) -> _Lane:
        lane = self._lanes[card] = _Lane()
        work = threading.Thread(
            target=self._work, args=(card, lane), name=f"card {card}", daemon=True
        )
        try:
            work.start()
        except RuntimeError as error:  # too many threads, in this process or its container
            del self._lanes[card]
            raise HardwareError(f"no thread to work on card {card} in: {error}") from error
        return lane

    def _give_up(self, card: str, future: "Future[Any]", seconds: float, what: str) -> DeviceHung:
        now = time.monotonic()
        waited = future.cancel()  # for a call before it, which others may have given up
        self._drop(card, future)
        with self._lock:
            lane = self._lanes.get(card)
            if lane is not None and lane.current is not None:
                hangs = lane.current is future or (waited and now - lane.began >= seconds)
                lane.stuck_since = lane.stuck_since or (now if hangs else None)
        return DeviceHung(f"{what} hangs: card {card} gave no answer within {seconds:g} s")

    def _drop(self, card: str, future: "Future[Any]") -> None:
        """Takes a call that nobody waits for out of the queue; it may hold a whole bitstream."""
        with self._lock:
            lane = self._lanes.get(card)
            if lane is not None:
                lane.jobs = deque(job for job in lane.jobs if job[1] is not future)

    def _work(self, card: str, lane: _Lane) -> None:
        while True:
            with self._lock:
                if not lane.jobs:
                    del self._lanes[card]
                    return
                call, future = lane.jobs.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
                lane.current, lane.began = future, time.monotonic()
            _do(call, future)
            with self._lock:
                lane.current = None
                lane.stuck_since = None


def _do(call: Callable[[], Any], future: "Future[Any]") -> None:
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - carried over to who waits
        future.set_exception(error)
    else:
        future.set_result(result)
