"""A folder of YAML files that others write: its files, and what to do when they change.

Changes are found by polling: name, inode, times and size of each file, several times a second.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Generic, NoReturn, TypeAlias, TypeVar

from services.process.errors import ExternalFailure
from services.process.files import open_regular
from services.process.outage import Outage

T = TypeVar("T")

SUFFIXES: Final = (".yaml", ".yml", ".json")
INTERVAL: Final = 0.25
MAX_WAIT: Final = 5.0
"""Seconds after which a folder that keeps changing is loaded as it is."""

Signature: TypeAlias = tuple[tuple[object, ...], ...]


def yaml_files(directory: Path, *, what: str) -> list[Path]:
    """The files of a folder that count, by name; the folder is one of `what`.

    Raises:
        ExternalFailure: The folder doesn't exist or can't be listed.
    """
    try:
        paths = sorted(directory.iterdir())
    except OSError as error:
        raise ExternalFailure(f"the folder of {what} {directory}: {error.strerror}") from error
    # Without hidden ones, a mounted ConfigMap is read once: its files are links into `..data`.
    return [
        path
        for path in paths
        if path.name.lower().endswith(SUFFIXES) and not path.name.startswith(".")
    ]


def read_file(path: Path, limit: int) -> bytes:
    """The content of a file, at most one byte more than the limit.

    Raises:
        OSError: It can't be read, or is no regular file.
    """
    with open_regular(path, follow_links=True) as file:
        return file.read(limit + 1)


def signature(directory: Path, *, what: str) -> Signature:
    """The state of a folder for comparison; raises as `yaml_files`."""
    return tuple((path.name, *_state(path)) for path in yaml_files(directory, what=what))


def _state(path: Path) -> tuple[object, ...]:
    try:
        state = path.stat()
    except OSError as error:
        return (error.errno,)
    # Unlike the modification time, no program can set back the inode's change time.
    return state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size


class FolderPoll(Generic[T]):
    """Loads a folder of `what`, and loads it again after each change.

    `load` reads the folder in a thread, `on_load` gets the result. What was loaded last stays in
    use while the folder can't be read.
    """

    def __init__(
        self,
        directory: Path,
        *,
        what: str,
        load: Callable[[Path], T],
        on_load: Callable[[T], None],
        log: Any,  # noqa: ANN401 - structlog's loggers are untyped
        interval: float = INTERVAL,
    ) -> None:
        self.loaded = False
        self._directory = directory
        self._what = what
        self._load = load
        self._on_load = on_load
        self._outage = Outage(
            log,
            f"{what} not loaded, the previous ones stay in use",
            f"the folder of {what} can be read again",
            folder=str(directory),
        )
        self._interval = interval
        self._confirmed = time.monotonic()
        self._signature: Signature | None = None
        self._pending: Signature | None = None

    @property
    def error(self) -> str:
        """Why the folder can't be read now; empty if it can."""
        return self._outage.reason

    @property
    def age(self) -> float:
        """Seconds since the last poll that found what is in use unchanged."""
        return time.monotonic() - self._confirmed

    def load(self) -> None:
        """Load the folder at the start.

        Raises:
            ExternalFailure: It can't be read.
        """
        self._signature = signature(self._directory, what=self._what)
        self._use(self._load(self._directory))

    async def follow(self) -> NoReturn:
        """Poll for changes and load them until cancelled, whatever errors occur."""
        while True:
            begun = time.perf_counter()
            await self._poll()
            # A folder that takes long to poll is polled less often.
            cost = time.perf_counter() - begun
            await asyncio.sleep(max(self._interval, 20 * cost))

    async def _poll(self) -> None:
        try:
            state = signature(self._directory, what=self._what)
            overdue = self.age > MAX_WAIT
            # Two polls that agree: a file that is being written isn't read half.
            if state != self._signature and (state == self._pending or overdue):
                self._use(await asyncio.to_thread(self._load, self._directory))
                self._signature = state
            self._pending = state
        except ExternalFailure as error:
            self._outage.failed(str(error))
        except Exception as error:  # noqa: BLE001 - of ours; the next poll tries again
            self._outage.failed(f"accelbind failed while reading them: {error!r:.200}")
        else:
            if state == self._signature:
                self._settle()

    def _use(self, loaded: T) -> None:
        self._on_load(loaded)
        self.loaded = True
        self._settle()

    def _settle(self) -> None:
        self._confirmed = time.monotonic()
        self._outage.ended()
