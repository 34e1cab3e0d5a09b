"""Mappings from a folder of YAML: the custom resources' own format, followed while it changes.

For clusters whose mappings come in a ConfigMap, for compose and for the demo. The files `*.yaml`,
`*.yml` and `*.json` of the folder itself are read, in the order of their names; hidden ones and
subfolders are not, so that a mounted ConfigMap (kubernetes.io/docs/concepts/storage/volumes,
`..data`) is read once. A document that can't be used is named and skipped; the rest serve.

A change is noticed by looking: name, inode, times and size of each file, several times a second. It
is loaded once two looks agree, so that a file that is just being written isn't read by halves. The
time of the last change of the inode counts too: unlike that of the content nobody can set it back.
"""

import asyncio
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

import structlog

from services.mappings.index import EMPTY_INDEX, MappingIndex, build_index
from services.mappings.model import API_VERSION, KINDS, Entry, Rejected, parse, reject
from services.process.errors import InvalidMapping, WorldError
from services.process.files import open_at_once
from services.process.yaml import BrokenDocument, Document, read_documents

SUFFIXES: Final = (".yaml", ".yml", ".json")
MAX_BYTES: Final = 256 * 1024 * 1024
"""All files together: far above 100 000 mappings, far below what would hurt."""
INTERVAL: Final = 0.25
PATIENCE: Final = 1.0
"""Seconds after which a folder is loaded that doesn't stop changing."""
MAX_LOGGED: Final = 100

Signature: TypeAlias = tuple[tuple[object, ...], ...]

log = structlog.get_logger(room="mappings")


@dataclass(frozen=True, slots=True)
class FolderSnapshot:
    """What a folder held at one moment.

    Args:
        index: The mappings that can be used.
        problems: A sentence for each file, document or mapping that can't.
    """

    index: MappingIndex = EMPTY_INDEX
    problems: tuple[str, ...] = ()


def load_folder(directory: Path, *, default_namespace: str = "default") -> FolderSnapshot:
    """Reads the mappings of a folder.

    Args:
        directory: The folder.
        default_namespace: The namespace of objects that name none, as with kubectl.

    Raises:
        WorldError: There is no such folder, or it can't be listed.
    """
    loading = _Loading(default_namespace)
    for path in _files(directory):
        loading.take_file(path)
    index = build_index(loading.entries)
    loading.problems += _clashes(index, loading.entries)
    return FolderSnapshot(index, tuple(loading.problems))


def _files(directory: Path) -> list[Path]:
    try:
        paths = sorted(directory.iterdir())
    except OSError as error:
        raise WorldError(f"the folder of mappings {directory}: {error.strerror}") from error
    return [
        path
        for path in paths
        if path.name.lower().endswith(SUFFIXES) and not path.name.startswith(".")
    ]


def _clashes(index: MappingIndex, entries: list[Entry]) -> Iterator[str]:
    """Yield the problems that show only when all mappings are compared."""
    known = {(one.namespace, one.name, one.reason) for one in entries if isinstance(one, Rejected)}
    for namespace in index.namespaces:
        for name, reason in index.namespace(namespace).rejected.items():
            if (namespace, name, reason) not in known:
                yield reason


@dataclass(slots=True)
class _Loading:
    """What has been found in a folder so far."""

    default_namespace: str
    entries: list[Entry] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    bytes_left: int = field(default_factory=lambda: MAX_BYTES)

    def take_file(self, path: Path) -> None:
        """Reads a file; what can't be read becomes a problem."""
        try:
            content = _read(path, self.bytes_left)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            self.problems.append(f"{path.name}: {reason}")
            return
        self.bytes_left -= len(content)
        read = _read_json if path.suffix.lower() == ".json" else read_documents
        for document in read(content):
            where = f"{path.name}, line {document.line} (document {document.number})"
            if isinstance(document, BrokenDocument):
                self.problems.append(f"{where}: {document.message}")
            else:
                self.take_object(document.value, where)

    def take_object(self, value: object, where: str) -> None:
        """Takes a custom resource, or those of a list."""
        if _is_list(value):
            for number, item in enumerate(_items(value), start=1):
                self.take_mapping(item, f"{where}, item {number}")
        else:
            self.take_mapping(value, where)

    def take_mapping(self, value: object, where: str) -> None:
        """Takes a custom resource, or keeps why it can't be used."""
        try:
            self.entries.append(parse(value, default_namespace=self.default_namespace))
        except InvalidMapping as error:
            self.problems.append(f"{where}: {error}")
            refused = reject(value, str(error), default_namespace=self.default_namespace)
            if refused is not None:
                self.entries.append(refused)


def _read(path: Path, limit: int) -> bytes:
    """A regular file's content; a pipe that nobody writes to must not hold us up."""
    with open_at_once(path) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("is no file")
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"the folder holds more than {MAX_BYTES // 1024**2} MiB")
    return content


def _read_json(content: bytes) -> Iterator[Document | BrokenDocument]:
    try:
        yield Document(1, 1, json.loads(content, object_pairs_hook=_object))
    except json.JSONDecodeError as error:
        yield BrokenDocument(1, error.lineno, f"not JSON: {error.msg}")
    except (ValueError, RecursionError) as error:
        yield BrokenDocument(1, 1, f"not JSON: {error}")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{twice!r:.80} is set twice")
    return found


