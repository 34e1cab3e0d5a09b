"""Calls that may hang, in threads that can be abandoned.

A read below `/sys`, an ioctl or a dead network disk can block in the kernel forever, and no timeout
ends it. So a thread makes such a call, and its caller waits for a limited time. Each call has a
**key** that names its subject (a card, the kubelet's files), and a key is

    free       without a thread: a call starts one;
    busy       its thread makes a call, and others are queued. It ends when none is left;
    abandoned  the running call goes on after its caller's timeout. Until it returns, other calls
               are refused, so that neither threads nor queues grow while a card hangs.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, ParamSpec, TypeVar

from services.process.errors import DeviceHung, HardwareError

T = TypeVar("T")
P = ParamSpec("P")

MAX_THREADS: Final = 256
"""Threads that may run or hang at once; each costs some tens of KiB."""


SLOW_SECONDS: Final = 1.0
"""How long the next of many calls waits for the one before it."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One of many calls that may hang, such as reading a card."""

    key: str
    """Its own."""
    what: str
    """For error messages: `reading /sys/class/fpga_region/region0`."""
    make: Callable[[], T]


@dataclass(eq=False, slots=True)
class _Job(Generic[T]):
    """A call."""

    call: Callable[[], T]
    hangs: str = ""
    """What its caller raises if it hangs."""
    future: "Future[T]" = field(default_factory=Future)
    has_caller: bool = True

    def make(self) -> None:
        try:
            result = self.call()
        except BaseException as error:  # noqa: BLE001 - carried over to the caller
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    @property
    def is_done(self) -> bool:
        """Whether it has returned."""
        return self.future.done()

    def result(self) -> T | HardwareError:
        """The result, or why there is none; what else the call raised is raised."""
        if not self.is_done or self.future.cancelled():
            return DeviceHung(self.hangs)
        error = self.future.exception()
        return error if isinstance(error, HardwareError) else self.future.result()


@dataclass(slots=True)
class _KeyQueue:
    """The calls of a key."""

    key: str
    waiting: deque[_Job[Any]] = field(default_factory=deque)
    current: _Job[Any] | None = None
    """The running call."""
    started: float = 0.0
    """When it began."""
    abandoned_at: float | None = None

    def note_timeout(self) -> None:
        """Abandon the running call if nobody waits for it, since another caller waited in vain."""
        # One whose caller waits may be slow and yet fine: programming a card may take minutes.
        if self.abandoned_at is None and self.current and not self.current.has_caller:
            self.abandoned_at = time.monotonic()


