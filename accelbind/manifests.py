"""The objects in the files that `-f` names."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from services.pods.manifests import MAKES_PODS, FoundPod, find_pods
from services.process.errors import InvalidManifest, InvalidSettings
from services.process.text import plain
from services.process.yaml import BrokenDocument, read_documents

T = TypeVar("T")

MAX_BYTES: Final = 24 * 1024 * 1024
"""Of one file: a list of a thousand nodes has about 20 MiB, and takes about a minute to read."""

STDIN: Final = Path("-")
NO_PODS: Final = f"nothing that makes pods ({', '.join(MAKES_PODS)})"
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


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
    if paths.count(STDIN) > 1:
        raise InvalidSettings("stdin (-) can be read only once")
    objects: list[T] = []
    for path in paths:
        before = len(objects)
        for file in _files(path) if path != STDIN and path.is_dir() else [path]:
            objects += _objects(file, find)
        if len(objects) == before:  # nobody names a path for nothing
            raise InvalidManifest(f"{_label(path)} contains {what}")
    return objects


def _objects(path: Path, find: Callable[[object], Iterable[T]]) -> Iterator[T]:
    label = _label(path)
    try:
        data = _read(path)
    except OSError as error:
        raise InvalidManifest(f"{label}: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise InvalidManifest(f"{label} is larger than {MAX_BYTES >> 20} MiB: split it")
    for document in read_documents(data, types=True):
        place = f"{label}, line {document.line}"
        if isinstance(document, BrokenDocument):
            raise InvalidManifest(f"{place}: {plain(document.message, 500)}")
        try:
            yield from find(document.value) if document.value else ()
        except InvalidManifest as error:
            message = plain(" ".join(str(error).split()), 500)
            raise InvalidManifest(f"{place}: {message}") from error


def _files(folder: Path) -> list[Path]:
    try:
        # As kubectl without `--recursive`: not what is in folders below.
        manifests = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
    except OSError as error:
        raise InvalidManifest(f"{_label(folder)}: {error.strerror}") from error
    files = [path for path in manifests if not path.is_dir()]
    if not files:
        raise InvalidManifest(f"{_label(folder)} has no .yaml, .yml or .json file")
    return files


def _read(path: Path) -> bytes:
    if path == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1) if sys.stdin else b""
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _label(path: Path) -> str:
    return "stdin" if path == STDIN else plain(str(path), 200)
