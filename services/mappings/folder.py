"""Mappings from a folder of YAML files in the format of the custom resources.

For clusters whose mappings are in a ConfigMap, for Docker Compose and for the demo. The files are
read in the order of their names. A document with an error is reported and skipped.
"""

import asyncio
import collections.abc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

import structlog

from services.mappings.index import EMPTY_INDEX, MappingIndex, build_index
from services.mappings.kinds import ACCELERATOR, unknown_fields
from services.mappings.model import Mapping, MappingEntry, parse, reject
from services.process.errors import ExternalFailure, InvalidMapping
from services.process.files import read_file, yaml_files
from services.process.objects import is_kind
from services.process.outage import Outage
from services.process.yaml import BrokenDocument, read_documents

WHAT: Final = "mappings"
MAX_BYTES: Final = 32 * 1024 * 1024
"""Bytes of all files together: 100,000 mappings have about 25 MiB, which take a minute to read."""
MAX_LOGGED: Final = 100
INTERVAL: Final = 0.25
MAX_WAIT: Final = 5.0
"""Seconds after which a folder that keeps changing is loaded as it is."""

Signature: TypeAlias = tuple[tuple[object, ...], ...]

log = structlog.get_logger(component="mappings")


@dataclass(frozen=True, slots=True)
class FolderSnapshot:
    """The mappings of a folder at one moment."""

    index: MappingIndex = EMPTY_INDEX
    nameless: tuple[str, ...] = ()
    """A sentence for each document that is no mapping with a name."""
    unread: tuple[str, ...] = ()
    """A sentence for each file that can't be read."""

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each document or mapping that can't be used."""
        return *self.nameless, *self.index.reasons


def load_folder(directory: Path) -> FolderSnapshot:
    """Read the mappings of a folder; the reason of one that can't be used begins with its place.

    Raises:
        ExternalFailure: The folder doesn't exist or can't be listed.
    """
    entries: list[MappingEntry] = []
    nameless: list[str] = []
    unread: list[str] = []
    for where, value in read_folder(directory):
        if isinstance(value, ExternalFailure):
            unread.append(f"{where}: {value}")
        elif isinstance(value, BrokenDocument):
            nameless.append(f"{where}: {value.message}")
        else:
            try:
                entries.append(_parse(value))
            except InvalidMapping as error:
                reason = f"{where}: {error}"
                if (refused := reject(value, reason)) is not None:
                    entries.append(refused)
                else:
                    nameless.append(reason)
    return FolderSnapshot(build_index(entries), tuple(nameless), tuple(unread))


def read_folder(directory: Path, *, types: bool = False) -> Iterator[tuple[str, object]]:
    """Yield the objects of a folder, each with its place.

    What is no YAML is a `BrokenDocument`, a file that can't be read an `ExternalFailure`.
    Scalars are texts; `types` is that of `read_documents`.

    Raises:
        ExternalFailure: The folder doesn't exist or can't be listed.
    """
    bytes_left = MAX_BYTES
    for path in yaml_files(directory, what=WHAT):
        try:
            content = _read(path, bytes_left)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            yield path.name, ExternalFailure(str(reason))
            continue
        bytes_left -= len(content)
        for document in read_documents(content, types=types):  # JSON is YAML too
            where = f"{path.name}, line {document.line} (document {document.number})"
            if isinstance(document, BrokenDocument):
                yield where, document
            elif (items := _items(document.value)) is None:
                yield where, document.value
            elif not isinstance(items, list):
                message = "items of a List must be a list"
                yield where, BrokenDocument(document.number, document.line, message)
            else:
                for number, item in enumerate(items, start=1):
                    yield f"{where}, item {number}", item


def _parse(value: object) -> Mapping:
    """Read a custom resource."""
    mapping = parse(value)
    # No API server has dropped a misspelt field, such as a selector that would do nothing.
    if mapping.kind == ACCELERATOR and isinstance(value, dict):
        for problem in unknown_fields(ACCELERATOR, value):
            raise InvalidMapping(f"{mapping.label}: {problem}")
    return mapping


def _read(path: Path, limit: int) -> bytes:
    content = read_file(path, limit)
    if len(content) > limit:
        raise ValueError(f"the folder holds more than {MAX_BYTES // 1024**2} MiB of YAML")
    return content


def _items(value: object) -> object:
    """Return what a List has for its items, None if it is no List."""
    if not isinstance(value, dict) or not is_kind(value, "List", ""):
        return None
    items = value.get("items")
    return [] if items is None else items


class FolderSource:
    """The latest mappings of a folder that could be read, polled every `interval` seconds."""

    def __init__(self, directory: Path, *, interval: float = INTERVAL) -> None:
        self.loaded = False
        self.snapshot = FolderSnapshot()
        """The mappings in use; replaced as a whole, never changed."""
        self.index = self.snapshot.index
        """The snapshot's index, which every request reads."""
        self._directory = directory
        self._interval = interval
        self._outage = Outage(
            log,
            "mappings not loaded, the previous ones stay in use",
            "the folder of mappings can be read again",
            folder=str(directory),
        )
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

    @property
    def watch_failures(self) -> collections.abc.Mapping[str, int]:
        """Empty: a folder is polled, not watched through an API server."""
        return {}

    @property
    def rejected(self) -> int:
        """How many files, documents and mappings can't be used."""
        return len(self.snapshot.problems) + len(self.snapshot.unread)

    def load(self) -> None:
        """Load the folder at the start.

        Raises:
            ExternalFailure: It can't be read.
        """
        self._signature = _signature(self._directory)
        self._swap(load_folder(self._directory))

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
            state = _signature(self._directory)
            # Two polls that agree: a file that is being written isn't read half.
            if state != self._signature and (state == self._pending or self.age > MAX_WAIT):
                self._swap(await asyncio.to_thread(load_folder, self._directory))
                self._signature = state
            self._pending = state
        except ExternalFailure as error:
            self._outage.failed(str(error))
        except Exception as error:  # noqa: BLE001 - of ours; the next poll tries again
            self._outage.failed(f"accelbind failed while reading them: {error!r:.200}")
        else:
            if state == self._signature:
                self._confirmed = time.monotonic()
                self._outage.ended()

    def _swap(self, snapshot: FolderSnapshot) -> None:
        self.loaded = True
        self.snapshot = snapshot
        self.index = snapshot.index
        log.info(
            "mappings loaded",
            mappings=len(snapshot.index),
            namespaces=len(snapshot.index.namespaces),
            problems=self.rejected,
        )
        problems = (*snapshot.unread, *snapshot.problems)
        for problem in problems[:MAX_LOGGED]:
            log.warning("mapping skipped", reason=problem)
        if len(problems) > MAX_LOGGED:
            log.warning("more mappings skipped", number=len(problems) - MAX_LOGGED)


def _signature(directory: Path) -> Signature:
    """The state of a folder for comparison; raises as `yaml_files`."""
    return tuple((path.name, *_state(path)) for path in yaml_files(directory, what=WHAT))


def _state(path: Path) -> tuple[object, ...]:
    try:
        state = path.stat()
    except OSError as error:  # such as a link to nowhere
        return (error.errno,)
    # Unlike the modification time, no program can set back the inode's change time.
    return state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size
