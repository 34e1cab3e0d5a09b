"""Untrusted YAML: the documents of a text, each read separately.

PyYAML's own loaders don't fit: a syntax error ends their stream and loses the documents after it,
they build recursively, and the last of two equal keys wins. So the text is cut into documents
first, and each is built from the parser's events.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
import yaml

Scalar: TypeAlias = str | int | float | bool | None

# Levels of lists and mappings; custom resources need about five.
MAX_DEPTH: Final = 100

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
# A line that starts with `---` and then a blank or nothing is a marker everywhere, in block and
# quoted scalars too (yaml.org/spec/1.2.2, 9.1.2, `c-forbidden`): cutting before it is exact.
_DIRECTIVES = rb"(?:%[^\n]*\n(?:#[^\n]*\n)*+){0,3}"
_START = re.compile(rb"^" + _DIRECTIVES + rb"---(?=[ \t\r\n]|\Z)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Document:
    """A document that could be read."""

    number: int
    """From 1, not counting empty documents."""
    line: int
    """Where it starts, from 1."""
    value: object
    """Dicts, lists, strings, and None for null; numbers and booleans only with `types`."""


@dataclass(frozen=True, slots=True)
class BrokenDocument:
    """A document that couldn't be read: the line of the problem, and the problem."""

    number: int
    line: int
    message: str


class _Unfit(Exception):
    """The document is YAML, but not accepted."""

    def __init__(self, message: str, event: yaml.Event) -> None:
        super().__init__(message)
        self.line = _line(event)


def read_documents(text: bytes, *, types: bool = False) -> Iterator[Document | BrokenDocument]:
    """Read the documents of a text, YAML or JSON in UTF-8; empty ones (only comments) are skipped.

    Scalars are strings, and plain nulls None. With `types`, a plain scalar that JSON knows has its
    type there.
    """
    number = 0
    for offset, piece in _pieces(text):
        try:
            for line, value in _build(piece, types=types):
                number += 1
                yield Document(number, offset + line + 1, value)
        except yaml.YAMLError as error:
            number += 1
            yield BrokenDocument(number, offset + _line_of(error, piece) + 1, _problem_of(error))
        except _Unfit as error:
            number += 1
            yield BrokenDocument(number, offset + error.line + 1, str(error))


def _pieces(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Cut a text before each `---`; yield (lines before it, piece)."""
    cuts = {match.start() for match in _START.finditer(text)}
    edges = [0, *sorted(cuts - {0, len(text)}), len(text)]
    lines = 0
    for start, end in itertools.pairwise(edges):
        yield lines, text[start:end]
        lines += text.count(b"\n", start, end)


@dataclass(slots=True)
class _Build:
    """The state of building a document: the open lists and mappings, with their keys."""

    # A stack, not recursion: deep nesting would end the process, and the C loader crashes it.
    types: bool
    open: list[list[object] | dict[str, object]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    root: object = None

    @property
    def wants_key(self) -> bool:
        """Whether the next node is a key."""
        return bool(self.open) and isinstance(self.open[-1], dict) and self.keys[-1] is None

    def add(self, value: object, event: yaml.Event) -> None:
        """Add a scalar, or a list or mapping that is filled later."""
        if not self.open:
            self.root = value
            return
        parent, key = self.open[-1], self.keys[-1]
        if isinstance(parent, list):
            parent.append(value)
        elif key is not None:
            parent[key] = value
            self.keys[-1] = None
        elif not isinstance(value, str):
            raise _Unfit("a key has to be a text", event)
        elif value in parent:
            raise _Unfit(f"{value!r:.80} is set twice", event)
        else:
            self.keys[-1] = value

    def start(
        self, value: list[object] | dict[str, object], event: yaml.CollectionStartEvent
    ) -> None:
        """Open a list or mapping."""
        if len(self.open) >= MAX_DEPTH:
            raise _Unfit(f"it nests more than {MAX_DEPTH} levels deep", event)
        self.add(value, event)
        self.open.append(value)
        self.keys.append(None)

    def end(self) -> None:
        """Close a list or mapping."""
        self.open.pop()
        self.keys.pop()

    def scalar(self, event: yaml.ScalarEvent) -> Scalar:
        """Return the value of a scalar; that of a key is its text."""
        text: str = event.value
        plain: bool = event.implicit[0]
        if self.wants_key or not plain:  # `8080: x` and `'1'` are texts
            return text
        if text in _NULLS:
            return None
        return _typed(text) if self.types else text


def _build(piece: bytes, *, types: bool) -> Iterator[tuple[int, object]]:
    """Yield the documents of a piece that are not empty, each with the line of its content."""
    build, content = _Build(types), None
    for event in yaml.parse(piece, Loader=yaml.CBaseLoader):
        match event:
            case yaml.ScalarEvent():
                build.add(build.scalar(event), event)
            case yaml.MappingStartEvent():
                build.start({}, event)
            case yaml.SequenceStartEvent():
                build.start([], event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                build.end()
            case yaml.AliasEvent():
                # A few lines of aliases can stand for gigabytes.
                raise _Unfit(f"*{event.anchor:.80}: write out what this alias stands for", event)
            case yaml.DocumentStartEvent():
                build, content = _Build(types), None
            case yaml.DocumentEndEvent():
                if content is not None:
                    yield _line(content), build.root
        if content is None and isinstance(event, yaml.NodeEvent) and not _is_missing(event):
            content = event


def _is_missing(event: yaml.NodeEvent) -> bool:
    """Whether the parser made it up, for a document without content."""
    start, end = event.start_mark, event.end_mark
    return isinstance(event, yaml.ScalarEvent) and bool(start and end and start.index == end.index)


def _line(event: yaml.Event) -> int:
    return event.start_mark.line if event.start_mark else 0


def _line_of(error: yaml.YAMLError, piece: bytes) -> int:
    """The line of a problem, from 0 within the piece."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return error.problem_mark.line
    position = getattr(error, "position", 0)
    return piece.count(b"\n", 0, position if isinstance(position, int) else 0)


def _problem_of(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        return f"not YAML: {error.problem}"
    return f"not YAML: {' '.join(str(error).split()):.200}"


def _typed(text: str) -> Scalar:
    """The number or boolean that a plain scalar is in JSON, otherwise the text."""
    # Not YAML's own rules, in which `no`, `010` and `12:30` are no texts.
    try:
        value: Scalar = msgspec.json.decode(text, type=bool | int | float)
    except (msgspec.MsgspecError, ValueError):
        return text
    return value
