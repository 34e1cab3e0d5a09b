"""Evaluates the CEL of match conditions and of CRDs' rules, as far as `cel_syntax` reads it.

Errors are values until something needs them, since `&&`, `||`, `all` and `exists` get over an
error on one side where the other decides (cel-spec). Objects are decoded JSON, without types, so a
wrong field name is found at evaluation and not when the configuration is created.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from simulator.apiserver.cel_syntax import (
    Call,
    Index,
    ListOf,
    Literal,
    Macro,
    MapOf,
    Name,
    Select,
    SyntaxProblem,
    Tree,
    parse,
)

Scope: TypeAlias = Mapping[str, Any]
VARIABLES = frozenset({"object", "oldObject", "request"})
_UNSET = object()


class EvaluationProblem(ValueError):
    """An expression that has no value for this input."""


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may not be there."""

    value: Any = _UNSET

    @property
    def there(self) -> bool:
        """Whether it is."""
        return self.value is not _UNSET


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression.

    Args:
        text: as it was written.
        tree: what it means.
    """

    text: str
    tree: Tree

    def holds(self, scope: Scope) -> bool:
        """Its value, which must be a boolean.

        Raises:
            EvaluationProblem: it has none, or one of another type.
        """
        value = _evaluate(self.tree, scope)
        if not isinstance(value, bool):
            raise EvaluationProblem("must evaluate to bool")
        return value

    def text_of(self, scope: Scope) -> str:
        """Its value, which must be a text.

        Raises:
            EvaluationProblem: it has none, or one of another type.
        """
        return _text(_evaluate(self.tree, scope))


@lru_cache(maxsize=256)
def compile_expression(text: str, variables: frozenset[str] = VARIABLES) -> Expression:
    """Reads an expression.

    Args:
        text: as it was written.
        variables: what it may speak of.

    Raises:
        SyntaxProblem: it is none, or uses what is not known here.
    """
    tree = parse(text)
    _check(tree, variables)
    return Expression(text, tree)


def _check(tree: Tree, known: frozenset[str]) -> None:
    """Refuses variables and functions that don't exist."""
    if isinstance(tree, Name) and tree.name not in known:
        raise SyntaxProblem(f"undeclared reference to '{tree.name}'")
    if isinstance(tree, Call) and tree.name not in _FUNCTIONS and tree.name not in _LAZY:
        raise SyntaxProblem(f"undeclared reference to '{tree.name}'")
    if isinstance(tree, Macro):
        _check(tree.body, known | {tree.variable})
    for child in _children(tree):
        _check(child, known)


def _children(tree: Tree) -> Iterable[Tree]:
    """The parts of a tree that see the same variables."""
    match tree:
        case Select(operand) | Macro(operand=operand):
            return (operand,)
        case Index(operand, key):
            return (operand, key)
        case Call(operands=parts) | ListOf(parts):
            return parts
        case MapOf(pairs):
            return [part for pair in pairs for part in pair]
        case _:
            return ()


def _evaluate(tree: Tree, scope: Scope) -> Any:  # noqa: ANN401 - any CEL value
    value: Any
    match tree:
        case Literal(value):
            pass
        case Name(name):
            value = scope[name]
        case Select(operand, field, optional):
            value = _member(_evaluate(operand, scope), field, optional=optional)
        case Index(operand, key, optional):
            holder = _evaluate(operand, scope)
            value = _member(holder, _evaluate(key, scope), optional=optional)
        case Call(name, operands) if name in _LAZY:
            value = _LAZY[name](operands, scope)
        case Call(name, operands):
            value = _call(name, [_evaluate(operand, scope) for operand in operands])
        case Macro():
            value = _macro(tree, scope)
        case ListOf(items):
            value = [_evaluate(item, scope) for item in items]
        case MapOf(pairs):
            value = {_evaluate(key, scope): _evaluate(part, scope) for key, part in pairs}
    return value


def _member(value: Any, key: Any, *, optional: bool) -> Any:  # noqa: ANN401 - any CEL value
    """A field or item; selecting from an optional gives an optional."""
    if isinstance(value, Optional):
        return _member(value.value, key, optional=True) if value.there else value
    found = _lookup(value, key)
    if optional:
        return Optional(found)
    if found is _UNSET:
        raise EvaluationProblem(f"no such key: {key}")
    return found


def _lookup(value: Any, key: Any) -> Any:  # noqa: ANN401 - any CEL value
    if isinstance(value, dict):
        return value.get(key, _UNSET)
    if isinstance(value, list) and isinstance(key, int) and not isinstance(key, bool):
        return value[key] if 0 <= key < len(value) else _UNSET
    raise EvaluationProblem("no such overload")


