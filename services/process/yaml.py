"""Untrusted YAML: the documents of a text, each read separately.

The text is cut into documents first, since a syntax error ends PyYAML's stream. PyYAML composes
nodes, which know their lines; values are built from them as `kubectl` builds them: scalars of YAML
1.1 as Go reads them (sigs.k8s.io/yaml; tried with kubectl 1.32), merge keys (`<<`), UTF-16.
Otherwise PyYAML decides: objects of JSON need `---` between them, and their strings no escaped
surrogates; an anchor is set once.
"""

import codecs
import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import yaml

Scalar: TypeAlias = str | int | float | bool | None

_BOOLEANS: Final = {
    word: value
    for value, words in ((True, "true yes on y"), (False, "false no off n"))
    for each in words.split()
    for word in (each, each.title(), each.upper())
}
_INTEGER: Final = re.compile(
    r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))"
)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LONGEST: Final = 400
"""Characters of a number; longer ones are texts."""


def typed(text: str) -> Scalar:
    """The number or boolean that a plain scalar is, otherwise the text."""
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    digits = text.replace("_", "") if text[0] in "+-.0123456789" else ""
    if len(digits) > _LONGEST:
        return text
    if match := _INTEGER.fullmatch(digits):
        sign, *numbers = match.groups()
        bases = zip(numbers, (16, 2, 8, 10), strict=True)
        value = next(int(f"{sign}{each}", base) for each, base in bases if each)
        if -(2**63) <= value < 2**64:
            return value
    if not _FLOAT.fullmatch(digits) or math.isinf(real := float(digits)):
        return text
    return int(real) if real.is_integer() and abs(real) < 1e21 else real  # as Go writes JSON


# Levels of lists and mappings; custom resources need about five.
MAX_DEPTH: Final = 100

MAX_ALIASED: Final = 1024 * 1024
"""Bytes that the aliases of a text may stand for, or as many as it has, if those are more: a few
lines of aliases can stand for gigabytes."""
_NODE: Final = 8
"""Bytes that count for each node, besides its text."""

_PLAIN: Final = "!plain"
_MERGE: Final = "tag:yaml.org,2002:merge"
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
# A line that starts with `---` and then a blank or nothing is a marker everywhere, in block and
# quoted scalars too (yaml.org/spec/1.2.2, 9.1.2, `c-forbidden`): cutting before it is exact.
_START = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_MARK = re.compile("^\ufeff", re.MULTILINE)

_UNREADABLE: Final = "accelbind.unreadable"
# A byte that is no text becomes a character that breaks its document only.
codecs.register_error(_UNREADABLE, lambda error: ("\0", codecs.replace_errors(error)[1]))


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


class _Loader(yaml.CBaseLoader):
    """Composes nodes; those of plain scalars without a tag have the tag `_PLAIN`."""


_Loader.add_implicit_resolver(_PLAIN, re.compile(""), None)


class _Unfit(yaml.YAMLError):
    """The document is YAML, but not accepted."""

    def __init__(self, message: str, at: yaml.Node | yaml.Event) -> None:
        super().__init__(message)
        self.line = at.start_mark.line if at.start_mark else 0


def read_documents(text: bytes, *, types: bool = False) -> Iterator[Document | BrokenDocument]:
    """Read the documents of a text, YAML or JSON in UTF-8, or in UTF-16 with a byte order mark.

    Empty ones (only comments) are skipped.

    Scalars are strings, and plain nulls None. With `types`, a plain scalar has the type that it has
    for kubectl.
    """
    number, reader = 0, _Reader(types, max(MAX_ALIASED, len(text)))
    for lines, piece in _pieces(text):
        try:
            for node in _compose(piece):
                value = reader.document(node)
                number += 1
                yield Document(number, lines + node.start_mark.line + 1, value)
        except yaml.YAMLError as error:
            number += 1
            yield BrokenDocument(number, lines + _line_of(error, piece) + 1, _problem_of(error))


def _pieces(text: bytes) -> Iterator[tuple[int, str]]:
    """Cut a text before each `---`; yield (lines before it, piece)."""
    encoding = "utf-16" if text.startswith(_UTF16) else "utf-8"
    # Files that were joined have byte order marks in the middle.
    decoded = _MARK.sub("", text.decode(encoding, _UNREADABLE))
    cuts = {match.start() for match in _START.finditer(decoded)}
    lines = 0
    for start, end in itertools.pairwise(sorted({0, len(decoded), *cuts})):
        yield lines, decoded[start:end]
        lines += decoded.count("\n", start, end)


def _compose(piece: str) -> Iterator[yaml.Node]:
    """Compose the documents of a piece that are not empty."""
    # The composer is recursive, and deep nesting would end the process.
    depth = 0
    for event in yaml.parse(piece, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _Unfit(f"it nests more than {MAX_DEPTH} levels deep", event)
    for node in yaml.compose_all(piece, Loader=_Loader):
        if node.start_mark.index < node.end_mark.index:  # else the parser made it up
            yield node


@dataclass(slots=True)
class _Reader:
    """Builds the values of nodes, and counts what aliases stand for."""

    types: bool
    left: int
    """Bytes that aliases may still stand for."""
    known: set[int] = field(default_factory=set)
    """The nodes of this document that were read."""

    def document(self, node: yaml.Node) -> object:
        """The value of a document's node."""
        self.known.clear()
        return self._value(node, 0)

    def _value(self, node: yaml.Node, depth: int) -> object:
        self._count(node)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if depth >= MAX_DEPTH:
            raise _Unfit(f"it nests more than {MAX_DEPTH} levels deep", node)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(each, depth + 1) for each in node.value]
        return self._mapping(node, depth)

    def _count(self, node: yaml.Node) -> None:
        if id(node) in self.known:
            self.left -= _NODE + len(node.value)
            if self.left < 0:
                raise _Unfit("the aliases of this text stand for too much", node)
        self.known.add(id(node))

    def _scalar(self, node: yaml.ScalarNode) -> Scalar:
        text: str = node.value
        if node.tag != _PLAIN:  # `'1'` is a text
            return text
        if text in _NULLS:
            return None
        return typed(text) if self.types else text

    def _mapping(self, node: yaml.Node, depth: int) -> dict[str, object]:
        found, merged = dict[str, object](), set[str]()
        for key, of in node.value:
            self._count(key)
            value = self._value(of, depth + 1)
            if not isinstance(key, yaml.ScalarNode):
                raise _Unfit("a key has to be a text", key)
            if key.tag == _MERGE or (key.tag == _PLAIN and key.value == "<<"):
                # As for kubectl: it replaces keys before it, and the first of several wins.
                for each in reversed(value if isinstance(value, list) else [value]):
                    if not isinstance(each, dict):
                        raise _Unfit("<< needs a mapping, or a list of mappings", of)
                    found.update(each)
                    merged.update(each)
                continue
            if key.value in found and key.value not in merged:
                raise _Unfit(f"{key.value!r:.80} is set twice", key)
            merged.discard(key.value)
            found[key.value] = value
        return found


def _line_of(error: yaml.YAMLError, piece: str) -> int:
    """The line of a problem, from 0 within the piece."""
    if isinstance(error, _Unfit):
        return error.line
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return error.problem_mark.line
    position = getattr(error, "position", 0)
    return piece.count("\n", 0, position if isinstance(position, int) else 0)


def _problem_of(error: yaml.YAMLError) -> str:
    if isinstance(error, _Unfit):
        return str(error)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem == "second occurrence":
        return f"not YAML: {str(error.context).partition(';')[0]}"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        return f"not YAML: {error.problem}"
    return f"not YAML: {' '.join(str(error).split()):.200}"
