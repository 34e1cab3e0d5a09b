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
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor, wait
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


@dataclass(eq=False, slots=True)
class _Batch(Generic[T]):
    """Many calls, begun from two sides: by a thread in turn, and by their caller."""

    left: deque[tuple[int, Call[T]]]
    """The calls that are not begun, by their numbers."""
    begun: dict[int, _Job[T] | HardwareError] = field(default_factory=dict)
    over: "Future[None]" = field(default_factory=Future)
    """Done once the thread finds none left."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """For beginning one."""

    @property
    def jobs(self) -> list[_Job[T]]:
        return [each for each in self.begun.values() if isinstance(each, _Job)]


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
        job, _ = self._submit(key, call, timeout, what)
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

        A thread makes them in turn until one is slow, which it is left with: all others are begun
        at once then. So those that hang delay the rest by `SLOW_SECONDS`, and together the answer
        by the `timeout` more.
        """
        if not calls:
            return []
        batch, late = _Batch[T](deque(enumerate(calls))), list[_Job[T]]()
        try:
            await self._wait_in_turn(batch, timeout)
            while batch.left:
                self._begin_next(batch, timeout)
            late = [job for job in batch.jobs if not job.is_done]
            if late:
                await asyncio.to_thread(wait, [job.future for job in late], timeout)
                late = [job for job in late if not job.is_done]
                for job in late:
                    job.future.cancel()  # before it begins; a running call can't be cancelled
        except asyncio.CancelledError:
            late.clear()
            raise
        finally:
            with batch.lock:
                batch.left.clear()
            for number, one in batch.begun.items():
                if isinstance(one, _Job):
                    self._leave(calls[number].key, one, late=one in late)
        results = (batch.begun[number] for number in range(len(calls)))
        return [each.result() if isinstance(each, _Job) else each for each in results]

    async def _wait_in_turn(self, batch: "_Batch[T]", timeout: float) -> None:  # noqa: ASYNC109 - the calls go on after it
        """Have a thread make calls in turn; return once it has made all, or one is slow."""
        # A thread and a round of the event loop for each would cost more than most calls.
        thread = threading.Thread(target=self._make_in_turn, args=(batch, timeout), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # too many threads: each call says so
            return
        over, before = asyncio.wrap_future(batch.over), -1
        try:
            while not over.done() and before != len(batch.begun):
                before = len(batch.begun)
                await asyncio.wait([over], timeout=min(SLOW_SECONDS, timeout) / 2)
        finally:
            over.cancel()

    def _make_in_turn(self, batch: "_Batch[T]", timeout: float) -> None:
        while batch.left:
            self._begin_next(batch, timeout, in_turn=True)
        with suppress(InvalidStateError):  # nobody waits any more
            batch.over.set_result(None)

    def _begin_next(self, batch: "_Batch[T]", timeout: float, *, in_turn: bool = False) -> None:
        """Begin the next call of a batch, in a thread of its own, or make it now `in_turn`."""
        with batch.lock:
            if not batch.left:  # the other side was faster
                return
            number, call = batch.left.popleft()
            try:
                job, queue = self._submit(
                    call.key, call.make, timeout, call.what, starts=not in_turn
                )
            except HardwareError as error:
                batch.begun[number] = error
                return
            batch.begun[number] = job
        if queue is not None:
            self._work(queue)
        elif in_turn:  # another thread works for this key
            wait([job.future], timeout)

    def _submit(
        self, key: str, call: Callable[[], T], timeout: float, what: str, *, starts: bool = True
    ) -> "tuple[_Job[T], _KeyQueue | None]":
        """Queue a call; return what the caller has to work on, unless a thread of the key `starts`.

        Raises:
            HardwareError: An earlier call hangs, or there is no thread.
        """
        job, own = _Job(call, f"{what} hangs: no answer within {timeout:g} s"), None
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._add(key, what, starts=starts)
                own = None if starts else queue
            elif time.monotonic() - queue.started >= timeout:
                # If its caller was cancelled before its own timeout, this caller's counts.
                queue.note_timeout()
            if queue.abandoned_at is not None and queue.current is not None:
                hangs = queue.current.hangs
                # The same sentence as before, where the same is tried again: it is logged once.
                refused = f"{what} was not tried, since {hangs}"
                raise DeviceHung(hangs if hangs == job.hangs else refused)
            queue.waiting.append(job)
        return job, own

    def _add(self, key: str, what: str, *, starts: bool) -> _KeyQueue:
        if len(self._queues) >= self._max_threads:
            raise HardwareError(
                f"{what} was not tried: {len(self._queues)} other calls run already"
            )
        queue = self._queues[key] = _KeyQueue(key)
        if not starts:
            return queue
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
