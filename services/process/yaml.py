"""YAML from strangers: many documents a text, each read on its own, bounded.

Scalars are texts, unless who reads asks for what kubectl takes them for.

Why not PyYAML's loaders: a syntax error ends their stream and loses the documents after it; they
turn an id of digits into a number; they build recursively, so a deep nesting ends the process (the
C loader crashes it); aliases of aliases grow without bound for whoever walks the result; of a key
given twice the last one counts. So: the text is cut at its document markers first, and each piece
is built from the parser's events with a stack of our own.

The cut is exact: a line starting with `---` or `...` and then a blank or nothing is a marker
wherever it stands, in block and quoted scalars too (yaml.org/spec/1.2.2, 9.1.2, `c-forbidden`).
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import yaml

from services.process.yaml_types import NON_FINITE, NULLS, Scalar, typed

MAX_DEPTH: Final = 100
"""How deep lists and mappings may stand in each other; custom resources need about five."""

_START = re.compile(rb"^(?:\xef\xbb\xbf)?---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_END = re.compile(rb"^\.\.\.[ \t\r]*(?:#.*)?(?:\n|\Z)", re.MULTILINE)
_NO_CONTENT = re.compile(rb"\s*(#.*)?")
_LEADING_COMMENTS = re.compile(rb"(?:[ \t\r]*(?:#[^\n]*)?\n)*")
_BOM_8: Final = b"\xef\xbb\xbf"
_BOMS_16: Final = (b"\xff\xfe", b"\xfe\xff")
_TAG: Final = "tag:yaml.org,2002:"
_NO_TAG: Final = frozenset({None, "!"})
_TYPES: Final = {"null": type(None), "bool": bool, "int": int, "float": float}
_MANY_COPIES: Final = 1_000_000
"""How much aliases may add to a manifest: who reads one copies what they stand for."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document that could be read.

    Args:
        number: Counted from 1 among the documents of the text that hold anything.
        line: Where it starts, from 1.
        value: Dicts, lists, texts, and None for null; numbers, true and false only if they were
            asked for. Aliases share objects: don't change it.
    """

    number: int
    line: int
    value: object


@dataclass(frozen=True, slots=True)
class BrokenDocument:
    """One that could not: `line` tells where the problem is, `message` what it is."""

    number: int
    line: int
    message: str


class _Unfit(Exception):
    """The document is YAML, but not what we build."""

    def __init__(self, message: str, event: yaml.Event) -> None:
        super().__init__(message)
        self.line = event.start_mark.line if event.start_mark else 0


def read_documents(text: bytes, *, types: bool = False) -> Iterator[Document | BrokenDocument]:
    """Reads the documents of a text, one by one, whatever the others look like.

    Args:
        text: YAML (or JSON) as it stands in a file, in UTF-8, or UTF-16 with a byte order mark.
        types: Whether scalars are what kubectl takes them for, tags count, and `<<` merges.

    Yields:
        A `Document` for each that could be read, a `BrokenDocument` for each that couldn't;
        empty ones (nothing but comments) are left out.
    """
    if text[:2] in _BOMS_16:
        text = text.decode("utf-16", "replace").encode()
    number = 0
    for offset, piece in _pieces(text):
        line = offset + _lines_before_content(piece)
        try:
            for value in _build(piece, types=types):
                number += 1
                yield Document(number, line, value)
        except yaml.YAMLError as error:
            number += 1
            yield BrokenDocument(number, offset + _line_of(error, piece) + 1, _problem_of(error))
        except _Unfit as error:
            number += 1
            yield BrokenDocument(number, offset + error.line + 1, str(error))


def _pieces(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Cuts a text before each `---` and after each `...`; gives (lines before it, piece)."""
    cuts = {match.start() for match in _START.finditer(text)}
    cuts |= {match.end() for match in _END.finditer(text)}
    edges = [0, *sorted(cuts - {0, len(text)}), len(text)]
    lines, kept, kept_lines = 0, b"", 0
    for start, end in itertools.pairwise(edges):
        piece = text[start:end].removeprefix(_BOM_8)
        if _only_directives(piece):
            kept, kept_lines = piece, piece.count(b"\n")
        elif not _is_empty(piece):
            yield lines - kept_lines, kept + piece
            kept, kept_lines = b"", 0
        lines += text.count(b"\n", start, end)


def _is_empty(piece: bytes) -> bool:
    rest = _START.sub(b"", piece, count=1)
    return all(_NO_CONTENT.fullmatch(line) for line in rest.splitlines() if line != b"...")


def _only_directives(piece: bytes) -> bool:
    lines = [line for line in piece.splitlines() if not _NO_CONTENT.fullmatch(line)]
    return bool(lines) and all(line.startswith(b"%") for line in lines)


def _lines_before_content(piece: bytes) -> int:
    """The line, from 1 within the piece, on which something other than a comment stands."""
    content = _LEADING_COMMENTS.sub(b"", _START.split(piece, maxsplit=1)[-1], count=1)
    return 1 + piece.count(b"\n") - content.count(b"\n")


@dataclass(slots=True)
class _Open:
    """A list or mapping that is being built."""

    value: list[object] | dict[str, object]
    anchor: str | None
    before: int
    key: str | None = None
    merging: bool = False
    merged: list[object] = field(default_factory=list)


