"""Untrusted YAML: the documents of a text, each read separately and with limits.

Scalars are strings, unless the caller wants the types that kubectl gives them.

PyYAML's own loaders don't fit: a syntax error ends their stream and loses the documents after it;
they read an ID of digits as a number; they build recursively, so that deep nesting ends the process
(the C loader crashes it); and the last of two equal keys wins. So the text is cut at its document
markers first, and each document is built from the parser's events with an explicit stack. Aliases
are refused: a few lines of them can stand for gigabytes.

The cut is exact: a line that starts with `---` or `...` and then a blank or nothing is a marker
everywhere, in block and quoted scalars too (yaml.org/spec/1.2.2, 9.1.2, `c-forbidden`).
"""

import itertools
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import yaml

Scalar: TypeAlias = str | int | float | bool | None

MAX_DEPTH: Final = 100
"""The deepest nesting of lists and mappings; custom resources need about five levels."""

_KNOWN_TAGS: Final = frozenset(
    {None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "map", "seq"))}
)
_DIRECTIVES = rb"(?:%[^\n]*\n(?:#[^\n]*\n)*+){0,3}"
_START = re.compile(rb"^(?:\xef\xbb\xbf)?" + _DIRECTIVES + rb"---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_END = re.compile(rb"^\.\.\.[ \t\r]*(?:#.*)?(?:\n|\Z)", re.MULTILINE)
_BOM_8: Final = b"\xef\xbb\xbf"
_BOMS_16: Final = (b"\xff\xfe", b"\xfe\xff")


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
    """Read the documents of a text separately; empty ones (only comments) are skipped.

    The text is YAML or JSON in UTF-8, or in UTF-16 with a byte order mark. With `types`, plain
    scalars have the types that kubectl gives them, instead of strings.
    """
    if text[:2] in _BOMS_16:
        text = text.decode("utf-16", "replace").encode()
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
    """Cut a text before each `---` and after each `...`; yield (lines before it, piece)."""
    cuts = {match.start() for match in _START.finditer(text)}
    cuts |= {match.end() for match in _END.finditer(text)}
    edges = [0, *sorted(cuts - {0, len(text)}), len(text)]
    lines = 0
    for start, end in itertools.pairwise(edges):
        yield lines, text[start:end].removeprefix(_BOM_8)
        lines += text.count(b"\n", start, end)


@dataclass(slots=True)
class _Build:
    """The state of building a document: the open lists and mappings, with their keys."""

    types: bool
    open: list[list[object] | dict[str, object]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    root: object = None

    @property
    def wants_key(self) -> bool:
        """Whether the next node is a key."""
        return bool(self.open) and isinstance(self.open[-1], dict) and self.keys[-1] is None

    def add(self, value: object, event: yaml.Event) -> None:
        """Add a scalar, or a list or mapping that will be filled."""
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
        self.check_tag(event)
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
        self.check_tag(event)
        text: str = event.value
        plain: bool = event.implicit[0]
        if not plain:
            return text
        if self.wants_key and not self.types:
            return text
        if self.wants_key or not self.types:
            return None if text in NULLS else text
        if NON_FINITE.fullmatch(text):
            raise _Unfit(f"{text} is not a number in JSON", event)
        return typed(text)

    def check_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        """Refuse tags that would change the type of a node."""
        if self.types and event.tag not in _KNOWN_TAGS:
            raise _Unfit(f"the tag {event.tag!r:.80} is refused", event)


def _build(piece: bytes, *, types: bool) -> Iterator[tuple[int, object]]:
    """Yield the documents of a piece that are not empty, each with the line of its content."""
    build, content = _Build(types), None
    for event in yaml.parse(_END.sub(b"", piece), Loader=yaml.CBaseLoader):
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
    """Return the line of a problem, from 0 within the piece."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return error.problem_mark.line
    position = getattr(error, "position", 0)
    return piece.count(b"\n", 0, position if isinstance(position, int) else 0)


def _problem_of(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        return f"not YAML: {error.problem}"
    return f"not YAML: {' '.join(str(error).split()):.200}"


# The types of plain scalars in a manifest, as in kubectl. This is neither YAML 1.1 nor 1.2: the
# booleans of 1.1 are known, an integer may be octal, but there are no numbers to base 60, and `=`
# is a string (sigs.k8s.io/yaml, `goyaml.v2/resolve.go`). A date is a string, as after kubectl's
# conversion to JSON.

NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
NON_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
"""Values that JSON can't represent, so kubectl refuses them."""

_BOOLS: Final = {
    spelling: word in {"y", "yes", "true", "on"}
    for word in ("y", "yes", "true", "on", "n", "no", "false", "off")
    for spelling in (word, word.capitalize(), word.upper())
}
_OCTAL = re.compile(r"[-+]?0[0-7]+")


def typed(text: str) -> Scalar:
    """Return the value of a plain scalar, itself if it is a string; `NON_FINITE` stay strings."""
    if text in NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if text[0] not in "+-.0123456789" or not text.isascii():
        return text
    digits = text if text[0] == "." else text.replace("_", "")
    with suppress(ValueError):
        value = int(digits, 8 if _OCTAL.fullmatch(digits) else 0)  # 0: as its prefix says
        if -(2**63) <= value < 2**64:
            return value
    with suppress(ValueError):
        number = float(digits)
        if math.isfinite(number):
            return number
    return text
