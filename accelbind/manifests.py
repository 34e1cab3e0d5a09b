"""The files that `-f` names: files, folders and stdin, and the pods in them."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from services.pods.manifests import MAKES_PODS, FoundPod, find_pods
from services.process.errors import InvalidManifest, InvalidSettings
from services.process.text import plain
from services.process.yaml import BrokenDocument, Document, read_documents

MAX_BYTES: Final = 64 * 1024 * 1024
"""Of one file: a list of a thousand nodes has about 20 MiB."""

STDIN: Final = Path("-")
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


def read_pods(paths: Sequence[Path]) -> list[tuple[str, FoundPod]]:
    """The pods of manifests, each with the name of its file.

    Every path must have at least one pod, so that none is ignored.
    """
    found: list[tuple[str, FoundPod]] = []
    for path, files in expand(paths):
        before = len(found)
        for file in files:
            found += ((_label(file), pod) for pod in _pods(file))
        if len(found) == before:
            kinds = ", ".join(MAKES_PODS)
            raise InvalidManifest(f"{_label(path)} contains nothing that makes pods ({kinds})")
    return found


def expand(paths: Sequence[Path]) -> Iterator[tuple[Path, list[Path]]]:
    """Yield each path with its files: for a folder the YAML and JSON files in it, else itself.

    As in kubectl, folders in a folder are not read.
    """
    if paths.count(STDIN) > 1:
        raise InvalidSettings("stdin (-) can be read only once")
    for path in paths:
        yield path, _files(path) if path != STDIN and path.is_dir() else [path]


def read_manifest(path: Path) -> Iterator[tuple[str, Document]]:
    """Yield the documents of a file or of stdin, each with its place."""
    label = _label(path)
    try:
        data = _read(path)
    except OSError as error:
        raise InvalidManifest(f"{label}: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise InvalidManifest(f"{label} has more than {MAX_BYTES} bytes")
    for document in read_documents(data, types=True):
        place = f"{label}, line {document.line}"
        if isinstance(document, BrokenDocument):
            raise InvalidManifest(f"{place}: {plain(document.message, 500)}")
        yield place, document


def _pods(path: Path) -> Iterable[FoundPod]:
    for place, document in read_manifest(path):
        try:
            yield from find_pods(document.value) if document.value else ()
        except InvalidManifest as error:
            message = plain(" ".join(str(error).split()), 500)
            raise InvalidManifest(f"{place}: {message}") from error


def _files(folder: Path) -> list[Path]:
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
    except OSError as error:
        raise InvalidManifest(f"{_label(folder)}: {error.strerror}") from error
    files = [path for path in found if not path.is_dir()]
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
