"""A thread for what may hang, and an event loop that never waits for it.

Reading sysfs can block in the kernel for ever. A `Worker` runs such calls one after the other in a
daemon thread: the caller gives up at a deadline, calls that nobody waits for any more are skipped,
and the process can end while a call still hangs (threads of an ordinary executor are joined at
exit).
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

from services.domain.errors import HardwareError

T = TypeVar("T")
P = ParamSpec("P")

_Job = tuple[Callable[[], Any], "Future[Any]"]
_END: Final = None


class Worker:
    """One daemon thread and the calls it has to do.

    Args:
        name: The thread's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, call: Callable[[], T], *, seconds: float, what: str) -> T:
        """The result of a call, made in the thread.

        Args:
            call: What to call.
            seconds: How long to wait, for earlier calls too.
            what: What the call does, for the message.

        Raises:
            HardwareError: It took too long, or the system gives no thread.
        """
        if self._thread is None:
            self._thread = self._start()
        future: Future[T] = Future()
        self._jobs.put((call, future))
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            if not limit.expired():
                raise  # the call's own
            raise HardwareError(f"{what} hangs: no answer within {seconds:g} s") from error

    def _start(self) -> threading.Thread:
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # too many threads, in this process or its container
            raise HardwareError(f"no thread for {self._name}: {error}") from error
        return thread

    def close(self) -> None:
        """Lets the thread end after the calls it has."""
        self._jobs.put(_END)

    def _work(self) -> None:
        while self._next():
            pass

    def _next(self) -> bool:
        """Does a call, and holds nothing of it after that: a result may be a whole bitstream."""
        job = self._jobs.get()
        if job is _END:
            return False
        _do(*job)
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
