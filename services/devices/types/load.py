"""A folder of device types: one YAML file each, read one by one.

A file that can't be used never stops the others.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import yaml

from services.devices.nodes import SETTINGS
from services.devices.types.model import DeviceType
from services.devices.types.node_source import shares_path
from services.devices.types.parsing import find_problems, parse
from services.names import resource_variable
from services.process.files import read_file, yaml_files
from services.process.text import plain
from services.process.yaml import BrokenDocument, read_documents

WHAT: Final = "device types"
_STEPS: Final = re.compile(r"[^.\[\]]+")
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


FileContents: TypeAlias = Mapping[str, bytes | FileProblem]
"""What is in the files of a folder, or why it can't be read, by their names."""


@dataclass(frozen=True, slots=True)
class LoadedTypes:
    """The device types of a folder."""

    types: tuple[DeviceType, ...] = ()
    problems: tuple[FileProblem, ...] = ()


def load_types(
    folder: Path, *, domains: tuple[str, ...] = (), allowed: Collection[str] = SETTINGS
) -> LoadedTypes:
    """Read the device types of a folder; `domains` and `allowed` are as for `find_problems`.

    Raises:
        ExternalFailure: The folder doesn't exist or can't be listed.
    """
    return parse_types(read_files(folder), domains=domains, allowed=allowed)


def read_files(folder: Path) -> FileContents:
    """The files of a folder, by name.

    Raises:
        ExternalFailure: The folder doesn't exist or can't be listed.
    """
    paths = yaml_files(folder, what=WHAT)
    text = f"the folder has more than {MAX_FILES} files"
    beyond = {path.name: FileProblem(path.name, 0, "", text) for path in paths[MAX_FILES:]}
    real = folder.resolve()
    return {path.name: _read(real, path) for path in paths[:MAX_FILES]} | beyond


def read_type(path: Path) -> bytes | FileProblem:
    """The content of one file, or why it can't be read."""
    return _read(path.parent.resolve(), path)


def _read(folder: Path, path: Path) -> bytes | FileProblem:
    try:
        # In a mounted ConfigMap the files are links to files below its `..data`.
        if path.is_symlink() and not path.resolve(strict=True).is_relative_to(folder):
            return FileProblem(path.name, 0, "", "a link that leads out of the folder")
        content = read_file(path, MAX_BYTES)
    except (OSError, RuntimeError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return FileProblem(path.name, 0, "", text)
    if len(content) > MAX_BYTES:
        return FileProblem(path.name, 0, "", f"the file has more than {MAX_BYTES // 1024} KiB")
    return content


def parse_types(
    contents: FileContents, *, domains: tuple[str, ...], allowed: Collection[str]
) -> LoadedTypes:
    """The device types in files; of two that can't be together the first counts."""
    files: dict[str, str] = {}
    types: list[DeviceType] = []
    problems: list[FileProblem] = []
    for name, content in contents.items():
        if not isinstance(content, bytes):
            problems.append(content)
            continue
        made = _parse(name, content, domains, allowed)
        if isinstance(made, list):
            problems += made
            continue
        clashes = (_clash(made, each, files[each.name]) for each in types)
        if clash := next(filter(None, clashes), None):
            field, text = clash
            problems.append(FileProblem(name, _line_of(content, field), field, text))
            continue
        files[made.name] = name
        types.append(made)
    return LoadedTypes(tuple(types), tuple(problems))


def _clash(made: DeviceType, other: DeviceType, file: str) -> tuple[str, str] | None:
    """The field for which a type can't be beside that of a file, and why."""
    if made.name == other.name:
        return "metadata.name", f"{file} has a type of this name already"
    if made.resource == other.resource:  # no container has devices of both without being refused
        return None
    variable = resource_variable(made.resource)
    if variable == resource_variable(other.resource):
        text = f"containers get {variable} for {other.resource} already; choose another name"
        return "spec.resource.name", text
    for field, path in made.spec.paths():
        for at, also in other.spec.paths():
            if shares_path(path, also) and (field + at).count(".as"):
                return field, f"type {other.name} in {file} has {also} in containers already"
    return None


def _parse(
    name: str, content: bytes, domains: tuple[str, ...], allowed: Collection[str]
) -> DeviceType | list[FileProblem]:
    """The type of a file, or what is wrong with it."""
    documents = list(read_documents(content, types=True))
    if not documents:
        return [FileProblem(name, 0, "", "the file is empty")]
    document, *others = documents
    if isinstance(document, BrokenDocument):
        return [FileProblem(name, document.line, "", document.message)]
    if others:
        text = "a file has one device type: use a file each"
        return [FileProblem(name, others[0].line, "", text)]
    if problems := find_problems(document.value, domains=domains, allowed=allowed):
        lines = [_line_of(content, each.field) or document.line for each in problems]
        found = [
            FileProblem(name, line, each.field, each.message)
            for line, each in zip(lines, problems, strict=True)
        ]
        return sorted(found, key=lambda each: each.line)
    return parse(document.value)


def _line_of(content: bytes, field: str) -> int:
    """The line of a field, or of the deepest part of its path that is there; 0 if unknown."""
    try:
        node = yaml.compose(content, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError):
        return 0
    line = node.start_mark.line + 1 if node else 0
    for step in _STEPS.findall(field):
        if isinstance(node, yaml.SequenceNode) and step.isdigit() and int(step) < len(node.value):
            node = node.value[int(step)]
            line = node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode):
            found = [each for each in node.value if each[0].value == step]
            if not found:
                break
            line, node = found[0][0].start_mark.line + 1, found[0][1]
        else:
            break
    return line
