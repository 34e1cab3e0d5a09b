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

Work of many steps, such as reading all cards, is a generator of steps (`Steps`). One thread makes
them all, and publishes which one it makes. A step that takes too long is abandoned with its thread,
under a key of its own, and another thread goes on with the rest.

Hanging daemon threads don't prevent the process from exiting.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, ParamSpec, TypeAlias, TypeVar, cast

from services.process.errors import DeviceHung, HardwareError

T = TypeVar("T")
P = ParamSpec("P")

Step: TypeAlias = tuple[str, Callable[[], Any]]
"""A key of its own, and a call that may hang."""

Steps: TypeAlias = Generator[Step, Any, T]
"""Work as steps, each of which yields what its call returns or raises; and the work's result.

A step raises `DeviceHung` if its call hangs, and `HardwareError` if it is not made for want of
threads.
"""

MAX_THREADS: Final = 256
"""Threads that may run or hang at once; each costs some tens of KiB."""


class _Abandoned(DeviceHung):
    """A call that was abandoned or refused, unlike a call that raised `DeviceHung` itself."""


@dataclass(eq=False, slots=True)
class _Work(Generic[T]):
    """The steps that are left of a piece of work, and how the last one ended."""

    steps: Steps[T]
    hangs: str
    result: Any = None
    error: Exception | None = None

    def next_step(self) -> Step:
        """Return the next step, or raise a `StopIteration` with the result of the work."""
        result, error, self.result, self.error = self.result, self.error, None, None
        return self.steps.send(result) if error is None else self.steps.throw(error)

    def refuse(self, error: HardwareError) -> T:
        """Make no more steps; return the result of the work without them."""
        try:
            while True:
                self.next_step()
                self.error = HardwareError(str(error))
        except StopIteration as end:
            result: T = end.value
            return result


@dataclass(eq=False, slots=True)
class _Job(Generic[T]):
    """A call, and the error of its caller if it hangs."""

    call: Callable[[], T]
    hangs: str = ""
    future: "Future[T]" = field(default_factory=Future)
    has_caller: bool = True
    work: _Work[Any] | None = None
    """What it makes the steps of."""
    is_aside: bool = False
    """Whether its thread hangs in a step, so that another one has to go on with the work."""

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
    """The calls of a key; `current` is running, in `step` if it makes steps."""

    key: str
    step: str = ""
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
        future, is_late = asyncio.wrap_future(job.future), False
        try:
            await asyncio.wait([future], timeout=timeout)
            is_late = not future.done()
            if is_late:
                raise _Abandoned(job.hangs)
            return await future
        finally:
            future.cancel()
            self._leave(key, job, late=is_late)

    async def run_steps(self, key: str, steps: Steps[T], *, timeout: float) -> T:  # noqa: ASYNC109 - a step goes on after it
        """Make steps without blocking the event loop; return the result of the work.

        Each step may take `timeout` seconds. Calls of the key must all be steps.

        Raises:
            HardwareError: No thread can be started.
        """
        work = _Work(steps, f"no answer within {timeout:g} s")
        while True:
            job = self._submit_steps(key, work)
            future = asyncio.wrap_future(job.future)
            try:
                while (pause := self._seconds_left(key, job, timeout)) is not None:
                    await asyncio.wait([future], timeout=pause)
                if not job.is_aside:
                    return cast("T", await future)
            finally:
                future.cancel()
                self._leave(key, job, late=False)

    def run_steps_sync(self, key: str, steps: Steps[T], *, timeout: float) -> T:
        """Make steps and block until they are made; otherwise as `run_steps`."""
        work = _Work(steps, f"no answer within {timeout:g} s")
        while True:
            job = self._submit_steps(key, work)
            while (pause := self._seconds_left(key, job, timeout)) is not None:
                wait_for([job.future], timeout=pause)
            if not job.is_aside:
                return cast("T", job.future.result())

    def _submit_steps(self, key: str, work: _Work[T]) -> _Job[T | None]:
        """Have the steps that are left made; they are refused if too many threads hang."""
        job: _Job[T | None] = _Job(lambda: self._make_steps(key, job, work), work=work)
        with self._lock:
            try:
                queue = self._queues.get(key) or self._start(key, f"reading {key}")
            except _Abandoned as error:
                job.future.set_result(work.refuse(error))
            else:
                queue.waiting.append(job)
        return job

    def _make_steps(self, key: str, job: _Job[T | None], work: _Work[T]) -> T | None:
        """Make steps until none is left; in a thread. None if it was left behind in one of them."""
        with self._lock:
            queue = self._queues[key]
        while True:
            try:
                step, call = work.next_step()
            except StopIteration as end:
                result: T = end.value
                return result
            with self._lock:
                if step in self._queues:  # it was left behind before
                    work.error = _Abandoned(work.hangs)
                    continue
                queue.step, queue.started = step, time.monotonic()
            made = _Job(call)
            made.make()
            with self._lock:
                queue.step = ""
                if job.is_aside:
                    return None
            try:
                work.result = made.future.result()
            except Exception as error:  # noqa: BLE001 - the step raises it
                work.error = error

    def _seconds_left(self, key: str, job: _Job[T | None], timeout: float) -> float | None:
        """How long the present step of a key may still take; None if the job is over."""
        with self._lock:
            queue = self._queues.get(key)
            if queue is not None and queue.step and not job.future.done():
                left = queue.started + timeout - time.monotonic()
                if left > 0:
                    return left
                self._set_aside(queue)
            return None if job.is_aside or job.future.done() else timeout

    def _set_aside(self, queue: _KeyQueue) -> None:
        """Leave a step that hangs behind with its thread, under its own key."""
        del self._queues[queue.key]
        queue.key = queue.step
        self._queues[queue.key] = queue
        queue.abandoned_at = time.monotonic()
        for job in (queue.current, *queue.waiting):
            if job is not None:
                job.is_aside = True
        if queue.current is not None and queue.current.work is not None:
            queue.current.work.error = _Abandoned(queue.current.work.hangs)
        queue.waiting.clear()

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
                raise _Abandoned(hangs if hangs == job.hangs else refused)
            queue.waiting.append(job)
        return job

    def _start(self, key: str, what: str) -> _KeyQueue:
        if len(self._queues) >= self._max_threads:
            raise _Abandoned(f"{what} was not tried: {len(self._queues)} other calls run already")
        queue = self._queues[key] = _KeyQueue(key)
        thread = threading.Thread(target=self._work, args=(queue,), name=key, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # too many threads, in this process or its container
            del self._queues[key]
            raise HardwareError(f"no thread for {what}: {error}") from error
        return queue

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

    def _work(self, queue: _KeyQueue) -> None:
        while self._make_next(queue):
            pass

    def _make_next(self, queue: _KeyQueue) -> bool:
        """Make a call, and keep no reference to it: its result may be a whole bitstream."""
        with self._lock:
            queue.current, queue.abandoned_at = None, None
            if not queue.waiting:
                del self._queues[queue.key]
                return False
            job = queue.waiting.popleft()
            if not job.future.set_running_or_notify_cancel():
                return True
            queue.current, queue.started = job, time.monotonic()
        job.make()
        return True


class DaemonExecutor(ThreadPoolExecutor):
    """An executor with a daemon thread per call, which doesn't delay the exit of the process.

    For the event loop's own calls (name lookups), and for checks of the doctor.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Start a call, as `Executor.submit`."""
        job = _Job(partial(fn, *args, **kwargs))
        job.future.set_running_or_notify_cancel()
        threading.Thread(target=job.make, name="lookup", daemon=True).start()
        return job.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - the base class's signature
        """Do nothing: the threads end by themselves."""