def _is_list(value: object) -> bool:
    return isinstance(value, dict) and value.get("kind") in _LIST_KINDS


_LIST_KINDS: Final = {"List": None} | {f"{kind}List": kind for kind in KINDS}


def _items(value: object) -> Iterator[object]:
    """The objects of a list; those of a typed list may leave out what the list says already."""
    if not isinstance(value, dict):
        return
    kind = _LIST_KINDS[value["kind"]]
    items = value.get("items")
    for item in items if isinstance(items, list) else ():
        if kind and isinstance(item, dict):
            yield {"apiVersion": value.get("apiVersion", API_VERSION), "kind": kind} | item
        else:
            yield item


class FolderSource:
    """The mappings of a folder, always the newest that could be read.

    Args:
        directory: The folder.
        default_namespace: The namespace of objects that name none.
        interval: Seconds between two looks.
        clock: Seconds, from any beginning.

    Attributes:
        snapshot: What serves. It is replaced as a whole, never changed.
        index: Its index, for whoever reads it with every request.
        problem: Why the folder can't be read now; empty if it can.
    """

    def __init__(
        self,
        directory: Path,
        *,
        default_namespace: str = "default",
        interval: float = INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.snapshot = FolderSnapshot()
        self.index = self.snapshot.index
        self.loaded = False
        self.problem = ""
        self._directory = directory
        self._default_namespace = default_namespace
        self._interval = interval
        self._clock = clock
        self._confirmed = clock()
        self._signature: Signature | None = None
        self._pending: Signature | None = None
        self._failed: Signature | None = None
        self._changing_since: float | None = None
        self._told: frozenset[str] = frozenset()

    @property
    def age(self) -> float:
        """Seconds since the folder was last seen to hold what serves."""
        return self._clock() - self._confirmed

    @property
    def watch_failures(self) -> Mapping[str, int]:
        """Nothing: a folder is read, not watched through an API server."""
        return {}

    @property
    def counts(self) -> Mapping[str, int]:
        """How many mappings of each kind can be used."""
        return self.index.counts

    @property
    def rejected(self) -> int:
        """How many files, documents and mappings can't be used."""
        return len(self.snapshot.problems)

    def load(self) -> None:
        """Loads the folder, for the start.

        Raises:
            WorldError: It can't be read.
        """
        self._signature = _signature(self._directory)
        self._swap(load_folder(self._directory, default_namespace=self._default_namespace))

    async def follow(self) -> NoReturn:
        """Looks for changes and loads them until cancelled; whatever comes, it goes on."""
        while True:
            begun = time.perf_counter()
            await self._look()
            # A folder so large that looking takes long is looked at less often.
            cost = time.perf_counter() - begun
            await asyncio.sleep(max(self._interval, 20 * cost))

    async def _look(self) -> None:
        try:
            found = _signature(self._directory)
        except WorldError as error:
            self._keep_old(str(error))
            return
        if found == self._signature:
            self._settle()
        elif found != self._failed and self._is_settled(found):
            await self._reload(found)

    def _settle(self) -> None:
        self._pending = self._changing_since = None
        self._confirmed = self._clock()
        if self.problem:
            log.info("folder of mappings is back", folder=str(self._directory))
            self.problem = ""

    def _is_settled(self, found: Signature) -> bool:
        """Whether two looks in a row agree, or it has been changing for too long to wait."""
        now = self._clock()
        if self._changing_since is None:
            self._changing_since = now
        if found == self._pending:
            return True
        impatient = now - self._changing_since > PATIENCE
        self._pending = None if impatient else found
        return impatient

    async def _reload(self, found: Signature) -> None:
        restless = self._pending is None
        try:
            snapshot = await asyncio.to_thread(
                load_folder, self._directory, default_namespace=self._default_namespace
            )
        except WorldError as error:
            self._keep_old(str(error))
        except Exception as error:
            # What failed once fails again until the folder changes; that is no reason to end.
            self._failed = found
            self.problem = f"accelbind failed while reading {self._directory}: {error!r:.200}"
            log.exception("mappings not loaded, the old ones serve on", problem=self.problem)
        else:
            self._signature = None if restless else found
            self._swap(snapshot)

    def _swap(self, snapshot: FolderSnapshot) -> None:
        self.snapshot = snapshot
        self.index = snapshot.index
        self.loaded = True
        self._failed = None
        self.problem = ""
        self._settle()
        log.info(
            "mappings loaded",
            mappings=len(snapshot.index),
            namespaces=len(snapshot.index.namespaces),
            problems=len(snapshot.problems),
        )
        new = [problem for problem in snapshot.problems if problem not in self._told]
        for problem in new[:MAX_LOGGED]:
            log.warning("mapping skipped", problem=problem)
        if len(new) > MAX_LOGGED:
            log.warning("more mappings skipped", number=len(new) - MAX_LOGGED)
        self._told = frozenset(snapshot.problems)

    def _keep_old(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("mappings not loaded, the old ones serve on", problem=problem)
        self.problem = problem


def _signature(directory: Path) -> Signature:
    """What tells one state of a folder from another.

    Raises:
        WorldError: The folder can't be listed.
    """
    return tuple((path.name, *_state(path)) for path in _files(directory))


def _state(path: Path) -> tuple[object, ...]:
    try:
        state = path.stat()
    except OSError as error:
        return (error.errno,)
    return state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size