class BlockingCalls:
    """Makes calls that may hang, from any thread or event loop.

    At most `max_threads` calls run or hang at once; beyond, new keys are refused.
    """

    def __init__(self, *, max_threads: int = MAX_THREADS) -> None:
        self._max_threads = max_threads
        self._lock = threading.Lock()
        self._queues: dict[str, _KeyQueue] = {}

    @property
    def abandoned(self) -> Mapping[str, float]:
        """The keys with a hanging call, and the seconds since it was abandoned."""
        now = time.monotonic()
        with self._lock:
            return {
                key: now - queue.abandoned_at
                for key, queue in self._queues.items()
                if queue.abandoned_at is not None
            }

    @property
    def busy(self) -> frozenset[str]:
        """The keys with a running call, abandoned or not."""
        with self._lock:
            return frozenset(self._queues)

    async def run(self, key: str, call: Callable[[], T], *, timeout: float, what: str) -> T:  # noqa: ASYNC109 - the call goes on after it
        """Make a call without blocking the event loop; `what` it does is for error messages.

        The `timeout` includes the seconds that earlier calls of the key take.

        Raises:
            DeviceHung: The call took too long, or an earlier call of this key hangs.
            HardwareError: No thread can be started.
        """
        job = self._submit(key, call, timeout, what)
        future, is_late = asyncio.wrap_future(job.future), False
        try:
            await asyncio.wait([future], timeout=timeout)
            is_late = not future.done()
            if is_late:
                raise DeviceHung(job.hangs)
            return await future
        finally:
            future.cancel()  # before it begins; a running call can't be cancelled
            self._leave(key, job, late=is_late)

    async def run_each(
        self,
        calls: Sequence[Call[T]],
        *,
        timeout: float,  # noqa: ASYNC109 - the calls go on after it
    ) -> list[T | HardwareError]:
        """Make many calls, of which some may hang; return the results in their order.

        They are made in turn until one is slow: all others are made at once then. So those that
        hang delay the rest by `SLOW_SECONDS`, and together the answer by the `timeout` more.
        """
        begun: list[_Job[T] | HardwareError] = []
        is_over, late = threading.Event(), set[_Job[T]]()
        try:
            # In a thread of its own: a round of the event loop for each call would cost more than
            # most calls.
            await asyncio.to_thread(self._begin_each, calls, timeout, begun, is_over)
            late.update(each for each in begun if isinstance(each, _Job) and not each.is_done)
            if late:
                await asyncio.to_thread(wait, [job.future for job in late], timeout)
                late = {job for job in late if not job.is_done}
                for job in late:
                    job.future.cancel()  # before it begins; a running call can't be cancelled
        except asyncio.CancelledError:
            late.clear()
            raise
        finally:
            is_over.set()
            for call, one in zip(calls, begun, strict=False):
                if isinstance(one, _Job):
                    self._leave(call.key, one, late=one in late)
        return [each if isinstance(each, HardwareError) else each.result() for each in begun]

    def _begin_each(
        self,
        calls: Sequence[Call[T]],
        timeout: float,
        begun: "list[_Job[T] | HardwareError]",
        is_over: threading.Event,
    ) -> None:
        """Begin calls, in turn until one is slow, unless their caller has gone."""
        is_in_turn = True
        for each in calls:
            if is_over.is_set():
                return
            try:
                job = self._submit(each.key, each.make, timeout, each.what)
            except HardwareError as error:
                begun.append(error)
                continue
            begun.append(job)
            if is_over.is_set():  # since a moment
                self._leave(each.key, job, late=False)
                return
            if is_in_turn:
                done, _ = wait([job.future], timeout=min(SLOW_SECONDS, timeout))
                is_in_turn = bool(done)

    def _submit(self, key: str, call: Callable[[], T], timeout: float, what: str) -> _Job[T]:
        job = _Job(call, f"{what} hangs: no answer within {timeout:g} s")
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._start(key, what)
            elif time.monotonic() - queue.started >= timeout:
                # If its caller was cancelled before its own timeout, this caller's counts.
                queue.note_timeout()
            if queue.abandoned_at is not None and queue.current is not None:
                hangs = queue.current.hangs
                # The same sentence as before, where the same is tried again: it is logged once.
                refused = f"{what} was not tried, since {hangs}"
                raise DeviceHung(hangs if hangs == job.hangs else refused)
            queue.waiting.append(job)
        return job

    def _start(self, key: str, what: str) -> _KeyQueue:
        if len(self._queues) >= self._max_threads:
            raise HardwareError(
                f"{what} was not tried: {len(self._queues)} other calls run already"
            )
        queue = self._queues[key] = _KeyQueue(key)
        # A daemon: one that hangs doesn't keep the process from exiting.
        thread = threading.Thread(target=self._work, args=(queue,), name=key, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # too many threads, in this process or its container
            del self._queues[key]
            raise HardwareError(f"no thread for {what}: {error}") from error
        return queue

    def _leave(self, key: str, job: _Job[T], *, late: bool) -> None:
        """Note that nobody waits for a call any more, `late` if because of a timeout."""
        with self._lock:
            job.has_caller = False
            queue = self._queues.get(key)
            if queue is None:
                return
            with suppress(ValueError):
                # One that is still queued must not happen later, and may hold a bitstream.
                queue.waiting.remove(job)
            if late:
                queue.note_timeout()

    def _work(self, queue: _KeyQueue) -> None:
        """Make the calls of a key until none is queued; in its thread."""
        while True:
            with self._lock:
                queue.current, queue.abandoned_at = None, None
                if not queue.waiting:
                    del self._queues[queue.key]
                    return
                job = queue.waiting.popleft()
                if not job.future.set_running_or_notify_cancel():
                    continue
                queue.current, queue.started = job, time.monotonic()
            job.make()


class DaemonExecutor(ThreadPoolExecutor):
    """A thread per call, for the event loop's own calls (name lookups) and checks of the doctor."""

    # `ThreadPoolExecutor`, which asyncio requires, joins its threads when the process exits: a
    # lookup that hangs would keep it from ending.

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Start a call, as `Executor.submit`."""
        job = _Job(partial(fn, *args, **kwargs))
        job.future.set_running_or_notify_cancel()
        threading.Thread(target=job.make, name="lookup", daemon=True).start()
        return job.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - the base class's signature
        """Do nothing: the threads end by themselves."""
