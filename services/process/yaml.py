"""Untrusted YAML: the documents of a text, each read separately.

PyYAML's own loaders don't fit: a syntax error ends their stream and loses the documents after it,
they build recursively, and the last of two equal keys wins. So the text is cut into documents
first, and each is built from the parser's events. What a text means is otherwise as for `kubectl`,
where that takes it: aliases, merge keys (`<<`), several JSON objects, UTF-16, byte order marks.
"""

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import yaml

from services.process.scalars import Scalar, typed

# Levels of lists and mappings; custom resources need about five.
MAX_DEPTH: Final = 100

MAX_ALIASED: Final = 1024 * 1024
"""Bytes that the aliases of a text may stand for, or as many as it has, if those are more: a few
lines of aliases can stand for gigabytes."""
_NODE: Final = 8
"""Bytes that count for each node, besides its text."""

_BOM: Final = b"\xef\xbb\xbf"
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_MERGE: Final = "<<"
_MERGE_TAG: Final = "tag:yaml.org,2002:merge"

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
# A line that starts with `---` and then a blank or nothing is a marker everywhere, in block and
# quoted scalars too (yaml.org/spec/1.2.2, 9.1.2, `c-forbidden`): cutting before it is exact.
_DIRECTIVES = rb"(?:%[^\n]*\n(?:#[^\n]*\n)*+){0,3}"
_START = re.compile(rb"^(?:\xef\xbb\xbf)?" + _DIRECTIVES + rb"---(?=[ \t\r\n]|\Z)", re.MULTILINE)
# Up to the content of a document. Files that were joined have byte order marks in the middle.
_HEAD = re.compile(
    rb"(?:\xef\xbb\xbf|[ \t\r\n]+|#[^\n]*|^%[^\n]*|---(?=[ \t\r\n]|\Z))*+", re.MULTILINE
)
_BETWEEN_OBJECTS = re.compile(rb"\}\s*\{")
_BLANKS = re.compile(r"\s*")
# In strings of JSON: escapes, and characters that YAML refuses or takes for the end of a line.
_ESCAPE_OR_UNFIT = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.|[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]"
)


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
    """Read the documents of a text, YAML or JSON in UTF-8, or in UTF-16 with a byte order mark.

    Empty ones (only comments) are skipped. What aliases stand for is shared, not copied.

    Scalars are strings, and plain nulls None. With `types`, a plain scalar has the type that it has
    for kubectl.
    """
    number, budget = 0, _Budget(max(MAX_ALIASED, len(text)))
    if text.startswith(_UTF16):
        # What is no UTF-16 becomes a character that breaks its document.
        text = text.decode("utf-16", "replace").replace("\ufffd", "\0").encode()
    for offset, piece in _pieces(text):
        try:
            for line, value in _build(piece, budget, types=types):
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
        for begin, stop in _objects(text, start, end):
            yield lines, _without_marks(text[begin:stop])
            lines += text.count(b"\n", begin, stop)


