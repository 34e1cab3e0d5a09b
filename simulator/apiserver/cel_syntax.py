"""The syntax of CEL, as much as match conditions and validation rules need: text to a tree.

Known: literals (text, numbers, booleans, null, lists, maps), variables, `a.b`, `a.?b`, `a[b]`,
`a[?b]`, calls of functions and methods, `! - + % == != < <= > >= in && || ?:`, and the macros
`has`, `all`, `exists`, `exists_one`, `filter`, `map` (with two arguments). Not known: messages,
bytes, unsigned numbers, raw and triple-quoted text, `* /`, comments. Grammar: cel-spec,
doc/langdef.md.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

MACROS = frozenset({"all", "exists", "exists_one", "filter", "map"})
_RELATIONS = ("==", "!=", "<=", ">=", "<", ">", "in")
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<number>\d+\.\d+|\d+)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<sign>&&|\|\||==|!=|<=|>=|\.\?|\[\?|[.?:,!+%\-<>()\[\]{}])
    )""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class SyntaxProblem(ValueError):
    """A text that is no expression, or one of a kind that is not known here."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that stands in the text."""

    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Name:
    """A variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`, or `operand.?field`."""

    operand: "Tree"
    field: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """`operand[key]`, or `operand[?key]`."""

    operand: "Tree"
    key: "Tree"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A function, method or operator with its operands; a method's first is its target."""

    name: str
    operands: tuple["Tree", ...]


@dataclass(frozen=True, slots=True)
class Macro:
    """`operand.name(variable, body)`."""

    name: str
    operand: "Tree"
    variable: str
    body: "Tree"


@dataclass(frozen=True, slots=True)
class ListOf:
    """`[a, b]`."""

    items: tuple["Tree", ...]


@dataclass(frozen=True, slots=True)
class MapOf:
    """`{a: b}`."""

    items: tuple[tuple["Tree", "Tree"], ...]


Tree: TypeAlias = Literal | Name | Select | Index | Call | Macro | ListOf | MapOf


def parse(text: str) -> Tree:
    """The tree of an expression.

    Raises:
        SyntaxProblem: where the text is none.
    """
    parser = _Parser(list(_tokens(text)))
    tree = parser.ternary()
    parser.expect_end()
    return tree


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise SyntaxProblem(f"unexpected {text[at:].lstrip()[:1]!r} at character {at}")
        at = found.end()
        kind = str(found.lastgroup)
        yield kind, found.group(kind)
    yield "end", ""


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1])


class _Parser:
    """Recursive descent, one method a level of precedence, loosest first."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def _next(self) -> str:
        kind, text = self._tokens[self._at]
        return text if kind in ("sign", "name") else ""

    def _take(self, *signs: str) -> str:
        """The next sign, if it is one of these."""
        found = self._next
        if found not in signs or not found:
            return ""
        self._at += 1
        return found

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            found = self._tokens[self._at][1] or "the end"
            raise SyntaxProblem(f"expected {sign!r} before {found!r}")

    def expect_end(self) -> None:
        """Refuses what stands behind the expression."""
        kind, text = self._tokens[self._at]
        if kind != "end":
            raise SyntaxProblem(f"unexpected {text!r} behind the expression")

    def ternary(self) -> Tree:
        """`a ? b : c`."""
        condition = self._either()
        if not self._take("?"):
            return condition
        yes = self._either()
        self._expect(":")
        return Call("?:", (condition, yes, self.ternary()))

    def _either(self) -> Tree:
        tree = self._both()
        while self._take("||"):
            tree = Call("||", (tree, self._both()))
        return tree

    def _both(self) -> Tree:
        tree = self._relation()
        while self._take("&&"):
            tree = Call("&&", (tree, self._relation()))
        return tree

    def _relation(self) -> Tree:
        tree = self._sum()
        while sign := self._take(*_RELATIONS):
            tree = Call(sign, (tree, self._sum()))
        return tree

    def _sum(self) -> Tree:
        tree = self._product()
        while sign := self._take("+", "-"):
            tree = Call(sign, (tree, self._product()))
        return tree

    def _product(self) -> Tree:
        tree = self._unary()
        while self._take("%"):
            tree = Call("%", (tree, self._unary()))
        return tree

    def _unary(self) -> Tree:
        if sign := self._take("!", "-"):
            return Call(f"unary{sign}", (self._unary(),))
        return self._member()

    def _member(self) -> Tree:
        tree = self._primary()
        while sign := self._take(".", ".?", "[", "[?"):
            if sign.startswith("["):
                key = self.ternary()
                self._expect("]")
                tree = Index(tree, key, sign == "[?")
                continue
            name = self._identifier()
            if sign == "." and self._take("("):
                tree = self._method(tree, name)
            else:
                tree = Select(tree, name, sign == ".?")
        return tree

    def _method(self, target: Tree, name: str) -> Tree:
        arguments = self._arguments(")")
        if name not in MACROS:
            return Call(name, (target, *arguments))
        if len(arguments) != 2 or not isinstance(arguments[0], Name):
            raise SyntaxProblem(f"{name} takes a variable and an expression")
        return Macro(name, target, arguments[0].name, arguments[1])

    def _arguments(self, end: str) -> list[Tree]:
        found: list[Tree] = []
        while not self._take(end):
            if found:
                self._expect(",")
            found.append(self.ternary())
        return found

    def _identifier(self) -> str:
        kind, text = self._tokens[self._at]
        if kind != "name":
            raise SyntaxProblem(f"expected a name before {text or 'the end'!r}")
        self._at += 1
        return text

    def _primary(self) -> Tree:
        kind, text = self._tokens[self._at]
        if kind == "text":
            self._at += 1
            return Literal(_unquote(text))
        if kind == "number":
            self._at += 1
            return Literal(float(text) if "." in text else int(text))
        if self._take("("):
            tree = self.ternary()
            self._expect(")")
            return tree
        if self._take("["):
            return ListOf(tuple(self._arguments("]")))
        if self._take("{"):
            return self._map()
        return self._named(self._identifier())

    def _map(self) -> Tree:
        items: list[tuple[Tree, Tree]] = []
        while not self._take("}"):
            if items:
                self._expect(",")
            key = self.ternary()
            self._expect(":")
            items.append((key, self.ternary()))
        return MapOf(tuple(items))

    def _named(self, name: str) -> Tree:
        constants = {"true": True, "false": False, "null": None}
        if name in constants:
            return Literal(constants[name])
        if not self._take("("):
            return Name(name)
        arguments = self._arguments(")")
        if name == "has" and not (len(arguments) == 1 and isinstance(arguments[0], Select)):
            raise SyntaxProblem("has() takes a field selection")
        return Call(name, tuple(arguments))
