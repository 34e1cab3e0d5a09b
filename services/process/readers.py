"""Doing what may hang: in threads that can be left behind.

A read below `/sys` runs code of the card's driver, and a driver that waits for a dead card waits
for ever: no timeout, no signal and no close ends that read. So `Readers` makes reads in threads
other than its caller's, and gives each a time within which it must answer:

1. One thread does the jobs in their order. That is all there is to it where nothing hangs, and the
   thread ends with the last job.
2. When the job in hand has made no progress for as long as the patience lasts, its thread is **left
   behind** with it. The jobs that are left go on in new threads, four times as many each time that
   happens, so that a node on which everything hangs is through in a few rounds.
3. A job that was left behind is **stuck**: until its read returns, no job of that key is started
   again. Then its thread ends, what it read is dropped, and the key is free.

So there is at most one thread for each thing that hangs, `most` in all, and between two runs none
but those. They are daemon threads: a process can end while they hang.

The time is counted in looks of the waiting thread, and not by the clock alone: a process that was
stopped, or a machine that slept, makes no read late.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from services.process.errors import HardwareError

PATIENCE: Final = 1.0
"""Seconds within which a job must answer; a card is read in a fraction of a millisecond."""

MOST: Final = 128
"""Threads that may be left behind; each costs some tens of KiB."""

_LOOKS: Final = 4
"""Looks at a job within the patience; if none of them sees progress, it is left behind."""

_GROWTH: Final = 4

T = TypeVar("T")


class Readers:
    """Does jobs that may hang. One call of `run` at a time.

    Args:
        name: What its threads are called.
        patience: Seconds within which a job must answer.
        most: How many threads may be left behind.
    """

    def __init__(self, name: str, *, patience: float = PATIENCE, most: int = MOST) -> None:
        self.patience = patience
        self._name = name
        self._most = most
        self._stuck: dict[str, None] = {}
        self._lock = threading.Lock()

    @property
    def stuck(self) -> tuple[str, ...]:
        """Keys of the jobs that hang, the longest first; each has a thread."""
        with self._lock:
            return tuple(self._stuck)

    def run(self, jobs: Mapping[str, Callable[[], T]]) -> dict[str, T]:
        """What the jobs give, by their keys.

        Args:
            jobs: What to do, by a key that says what it is about.

        Returns:
            The results, without those of jobs that hang or were not begun, since as many hang
            as there may.

        Raises:
            HardwareError: The system gives no thread.
            Exception: What a job raised, once the others are done.
        """
        stuck = set(self.stuck)
        todo = deque(item for item in jobs.items() if item[0] not in stuck)
        work: _Work[T] = _Work(todo, self._stuck, self._lock)
        width = 1
        while work.todo:
            count = min(width, len(work.todo), self._most - len(self.stuck))
            lanes = self._start(work, count)
            if not lanes:
                break
            while not work.idle.wait(self.patience / _LOOKS):
                for lane in lanes:
                    lane.look()
            width *= _GROWTH
        if work.errors:
            raise work.errors[0]
        return work.results

    def _start(self, work: "_Work[T]", count: int) -> list["_Lane[T]"]:
        lanes: list[_Lane[T]] = []
        for _ in range(count):
            lane = _Lane(work)
            with self._lock:
                work.begin()
            try:
                threading.Thread(target=lane.work, name=self._name, daemon=True).start()
            except RuntimeError as error:  # too many threads, in this process or its container
                with self._lock:
                    work.end()
                if not lanes:
                    raise HardwareError(f"no thread to read {self._name} in: {error}") from error
                break
            lanes.append(lane)
        return lanes


class _Work(Generic[T]):
    """What a run has to do and what has come of it, shared by its threads.

    Args:
        todo: The jobs that are not begun.
        stuck: The keys of all jobs that hang.
        lock: Guards all of this, and is held where a method is called.
    """

    def __init__(
        self,
        todo: "deque[tuple[str, Callable[[], T]]]",
        stuck: dict[str, None],
        lock: threading.Lock,
    ) -> None:
        self.todo = todo
        self.stuck = stuck
        self.lock = lock
        self.results: dict[str, T] = {}
        self.errors: list[BaseException] = []
        self.idle = threading.Event()
        """Set while no thread is at work on it, but those that were left behind."""
        self._threads = 0

    def begin(self) -> None:
        """A thread is about to work on it."""
        self._threads += 1
        self.idle.clear()

    def end(self) -> None:
        """A thread works on it no more."""
        self._threads -= 1
        if not self._threads:
            self.idle.set()


class _Lane(Generic[T]):
    """A thread of a run, as seen by itself and by who waits for it."""

    def __init__(self, work: _Work[T]) -> None:
        self._work = work
        self._key: str | None = None
        self._job = 0
        self._left = False
        self._seen, self._looks = 0, 0

    def look(self) -> None:
        """Looks how far it is, and leaves it behind if that has been the same for too long."""
        if self._seen != self._job:
            self._seen, self._looks = self._job, 0
            return
        self._looks += 1
        if self._looks < _LOOKS:
            return
        with self._work.lock:
            if self._key is not None and self._seen == self._job and not self._left:
                self._left = True
                self._work.stuck[self._key] = None
                self._work.end()

    def work(self) -> None:
        """Does jobs until there is none; what the thread does."""
        try:
            while (item := self._take()) is not None and self._do(*item):
                pass
        finally:
            with self._work.lock:
                if not self._left:
                    self._work.end()

    def _take(self) -> tuple[str, Callable[[], T]] | None:
        with self._work.lock:
            if not self._work.todo:
                return None
            item = self._work.todo.popleft()
            self._key = item[0]
            self._job += 1
            return item

    def _do(self, key: str, job: Callable[[], T]) -> bool:
        """Does a job; whether to go on."""
        try:
            result = job()
        except BaseException as error:  # noqa: BLE001 - carried over to the caller of the run
            if awaited := self._end(key):
                self._work.errors.append(error)
            return awaited
        if awaited := self._end(key):
            self._work.results[key] = result
        return awaited

    def _end(self, key: str) -> bool:
        """Ends a job; whether anybody has waited for it."""
        with self._work.lock:
            self._key = None
            if self._left:
                del self._work.stuck[key]
            return not self._left
