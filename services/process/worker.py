"""A thread for what may hang, and an event loop that never waits for it.

Reading sysfs can block in the kernel for ever. A `Worker` runs such calls one after the other in a
daemon thread, and is in one of these states:

- **free**: calls are queued and made in their order. A caller that gives up, at its deadline or
  since it is cancelled, takes its call out of the queue.
- **stuck**: the call in hand was given up and has not returned. Until it returns, all other calls
  are refused at once, so that nothing piles up behind it.

The process can end while a call still hangs (threads of an ordinary executor are joined at exit).
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

from services.process.errors import HardwareError

T = TypeVar("T")
P = ParamSpec("P")

_Job = tuple[Callable[[], Any], "Future[Any]", str]
"""What to call, what comes of it, and what is said if it hangs."""
_END: Final = None


class Worker:
    """One daemon thread and the calls it has to do.

    Args:
        name: The thread's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: deque[_Job | None] = deque()
        self._changed = threading.Condition()
        """Guards all of this, and is notified of new jobs."""
        self._current: _Job | None = None
        self._abandoned = False
        """Whether the caller of the current call has gone."""
        self._stuck = False
        self._thread: threading.Thread | None = None

    async def run(self, call: Callable[[], T], *, seconds: float, what: str) -> T:
        """The result of a call, made in the thread.

        Args:
            call: What to call.
            seconds: How long to wait, for earlier calls too.
            what: What the call does, for the message.

        Raises:
            HardwareError: It took too long, an earlier call hangs, or the system gives no thread.
        """
        if self._thread is None:
            self._thread = self._start()
        future: Future[T] = Future()
        hangs = f"{what} hangs: no answer within {seconds:g} s"
        self._submit((call, future, hangs), what)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            if not limit.expired():
                raise  # the call's own
            raise HardwareError(hangs) from error
        finally:
            self._leave(future, late=limit.expired())

    @property
    def waiting(self) -> int:
        """How many calls are queued, without the one in hand."""
        with self._changed:
            return len(self._jobs)

    def _submit(self, job: _Job, what: str) -> None:
        with self._changed:
            if self._stuck and self._current is not None:
                hangs = self._current[2]
                # The same sentence as before, where the same is tried again: it is logged once.
                raise HardwareError(
                    hangs if hangs == job[2] else f"{what} was not tried, since {hangs}"
                )
            self._jobs.append(job)
            self._changed.notify()

    def _leave(self, future: "Future[Any]", *, late: bool) -> None:
        """Nobody waits for a call any more: takes it out of the queue, or sees if it hangs."""
        with self._changed:
            self._jobs = deque(job for job in self._jobs if job is None or job[1] is not future)
            if self._current is None:
                return
            self._abandoned |= self._current[1] is future
            self._stuck |= late and self._abandoned

    def _start(self) -> threading.Thread:
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # too many threads, in this process or its container
            raise HardwareError(f"no thread for {self._name}: {error}") from error
        return thread

    def close(self) -> None:
        """Lets the thread end after the calls it has."""
        with self._changed:
            self._jobs.append(_END)
            self._changed.notify()

    def _work(self) -> None:
        while self._next():
            pass

    def _next(self) -> bool:
        """Does a call, and holds nothing of it after that: a result may be a whole bitstream."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs)
            job = self._jobs.popleft()
            if job is _END:
                return False
            self._current = job
        _do(job[0], job[1])
        with self._changed:
            self._current, self._abandoned, self._stuck = None, False, False
        return True


class DaemonExecutor(ThreadPoolExecutor):
    """An executor whose threads keep nobody from leaving; one short-lived thread a call.

    For the event loop's own needs (looking up names), which otherwise hold up the exit.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """As any executor's."""
        future: Future[T] = Future()
        job = (lambda: fn(*args, **kwargs), future)
        threading.Thread(target=_do, args=job, name="lookup", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - the base class's signature
        """Nothing to do: threads end by themselves."""


def _do(call: Callable[[], Any], future: "Future[Any]") -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - carried over to who awaits it
        future.set_exception(error)
    else:
        future.set_result(result)
