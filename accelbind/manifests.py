"""The objects in the files that `-f` names, and objects as YAML."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from yaml import safe_dump_all

from services.pods.manifests import FoundPod, find_pods
from services.process import yaml
from services.process.errors import InvalidManifest, InvalidSettings
from services.process.text import plain
from services.process.yaml import BrokenDocument

T = TypeVar("T")

MAX_BYTES: Final = 24 * 1024 * 1024
"""Of one file: a list of a thousand nodes has about 20 MiB, and takes about a minute to read."""

STDIN: Final = Path("-")
NO_PODS: Final = "no pod, and no template of one (a spec with containers)"
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a manifest."""

    path: Path
    """A file, a folder or stdin, as it was named."""
    file: str
    """The file for people."""
    line: int
    value: object

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Add its place to problems that are found in the block."""
        try:
            yield
        except InvalidManifest as error:
            message = plain(" ".join(str(error).split()), 500)
            raise InvalidManifest(f"{self.file}, line {self.line}: {message}") from error


def read_pods(paths: Sequence[Path]) -> list[FoundPod]:
    """The pods of manifests."""
    return read_objects(paths, find_pods, NO_PODS)


def read_objects(
    paths: Sequence[Path], find: Callable[[object], Iterable[T]], what: str
) -> list[T]:
    """Collect the results of a function for the documents of files, folders and stdin (`-`).

    Raises:
        InvalidManifest: A file can't be read or parsed, or a path has none of `what` is looked for.
        InvalidSettings: stdin is named twice.
    """
    found: dict[Path, list[T]] = {path: [] for path in paths}
    for document in read_documents(paths):
        with document.reading():
            found[document.path] += find(document.value)
    for path in paths:
        if not found[path]:  # nobody names a path for nothing
            raise InvalidManifest(f"{path_label(path)} contains {what}")
    return [each for objects in found.values() for each in objects]


def read_documents(paths: Sequence[Path]) -> Iterator[Document]:
    """Yield the documents of files, folders and stdin (`-`) that aren't empty.

    Raises:
        InvalidManifest: A file can't be read or parsed.
        InvalidSettings: stdin is named twice.
    """
    for path in distinct(paths):
        for file in files_in(path):
            yield from _documents(path, file)


def distinct(paths: Sequence[Path]) -> list[Path]:
    """Files and folders, each once. Raises InvalidSettings if stdin is named twice."""
    if paths.count(STDIN) > 1:
        raise InvalidSettings("stdin (-) can be read only once")
    return [*dict.fromkeys(paths)]


def _documents(path: Path, file: Path) -> Iterator[Document]:
    label = path_label(file)
    try:
        data = _read(file)
    except OSError as error:
        raise InvalidManifest(f"{label}: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise InvalidManifest(f"{label} is larger than {MAX_BYTES >> 20} MiB: split it")
    for document in yaml.read_documents(data, types=True):
        if isinstance(document, BrokenDocument):
            where = f"{label}, line {document.line}"
            raise InvalidManifest(f"{where}: {plain(document.message, 500)}")
        if document.value:
            yield Document(path, label, document.line, document.value)


def files_in(folder: Path) -> list[Path]:
    """The manifests in and below a folder; the path itself if it is none.

    Raises:
        InvalidManifest: The folder can't be read, or has none.
    """
    if folder == STDIN or not folder.is_dir():
        return [folder]
    try:
        # A check that left out what is in folders below would pass wrongly.
        manifests = sorted(
            path
            for path in folder.rglob("*")
            if path.suffix in _SUFFIXES and not _is_hidden(path.relative_to(folder))
        )
    except OSError as error:
        raise InvalidManifest(f"{path_label(folder)}: {error.strerror}") from error
    files = [path for path in manifests if not path.is_dir()]
    if not files:
        raise InvalidManifest(f"{path_label(folder)} has no .yaml, .yml or .json file")
    return files


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _read(path: Path) -> bytes:
    if path == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1) if sys.stdin else b""
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def path_label(path: Path) -> str:
    """A file, a folder or stdin for people."""
    return "stdin" if path == STDIN else plain(str(path), 200)


def yaml_text(*documents: object) -> str:
    """Objects as documents of YAML, whose lines are as long as their values.

    Without loss in any locale: where stdout can't encode a character, all but ASCII is escaped.
    """

    def dump(*, is_unicode: bool) -> str:
        text: str = safe_dump_all(
            documents, sort_keys=False, allow_unicode=is_unicode, width=sys.maxsize
        )
        return text

    text = dump(is_unicode=True)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return dump(is_unicode=False)
    return text
