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
"""Work of many calls, such as reading all cards: it yields steps, and returns its result.

A step gives what its call returns or raises. It raises `DeviceHung` if its call hangs, and
`HardwareError` if there are too many threads to make it.
"""

MAX_THREADS: Final = 256
"""Threads that may run or hang at once; each costs some tens of KiB."""


@dataclass(eq=False, slots=True)
class _Work(Generic[T]):
    """The steps that are left of a piece of work, and how the last one ended."""

    steps: Steps[T]
    hangs: str
    """What a step that hangs raises."""
    result: Any = None
    error: BaseException | None = None

    def next_step(self) -> Step:
        """Return the next step, or raise a `StopIteration` with the result of the work."""
        result, error, self.result, self.error = self.result, self.error, None, None
        return self.steps.send(result) if error is None else self.steps.throw(error)

    def refuse(self, error: HardwareError) -> T:
        """Make no more steps; return the result of the work without them."""
        try:
            while True:
                self.next_step()
                # Not DeviceHung: the step's own card may be fine.
                self.error = HardwareError(str(error))
        except StopIteration as end:
            result: T = end.value
            return result


@dataclass(eq=False, slots=True)
class _Job(Generic[T]):
    """A call."""

    call: Callable[[], T]
    hangs: str = ""
    """What its caller raises if it hangs."""
    future: "Future[T]" = field(default_factory=Future)
    has_caller: bool = True
    work: _Work[Any] | None = None
    """What it makes the steps of."""
    is_aside: bool = False
    """Whether it hangs in a step, or was queued behind that: another one goes on with the work."""

    def make(self) -> None:
        try:
            result = self.call()
        except BaseException as error:  # noqa: BLE001 - carried over to the caller
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


@dataclass(slots=True)
class _KeyQueue:
    """The calls of a key."""

    key: str
    waiting: deque[_Job[Any]] = field(default_factory=deque)
    current: _Job[Any] | None = None
    """The running call."""
    step: str = ""
    """The key of the step that it is in, if it makes steps."""
    started: float = 0.0
    """When the call or the step began."""
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

    async def run_steps(self, key: str, steps: Steps[T], *, timeout: float) -> T:  # noqa: ASYNC109 - a step goes on after it
        """Make steps without blocking the event loop; return the result of the work.

        One thread makes all of them. Each may take `timeout` seconds: then it is abandoned with its
        thread, under its own key, and another thread goes on. Calls of the key must all be steps.

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
                # A step that hangs is abandoned by `_seconds_left`, whoever waits for it.
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
        """Have the steps that are left made; they are refused if too many threads run."""
        with self._lock:
            try:
                queue = self._queues.get(key) or self._start(key, f"reading {key}")
            except DeviceHung as error:
                refused: _Job[T | None] = _Job(lambda: None)
                refused.future.set_result(work.refuse(error))
                return refused
            job: _Job[T | None] = _Job(lambda: self._make_steps(queue, job, work), work=work)
            queue.waiting.append(job)
        return job

    def _make_steps(self, queue: _KeyQueue, job: _Job[T | None], work: _Work[T]) -> T | None:
        """In a thread: make steps until none is left. None if it was left behind in one of them."""
        while True:
            try:
                step, call = work.next_step()
            except StopIteration as end:
                result: T = end.value
                return result
            with self._lock:
                if step in self._queues:  # a thread hangs in it since an earlier round
                    work.error = DeviceHung(work.hangs)
                    continue
                # Published, so that whoever waits knows what hangs, and since when.
                queue.step, queue.started = step, time.monotonic()
            result_of_step, error = _outcome(call)
            with self._lock:
                queue.step = ""
                # Another thread has the work by now: a late answer must not get into it.
                if job.is_aside:
                    return None
                work.result, work.error = result_of_step, error

    def _seconds_left(self, key: str, job: _Job[T | None], timeout: float) -> float | None:
        """How long the present step of a key may still take; None if the job is over."""
        with self._lock:
            queue = self._queues.get(key)
            if queue is not None and queue.step and not job.future.done():
                # It may be a step of another call, which this one is queued behind.
                left = queue.started + timeout - time.monotonic()
                if left > 0:
                    return left
                self._set_aside(queue)
            # Between two steps: there is something to see after one more timeout at the latest.
            return None if job.is_aside or job.future.done() else timeout

    def _set_aside(self, queue: _KeyQueue) -> None:
        """Leave a step that hangs behind with its thread, under its own key."""
        del self._queues[queue.key]  # free for the thread that goes on
        queue.key = queue.step
        self._queues[queue.key] = queue
        queue.abandoned_at = time.monotonic()
        # Their callers submit what is left, to the other thread.
        for job in (queue.current, *queue.waiting):
            if job is not None:
                job.is_aside = True
        if queue.current is not None and queue.current.work is not None:
            # For the generator, which is suspended in this step.
            queue.current.work.error = DeviceHung(queue.current.work.hangs)
        queue.waiting.clear()

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
            raise DeviceHung(f"{what} was not tried: {len(self._queues)} other calls run already")
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


def _outcome(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What a call returns, or what it raises."""
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001 - its step raises it
        return None, error


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