@dataclass(slots=True)
class _Build:
    """The state of building one piece.

    `size` counts nodes and their characters as if aliases were copies; `weights` is the same for
    each anchored node.
    """

    limit: int
    types: bool
    size: int = 0
    open: list[_Open] = field(default_factory=list)
    anchors: dict[str, object] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    root: object = None

    def grow(self, by: int, event: yaml.Event) -> None:
        """Counts nodes, so that aliases of aliases of aliases end somewhere."""
        self.size += by
        if self.size > self.limit:
            raise _Unfit("its aliases expand to far more than is written", event)

    def put(self, value: object, event: yaml.Event) -> None:
        """Places a finished node, or a list or mapping that is about to be filled."""
        if not self.open:
            self.root = value
            return
        parent = self.open[-1]
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.merging:
            parent.merged.append(value)
            parent.merging = False
        elif parent.key is None:
            self._take_key(parent, parent.value, value, event)
        else:
            parent.value[parent.key] = value
            parent.key = None

    def _take_key(
        self, parent: _Open, entries: dict[str, object], key: object, event: yaml.Event
    ) -> None:
        if not isinstance(key, str):
            raise _Unfit("a key has to be a text", event)
        if key in entries:
            raise _Unfit(f"{key!r:.80} is set twice", event)
        parent.key = key

    def scalar(self, event: yaml.ScalarEvent) -> None:
        """A text, or None for a plain null."""
        weight = 1 + len(event.value)
        self.grow(weight, event)
        if self.types and self.wants_key and event.implicit[0] and event.value == "<<":
            self.open[-1].merging = True
            return
        value = self.meaning(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = value
            self.weights[event.anchor] = weight
        self.put(value, event)

    def meaning(self, event: yaml.ScalarEvent) -> Scalar:
        """What a scalar stands for; a key stands for its text."""
        text: str = event.value
        plain: bool = event.implicit[0]
        if not self.types or self.wants_key:
            is_null = plain and text in NULLS and (self.types or not self.wants_key)
            return None if is_null else text
        if plain:
            return _finite(text, event)
        kind = str(event.tag).removeprefix(_TAG)
        if event.tag in _NO_TAG or kind == "str":
            return text
        if kind not in _TYPES:
            raise _Unfit(f"{event.tag!r:.80} is no tag of a manifest", event)
        value = _finite(text, event)
        if kind == "float" and type(value) is int:
            value = float(value)
        if type(value) is not _TYPES[kind]:
            raise _Unfit(f"{text!r:.80} is no {kind}", event)
        return value

    @property
    def wants_key(self) -> bool:
        """Whether the next node is a mapping's key."""
        return (
            bool(self.open)
            and isinstance(self.open[-1].value, dict)
            and self.open[-1].key is None
            and not self.open[-1].merging
        )

    def start(
        self, value: list[object] | dict[str, object], event: yaml.CollectionStartEvent
    ) -> None:
        """A list or mapping begins."""
        kind = "map" if isinstance(value, dict) else "seq"
        if self.types and event.tag not in _NO_TAG and event.tag != _TAG + kind:
            raise _Unfit(f"{event.tag!r:.80} is no tag of a manifest", event)
        self.grow(1, event)
        if len(self.open) >= MAX_DEPTH:
            raise _Unfit(f"it nests more than {MAX_DEPTH} levels deep", event)
        self.put(value, event)
        if event.anchor is not None:
            self.anchors.pop(event.anchor, None)
        self.open.append(_Open(value, event.anchor, self.size - 1))

    def end(self, event: yaml.Event) -> None:
        """A list or mapping is complete; only now may aliases mean it."""
        done = self.open.pop()
        for one in done.merged:
            _merge(done.value, one, event)
        if done.anchor is not None:
            self.anchors[done.anchor] = done.value
            self.weights[done.anchor] = self.size - done.before

    def alias(self, event: yaml.AliasEvent) -> None:
        """The node of an anchor once more."""
        if event.anchor not in self.anchors:
            raise _Unfit(f"*{event.anchor} names nothing before it", event)
        self.grow(self.weights[event.anchor], event)
        self.put(self.anchors[event.anchor], event)


def _finite(text: str, event: yaml.Event) -> Scalar:
    if text in NON_FINITE:
        raise _Unfit(f"{text} is no number that JSON has", event)
    return typed(text)


def _merge(into: object, merged: object, event: yaml.Event) -> None:
    """Adds what `<<` names, a mapping or a list of some, where a key isn't set already."""
    for one in merged if isinstance(merged, list) else [merged]:
        if not isinstance(one, dict) or not isinstance(into, dict):
            raise _Unfit("<< takes a mapping or a list of them", event)
        for key, value in one.items():
            into.setdefault(key, value)


def _build(piece: bytes, *, types: bool) -> Iterator[object]:
    # A node and its characters take half as many bytes of text, or more, so that only aliases get
    # beyond twice its length.
    spare = min(8 * len(piece), _MANY_COPIES) if types else 8 * len(piece)
    limit = 2 * len(piece) + spare + 1000
    build = _Build(limit, types)
    for event in yaml.parse(piece, Loader=yaml.CBaseLoader):
        match event:
            case yaml.ScalarEvent():
                build.scalar(event)
            case yaml.MappingStartEvent():
                build.start({}, event)
            case yaml.SequenceStartEvent():
                build.start([], event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                build.end(event)
            case yaml.AliasEvent():
                build.alias(event)
            case yaml.DocumentStartEvent():
                build = _Build(limit, types)
            case yaml.DocumentEndEvent():
                yield build.root


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
