"""A folder of device types: one YAML file each, read one by one.

A file that can't be used never stops the others. The folder may be a mounted ConfigMap, whose files
are links to files below its `..data`; a link that leads out of the folder is refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.devices.types.model import DeviceType
from services.devices.types.parsing import InvalidType, parse
from services.process.folder import read_file, yaml_files
from services.process.text import plain
from services.process.yaml import BrokenDocument, read_documents

WHAT: Final = "device types"
MAX_BYTES: Final = 64 * 1024
"""Of one file."""
MAX_FILES: Final = 256


@dataclass(frozen=True, slots=True)
class FileProblem:
    """Why a file can't be used."""

    file: str
    line: int
    """Where the document starts, or where it breaks; 0 if there is none."""
    field: str
    """Path of the field, empty if it is about the whole document."""
    message: str

    def __str__(self) -> str:
        where = f"{plain(self.file)}, line {self.line}" if self.line else plain(self.file)
        return ": ".join(filter(None, [where, self.field, self.message]))


@dataclass(frozen=True, slots=True)
class LoadedTypes:
    """The device types of a folder."""

    types: tuple[DeviceType, ...] = ()
    problems: tuple[FileProblem, ...] = ()


def load_types(folder: Path, *, domains: tuple[str, ...] = ()) -> LoadedTypes:
    """Read the device types of a folder; with `domains`, their resources must be in one of them.

    Raises:
        ExternalFailure: The folder doesn't exist or can't be listed.
    """
    files: dict[str, tuple[str, DeviceType]] = {}
    problems: list[FileProblem] = []
    paths = yaml_files(folder, what=WHAT)
    for path in paths[:MAX_FILES]:
        found = _read(folder, path, domains)
        if isinstance(found, FileProblem):
            problems.append(found)
            continue
        line, made = found
        known = files.setdefault(made.name, (path.name, made))
        if known[0] != path.name:
            text = f"{known[0]} has a type of this name already"
            problems.append(FileProblem(path.name, line, "metadata.name", text))
    problems += _beyond(paths[MAX_FILES:])
    return LoadedTypes(tuple(made for _, made in files.values()), tuple(problems))


def _beyond(paths: Iterable[Path]) -> list[FileProblem]:
    text = f"the folder has more than {MAX_FILES} files"
    return [FileProblem(path.name, 0, "", text) for path in paths]


def _read(
    folder: Path, path: Path, domains: tuple[str, ...]
) -> tuple[int, DeviceType] | FileProblem:
    """The type of a file, and the line on which its document starts."""
    try:
        if not path.resolve(strict=True).is_relative_to(folder.resolve(strict=True)):
            return FileProblem(path.name, 0, "", "a link that leads out of the folder")
        content = read_file(path, MAX_BYTES)
    except (OSError, RuntimeError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return FileProblem(path.name, 0, "", text)
    if len(content) > MAX_BYTES:
        return FileProblem(path.name, 0, "", f"the file has more than {MAX_BYTES // 1024} KiB")
    return _parse(path.name, content, domains)


def _parse(
    name: str, content: bytes, domains: tuple[str, ...]
) -> tuple[int, DeviceType] | FileProblem:
    documents = list(read_documents(content, types=True))
    if not documents:
        return FileProblem(name, 0, "", "the file is empty")
    document, *others = documents
    if isinstance(document, BrokenDocument):
        return FileProblem(name, document.line, "", document.message)
    if others:
        return FileProblem(name, others[0].line, "", "a file has one device type: use a file each")
    try:
        return document.line, parse(document.value, domains=domains)
    except InvalidType as error:
        return FileProblem(name, document.line, error.field, error.message)