def _macro(macro: Macro, scope: Scope) -> Any:  # noqa: ANN401 - any CEL value
    items = _evaluate(macro.operand, scope)
    if not isinstance(items, list | dict):
        raise EvaluationProblem("no such overload")
    parts = [(macro.body, {**scope, macro.variable: item}) for item in items]
    match macro.name:
        case "exists" | "all":
            return _aggregate(parts, decides=macro.name == "exists")
        case "map":
            return [_evaluate(*part) for part in parts]
        case "filter":
            kept = zip(items, parts, strict=True)
            return [item for item, part in kept if _boolean(_evaluate(*part))]
        case _:
            return sum(_boolean(_evaluate(*part)) for part in parts) == 1


def _aggregate(parts: Iterable[tuple[Tree, Scope]], *, decides: bool) -> bool:
    """`||` (decided by a true) or `&&` (by a false) of parts, errors only if nothing decides."""
    problem: EvaluationProblem | None = None
    for tree, scope in parts:
        try:
            if _boolean(_evaluate(tree, scope)) is decides:
                return decides
        except EvaluationProblem as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return not decides


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise EvaluationProblem("no such overload")
    return value


def _either(operands: tuple[Tree, ...], scope: Scope) -> bool:
    return _aggregate([(operand, scope) for operand in operands], decides=True)


def _both(operands: tuple[Tree, ...], scope: Scope) -> bool:
    return _aggregate([(operand, scope) for operand in operands], decides=False)


def _choose(operands: tuple[Tree, ...], scope: Scope) -> Any:  # noqa: ANN401 - any CEL value
    condition, yes, no = operands
    return _evaluate(yes if _boolean(_evaluate(condition, scope)) else no, scope)


def _has(operands: tuple[Tree, ...], scope: Scope) -> bool:
    selection = operands[0]
    assert isinstance(selection, Select)  # noqa: S101 - the parser saw to it
    found = _member(_evaluate(selection.operand, scope), selection.field, optional=True)
    return isinstance(found, Optional) and found.there


_LAZY: dict[str, Callable[[tuple[Tree, ...], Scope], Any]] = {
    "||": _either,
    "&&": _both,
    "?:": _choose,
    "has": _has,
}


def _call(name: str, values: list[Any]) -> Any:  # noqa: ANN401 - any CEL value
    try:
        return _FUNCTIONS[name](*values)
    except (TypeError, AttributeError, re.error) as error:
        raise EvaluationProblem("no such overload") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise EvaluationProblem("no such overload")
    return value


def _same_kind(one: object, other: object) -> None:
    numbers = [
        isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other)
    ]
    if type(one) is not type(other) and not all(numbers):
        raise EvaluationProblem("no such overload")


def _add(one: Any, other: Any) -> Any:  # noqa: ANN401 - any CEL value
    _same_kind(one, other)
    if isinstance(one, bool | dict):
        raise EvaluationProblem("no such overload")
    return one + other


def _remainder(one: Any, other: Any) -> int:  # noqa: ANN401 - any CEL value
    if type(one) is not int or type(other) is not int:
        raise EvaluationProblem("no such overload")
    if other == 0:
        raise EvaluationProblem("modulus by zero")
    return int(math.fmod(one, other))  # as in C, its sign is that of the first


def _less(one: Any, other: Any) -> bool:  # noqa: ANN401 - any CEL value
    _same_kind(one, other)
    return bool(one < other)


def _equal(one: object, other: object) -> bool:
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    return one == other


def python_pattern(pattern: str) -> str:
    """Go's `$` means the very end; Python's also matches before a last newline."""
    return re.sub(r"(?<!\\)\$", r"\\Z", pattern)


def _or_value(value: object, default: object) -> object:
    if not isinstance(value, Optional):
        raise EvaluationProblem("no such overload")
    return value.value if value.there else default


def _has_value(value: object) -> bool:
    if not isinstance(value, Optional):
        raise EvaluationProblem("no such overload")
    return value.there


def _in(item: object, values: Any) -> bool:  # noqa: ANN401 - any CEL value
    if not isinstance(values, list | dict):
        raise EvaluationProblem("no such overload")
    return item in values


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "==": _equal,
    "!=": lambda one, other: not _equal(one, other),
    "<": _less,
    ">": lambda one, other: _less(other, one),
    "<=": lambda one, other: not _less(other, one),
    ">=": lambda one, other: not _less(one, other),
    "in": _in,
    "+": _add,
    "-": lambda one, other: one - other,
    "%": _remainder,
    "unary!": lambda value: not _boolean(value),
    "unary-": lambda value: -value,
    "size": len,
    "startsWith": lambda text, start: _text(text).startswith(start),
    "endsWith": lambda text, end: _text(text).endswith(end),
    "contains": lambda text, part: part in _text(text),
    "matches": lambda text, pattern: bool(re.search(python_pattern(pattern), _text(text))),
    "lowerAscii": lambda text: _text(text).lower(),
    "string": str,
    "orValue": _or_value,
    "hasValue": _has_value,
}
