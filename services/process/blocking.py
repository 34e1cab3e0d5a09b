"""Calls that may hang, in threads that can be abandoned.

A read below `/sys`, an ioctl or a dead network disk can block in the kernel forever, and no timeout
ends it. So such a call runs in a daemon thread, and its caller waits for a limited time. Each call
has a **key** that names its subject (a card, the kubelet's files):

1. Calls of one key run one after the other in one thread, which ends when its queue is empty.
2. A caller that gives up, at its timeout or because it is cancelled, removes its call from the
   queue if the call hasn't started.
3. A call that continues after its caller's timeout leaves its key **abandoned**: other calls of the
   key are refused until it returns. So a key has at most one hanging thread, and its queue can't
   grow. A call whose caller was cancelled counts as abandoned once another caller's timeout has
   passed.

Hanging daemon threads don't prevent the process from exiting.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, ParamSpec, TypeVar

from services.process.errors import DeviceHung, HardwareError

T = TypeVar("T")
P = ParamSpec("P")

MAX_THREADS: Final = 256
"""Threads that may run or hang at once; each costs some tens of KiB."""


class _GivenUp(DeviceHung):
    """A call that was abandoned or refused, unlike a call that raised `DeviceHung` itself."""


@dataclass(eq=False, slots=True)
class _Job(Generic[T]):
    """A call, and the error of its caller if it hangs."""

    call: Callable[[], T]
    hangs: str = ""
    future: "Future[T]" = field(default_factory=Future)
    has_caller: bool = True

    def make(self) -> None:
        """Make the call; its result or its error goes to the caller."""
        try:
            result = self.call()
        except BaseException as error:  # noqa: BLE001 - carried over to the caller
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


@dataclass(slots=True)
class _KeyQueue:
    """The calls of a key; `current` is running."""

    waiting: deque[_Job[Any]] = field(default_factory=deque)
    current: _Job[Any] | None = None
    started: float = 0.0
    abandoned_at: float | None = None

    def note_timeout(self) -> None:
        """Note a caller's timeout: abandon the running call if it has no caller."""
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
        """Make a call without blocking the event loop.

        The `timeout` includes the seconds that earlier calls of the key take; `what` the call does
        is for error messages.

        Raises:
            DeviceHung: The call took too long, or an earlier call of this key hangs.
            HardwareError: No thread can be started.
        """
        job = self._submit(key, call, timeout, what)
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await asyncio.wrap_future(job.future)
        except TimeoutError as error:
            if not limit.expired():
                raise  # the call's own
            if job.future.done() and not job.future.cancelled():
                return job.future.result()  # it finished at the last moment
            raise _GivenUp(job.hangs) from error
        finally:
            self._leave(key, job, late=limit.expired())

    def run_sync(self, key: str, call: Callable[[], T], *, timeout: float, what: str) -> T:
        """Make a call and block until it is done; otherwise as `run`."""
        return self._wait(key, self._submit(key, call, timeout, what), timeout)

    def run_each(
        self, calls: Mapping[str, Callable[[], T]], *, timeout: float, what: str
    ) -> dict[str, T]:
        """Make calls of different keys in parallel; return the results of those that answered.

        Raises:
            HardwareError: No thread can be started.
            Exception: The first error that a call raised, when the others are done.
        """
        jobs: dict[str, _Job[T]] = {}
        for key, call in calls.items():
            try:
                jobs[key] = self._submit(key, call, timeout, what)
            except HardwareError as error:
                if not jobs and not isinstance(error, _GivenUp):
                    raise
        results: dict[str, T] = {}
        first: Exception | None = None
        deadline = time.monotonic() + timeout
        for key, job in jobs.items():
            try:
                results[key] = self._wait(key, job, max(0.0, deadline - time.monotonic()))
            except _GivenUp:
                continue
            except Exception as error:  # noqa: BLE001 - raised when the others are done
                first = first or error
        if first is not None:
            raise first
        return results

    def run_all(
        self, key: str, calls: Mapping[str, Callable[[], T]], *, timeout: float, what: str
    ) -> dict[str, T]:
        """Make calls in one thread, that of `key`; if one of them hangs, the rest in parallel.

        `calls` are by the keys that they have in parallel; `timeout` is that of all together, then
        that of each. Otherwise as `run_each`.
        """
        hung = self.abandoned
        rest = {each: call for each, call in calls.items() if each not in hung}
        results: dict[str, T] = {}
        given_up = threading.Event()

        def one_after_the_other() -> None:
            for each, call in rest.items():
                found = call()
                if given_up.is_set():
                    return
                results[each] = found

        if not rest:
            return results
        try:
            self.run_sync(key, one_after_the_other, timeout=timeout, what=what)
        except _GivenUp:
            given_up.set()
            answered = dict(results)
            others = {each: call for each, call in rest.items() if each not in answered}
            return answered | self.run_each(others, timeout=timeout, what=what)
        return results

    def _submit(self, key: str, call: Callable[[], T], timeout: float, what: str) -> _Job[T]:
        job = _Job(call, f"{what} hangs: no answer within {timeout:g} s")
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._start(key, what)
            elif time.monotonic() - queue.started >= timeout:
                queue.note_timeout()
            if queue.abandoned_at is not None and queue.current is not None:
                hangs = queue.current.hangs
                # The same sentence as before, where the same is tried again: it is logged once.
                refused = f"{what} was not tried, since {hangs}"
                raise _GivenUp(hangs if hangs == job.hangs else refused)
            queue.waiting.append(job)
        return job

    def _start(self, key: str, what: str) -> _KeyQueue:
        if len(self._queues) >= self._max_threads:
            raise _GivenUp(f"{what} was not tried: {len(self._queues)} other calls run already")
        queue = self._queues[key] = _KeyQueue()
        thread = threading.Thread(target=self._work, args=(key, queue), name=key, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # too many threads, in this process or its container
            del self._queues[key]
            raise HardwareError(f"no thread for {what}: {error}") from error
        return queue

    def _wait(self, key: str, job: _Job[T], timeout: float) -> T:
        late = False
        try:
            # What the system can wait at most, centuries.
            return job.future.result(min(timeout, threading.TIMEOUT_MAX))
        except TimeoutError as error:
            if job.future.done():
                return job.future.result()  # the call's own, or in the last moment
            late = True
            raise _GivenUp(job.hangs) from error
        finally:
            self._leave(key, job, late=late)

    def _leave(self, key: str, job: _Job[T], *, late: bool) -> None:
        """Remove a call without a caller from the queue; it may hold a bitstream."""
        with self._lock:
            job.has_caller = False
            queue = self._queues.get(key)
            if queue is None:
                return
            with suppress(ValueError):
                queue.waiting.remove(job)
            if late:
                queue.note_timeout()

    def _work(self, key: str, queue: _KeyQueue) -> None:
        while self._make_next(key, queue):
            pass

    def _make_next(self, key: str, queue: _KeyQueue) -> bool:
        """Make a call, and keep no reference to it: its result may be a whole bitstream."""
        with self._lock:
            queue.current, queue.abandoned_at = None, None
            if not queue.waiting:
                del self._queues[key]
                return False
            job = queue.waiting.popleft()
            if not job.future.set_running_or_notify_cancel():
                return True
            queue.current, queue.started = job, time.monotonic()
        job.make()
        return True


class DaemonExecutor(ThreadPoolExecutor):
    """An executor with a daemon thread per call, which doesn't delay the exit of the process.

    For the event loop's own calls (name lookups).
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Start a call, as `Executor.submit`."""
        job = _Job(partial(fn, *args, **kwargs))
        job.future.set_running_or_notify_cancel()
        threading.Thread(target=job.make, name="lookup", daemon=True).start()
        return job.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - the base class's signature
        """Do nothing: the threads end by themselves."""