def _objects(text: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut a piece between objects of JSON that follow each other, if it has only these."""
    piece = text[start:end]
    ends = _ends(piece, _head(piece)) if _BETWEEN_OBJECTS.search(piece) else []
    yield from itertools.pairwise([start, *(start + each for each in ends[:-1]), end])


def _ends(piece: bytes, offset: int) -> list[int]:
    """Where each object of JSON ends; empty if there is anything else."""
    decoder, ends = json.JSONDecoder(), list[int]()
    try:
        rest, position = piece[offset:].decode(), 0
        while position < len(rest):
            _, end = decoder.raw_decode(rest, position)
            offset += len(rest[position:end].encode())
            ends.append(offset)
            blanks = _BLANKS.match(rest, end)
            position = blanks.end() if blanks else end
            offset += position - end
    except (ValueError, RecursionError):
        return []
    return ends


def _head(piece: bytes) -> int:
    """Where the content of a piece starts."""
    head = _HEAD.match(piece)
    return head.end() if head else 0


def _without_marks(piece: bytes) -> bytes:
    end = _head(piece)
    head, content = piece[:end].replace(_BOM, b""), piece[end:]
    if content.startswith(b"{"):  # JSON may be indented by tabs
        head, content = head.replace(b"\t", b" "), _json_as_yaml(content)
    return head + content


def _json_as_yaml(content: bytes) -> bytes:
    """Escape in JSON what YAML would not read; return other content unchanged."""
    try:
        text = content.decode()
        escaped = _ESCAPE_OR_UNFIT.sub(_escaped, text)
        if escaped != text:
            json.loads(text, parse_int=str)
    except (ValueError, RecursionError):
        return content
    return escaped.encode()


def _escaped(match: re.Match[str]) -> str:
    """An escape or character of JSON as YAML writes it."""
    found, (high, low) = match[0], match.groups()
    if high and low:  # a surrogate pair
        return f"\\U{0x10000 + (int(high, 16) - 0xD800) * 0x400 + int(low, 16) - 0xDC00:08x}"
    if len(found) == 1:
        return f"\\u{ord(found):04x}"
    # Half a pair is no character; kubectl replaces it.
    return found if len(found) == 2 else "\\ufffd"


@dataclass(slots=True)
class _Budget:
    """How many bytes aliases may still stand for."""

    left: int


@dataclass(slots=True)
class _Collection:
    """A list or mapping, and how it is filled."""

    value: list[object] | dict[str, object]
    key: str | None = None
    """Of a mapping: that whose value comes next."""
    merges: bool = False
    """Of a mapping: whether one to merge into it comes next, or a list of such."""
    merged: set[str] | None = None
    """Keys that were merged: they may be set again."""
    size: int = _NODE
    height: int = 1
    """How many lists and mappings are in each other."""
    is_open: bool = True


@dataclass(slots=True)
class _Build:
    """The state of building a document: the lists and mappings that are open, and its anchors."""

    # A stack, not recursion: deep nesting would end the process, and the C loader crashes it.
    budget: _Budget
    types: bool
    open: list[_Collection] = field(default_factory=list)
    anchors: dict[str, _Collection | yaml.ScalarEvent] = field(default_factory=dict)
    root: object = None

    @property
    def wants_key(self) -> bool:
        """Whether the next node is a key."""
        if not self.open:
            return False
        last = self.open[-1]
        return isinstance(last.value, dict) and last.key is None and not last.merges

    def scalar(self, event: yaml.ScalarEvent) -> None:
        """Add a scalar."""
        if self.open:
            self.open[-1].size += _NODE + len(event.value)
        if event.anchor is not None:
            self.anchors[event.anchor] = event
        merges = event.value == _MERGE and (event.implicit[0] or event.tag == _MERGE_TAG)
        if self.wants_key and merges:
            self.open[-1].merges = True
        else:
            self._add(self._scalar(event), event)

    def start(
        self, value: list[object] | dict[str, object], event: yaml.CollectionStartEvent
    ) -> None:
        """Open a list or mapping."""
        if len(self.open) >= MAX_DEPTH:
            raise _Unfit(f"it nests more than {MAX_DEPTH} levels deep", event)
        if not (self.open and self.open[-1].merges):  # else its end adds it
            self._add(value, event)
        opened = _Collection(value)
        if event.anchor is not None:
            self.anchors[event.anchor] = opened
        self.open.append(opened)

    def end(self, event: yaml.Event) -> None:
        """Close a list or mapping."""
        closed = self.open.pop()
        closed.is_open = False
        self._count(closed.size, closed.height)
        if self.open and self.open[-1].merges:
            self._add(closed.value, event)

    def alias(self, event: yaml.AliasEvent) -> None:
        """Add what an alias stands for."""
        name = f"*{event.anchor:.80}"
        node = self.anchors.get(event.anchor or "")
        if node is None:
            raise _Unfit(f"{name}: there is no anchor of this name before it", event)
        if isinstance(node, yaml.ScalarEvent):
            self._spend(_NODE + len(node.value), event)
            self._count(_NODE + len(node.value), 0)
            self._add(self._scalar(node), event)
            return
        if node.is_open:
            raise _Unfit(f"{name}: what it stands for contains itself", event)
        if len(self.open) + node.height > MAX_DEPTH:
            raise _Unfit(f"it nests more than {MAX_DEPTH} levels deep", event)
        self._spend(node.size, event)
        self._count(node.size, node.height)
        self._add(node.value, event)

    def _spend(self, size: int, event: yaml.AliasEvent) -> None:
        self.budget.left -= size
        if self.budget.left < 0:
            what = "the aliases of this text stand for too much"
            raise _Unfit(f"*{event.anchor:.80}: {what}", event)

    def _count(self, size: int, height: int) -> None:
        """Count what is in a list or mapping for the one that it is in."""
        if self.open:
            parent = self.open[-1]
            parent.size += size
            parent.height = max(parent.height, height + 1)

    def _add(self, value: object, event: yaml.Event) -> None:
        """Add a node; a list or mapping may be filled later."""
        if not self.open:
            self.root = value
            return
        last = self.open[-1]
        if isinstance(last.value, list):
            last.value.append(value)
        elif last.merges:
            last.merged = last.merged or set()
            _merge(last.value, last.merged, value, event)
            last.merges = False
        elif last.key is not None:
            last.value[last.key] = value
            last.key = None
        elif not isinstance(value, str):
            raise _Unfit("a key has to be a text", event)
        elif value in last.value and value not in (last.merged or ()):
            raise _Unfit(f"{value!r:.80} is set twice", event)
        else:
            last.key = value
            if last.merged:
                last.merged.discard(value)

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        """Return the value of a scalar; that of a key is its text."""
        text: str = event.value
        plain: bool = event.implicit[0]
        if self.wants_key or not plain:  # `8080: x` and `'1'` are texts
            return text
        if text in _NULLS:
            return None
        return typed(text) if self.types else text


def _merge(into: dict[str, object], keys: set[str], value: object, event: yaml.Event) -> None:
    """Merge a mapping, or several, into another one, and note their keys."""
    # As the parser of kubectl: a mapping that is merged replaces keys before it, and the first of
    # several mappings wins.
    for each in reversed(value if isinstance(value, list) else [value]):
        if not isinstance(each, dict):
            raise _Unfit("<< needs a mapping, or a list of mappings", event)
        into.update(each)
        keys.update(each)


def _build(piece: bytes, budget: _Budget, *, types: bool) -> Iterator[tuple[int, object]]:
    """Yield the documents of a piece that are not empty, each with the line of its content."""
    build, content = _Build(budget, types), None
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
                build, content = _Build(budget, types), None
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
