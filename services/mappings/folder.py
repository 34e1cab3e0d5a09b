"""Mappings from a folder of YAML files in the format of the custom resources.

For clusters whose mappings are in a ConfigMap, for Docker Compose and for the demo. The files
`*.yaml`, `*.yml` and `*.json` of the folder are read in the order of their names. Hidden files and
subfolders are ignored, so that a mounted ConfigMap (kubernetes.io/docs/concepts/storage/volumes,
`..data`) is read once. A document with an error is reported and skipped.

Changes are found by polling: name, inode, times and size of each file, several times a second. A
change is loaded once two polls agree, so that a file that is being written isn't read half. The
inode's change time counts because, unlike the modification time, no program can set it back.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

import structlog

from services.mappings.index import EMPTY_INDEX, MappingIndex, build_index
from services.mappings.kinds import TABLE
from services.mappings.model import Entry, Rejected, parse, reject
from services.process.errors import ExternalFailure, InvalidMapping
from services.process.files import open_regular
from services.process.yaml import BrokenDocument, read_documents

SUFFIXES: Final = (".yaml", ".yml", ".json")
MAX_BYTES: Final = 256 * 1024 * 1024
"""Bytes of all files together: enough for far more than 100,000 mappings."""
INTERVAL: Final = 0.25
MAX_WAIT: Final = 5.0
"""Seconds after which a folder that keeps changing is loaded as it is."""
MAX_LOGGED: Final = 100

Signature: TypeAlias = tuple[tuple[object, ...], ...]

log = structlog.get_logger(component="mappings")


@dataclass(frozen=True, slots=True)
class FolderSnapshot:
    """The mappings of a folder at one moment."""

    index: MappingIndex = EMPTY_INDEX
    problems: tuple[str, ...] = ()
    """A sentence for each file, document or mapping that can't be used."""


def load_folder(directory: Path) -> FolderSnapshot:
    """Read the mappings of a folder.

    Raises:
        ExternalFailure: The folder doesn't exist or can't be listed.
    """
    loading = _Loading(MAX_BYTES)
    for path in _files(directory):
        loading.add_file(path)
    index = build_index(loading.entries)
    loading.problems += _clashes(index, loading.entries)
    return FolderSnapshot(index, tuple(loading.problems))


def _files(directory: Path) -> list[Path]:
    try:
        paths = sorted(directory.iterdir())
    except OSError as error:
        raise ExternalFailure(f"the folder of mappings {directory}: {error.strerror}") from error
    return [
        path
        for path in paths
        if path.name.lower().endswith(SUFFIXES) and not path.name.startswith(".")
    ]


def _clashes(index: MappingIndex, entries: list[Entry]) -> Iterator[str]:
    """Yield the problems that show only when all mappings are compared."""
    rejected = [entry for entry in entries if isinstance(entry, Rejected)]
    known = {(entry.namespace, entry.name, entry.reason) for entry in rejected}
    for namespace in index.namespaces:
        for name, reason in index.namespace(namespace).rejected.items():
            if (namespace, name, reason) not in known:
                yield reason


@dataclass(slots=True)
class _Loading:
    """The objects and problems found so far."""

    bytes_left: int
    entries: list[Entry] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add_file(self, path: Path) -> None:
        """Read a file; one that can't be read becomes a problem."""
        try:
            content = _read(path, self.bytes_left)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            self.problems.append(f"{path.name}: {reason}")
            return
        self.bytes_left -= len(content)
        for document in read_documents(content):  # JSON is YAML too
            where = f"{path.name}, line {document.line} (document {document.number})"
            if isinstance(document, BrokenDocument):
                self.problems.append(f"{where}: {document.message}")
            else:
                self.add_object(document.value, where)

    def add_object(self, value: object, where: str) -> None:
        """Add a custom resource, or those of a list."""
        if (items := _items(value)) is None:
            self.add_mapping(value, where)
        for number, item in enumerate(items or (), start=1):
            self.add_mapping(item, f"{where}, item {number}")

    def add_mapping(self, value: object, where: str) -> None:
        """Add a custom resource, or the reason why it can't be used."""
        try:
            self.entries.append(parse(value))
        except InvalidMapping as error:
            self.problems.append(f"{where}: {error}")
            refused = reject(value, str(error))
            if refused is not None:
                self.entries.append(refused)


def _read(path: Path, limit: int) -> bytes:
    with open_regular(path, follow_links=True) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"the folder holds more than {MAX_BYTES // 1024**2} MiB")
    return content


_LIST_KINDS: Final = {"List": None} | {f"{kind.name}List": kind for kind in TABLE.values()}


def _items(value: object) -> list[object] | None:
    """Return the objects of a list, None if it is none; those of a typed list may omit the kind."""
    name = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(name, str) or name not in _LIST_KINDS:
        return None
    kind, items = _LIST_KINDS[name], value.get("items")
    head = {"apiVersion": kind.api_version, "kind": kind.name} if kind else {}
    if "apiVersion" in value and kind:
        head["apiVersion"] = value["apiVersion"]
    members: list[object] = items if isinstance(items, list) else []
    return [head | item if isinstance(item, dict) else item for item in members]


class FolderSource:
    """The latest mappings of a folder that could be read, polled every `interval` seconds."""

    def __init__(self, directory: Path, *, interval: float = INTERVAL) -> None:
        self.snapshot = FolderSnapshot()
        """The mappings in use; replaced as a whole, never changed."""
        self.index = self.snapshot.index
        """The snapshot's index, which every request reads."""
        self.loaded = False
        self.error = ""
        """Why the folder can't be read now; empty if it can."""
        self._directory = directory
        self._interval = interval
        self._confirmed = time.monotonic()
        self._signature: Signature | None = None
        self._pending: Signature | None = None
        self._logged: frozenset[str] = frozenset()

    @property
    def age(self) -> float:
        """Seconds since the last poll that found the mappings in use unchanged."""
        return time.monotonic() - self._confirmed

    @property
    def watch_failures(self) -> Mapping[str, int]:
        """Empty: a folder is polled, not watched through an API server."""
        return {}

    @property
    def rejected(self) -> int:
        """How many files, documents and mappings can't be used."""
        return len(self.snapshot.problems)

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
            signature = _signature(self._directory)
            overdue = time.monotonic() - self._confirmed > MAX_WAIT
            if signature != self._signature and (signature == self._pending or overdue):
                self._swap(await asyncio.to_thread(load_folder, self._directory))
                self._signature = signature
            self._pending = signature
        except ExternalFailure as error:
            self._log_error(str(error))
        except Exception as error:  # noqa: BLE001 - of ours; the next poll tries again
            self._log_error(f"accelbind failed while reading {self._directory}: {error!r:.200}")
        else:
            if signature == self._signature:
                self._settle()

    def _settle(self) -> None:
        self._confirmed = time.monotonic()
        if self.error:
            log.info("the folder of mappings can be read again", folder=str(self._directory))
            self.error = ""

    def _swap(self, snapshot: FolderSnapshot) -> None:
        self.snapshot = snapshot
        self.index = snapshot.index
        self.loaded = True
        self._settle()
        log.info(
            "mappings loaded",
            mappings=len(snapshot.index),
            namespaces=len(snapshot.index.namespaces),
            problems=len(snapshot.problems),
        )
        new = [problem for problem in snapshot.problems if problem not in self._logged]
        for problem in new[:MAX_LOGGED]:
            log.warning("mapping skipped", reason=problem)
        if len(new) > MAX_LOGGED:
            log.warning("more mappings skipped", number=len(new) - MAX_LOGGED)
        self._logged = frozenset(snapshot.problems)

    def _log_error(self, error: str) -> None:
        if error != self.error:
            log.warning("mappings not loaded, the previous ones stay in use", reason=error)
        self.error = error


def _signature(directory: Path) -> Signature:
    """Return the state of a folder for comparison.

    Raises:
        ExternalFailure: The folder can't be listed.
    """
    return tuple((path.name, *_state(path)) for path in _files(directory))


def _state(path: Path) -> tuple[object, ...]:
    try:
        state = path.stat()
    except OSError as error:
        return (error.errno,)
    return state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size
