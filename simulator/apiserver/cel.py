"""The CEL of match conditions and of CRDs' rules, evaluated by the library `cel-expr-python`.

The library is a development dependency of 50 MB. Where it isn't installed, every condition and
every rule holds: a webhook is called for all objects that its rules select.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeAlias

import structlog

try:
    from cel_expr_python import cel as library
    from cel_expr_python.ext.ext_optional import ExtOptional
except ImportError:
    library = None

_log = structlog.get_logger(__name__)
Scope: TypeAlias = Mapping[str, Any]
VARIABLES = frozenset({"object", "oldObject", "request"})


class CompilationError(ValueError):
    """A text that is no expression, or that uses unknown variables or functions."""


class EvaluationError(ValueError):
    """An expression that has no value for this input."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression.

    Args:
        text: as it was written.
        compiled: the library's; None where there is no library.
    """

    text: str
    compiled: Any

    def holds(self, scope: Scope) -> bool:
        """Its value, which must be a boolean."""
        if self.compiled is None:
            return True
        value = self._value(scope)
        if not isinstance(value, bool):
            raise EvaluationError("must evaluate to bool")
        return value

    def text_of(self, scope: Scope) -> str:
        """Its value, which must be a text."""
        value = None if self.compiled is None else self._value(scope)
        if not isinstance(value, str):
            raise EvaluationError("must evaluate to string")
        return value

    def _value(self, scope: Scope) -> object:
        result = self.compiled.eval(data=dict(scope))
        if result.type() == library.Type.ERROR:
            raise EvaluationError(str(result.value()))
        return result.plain_value()


@lru_cache(maxsize=256)
def compile_expression(text: str, variables: frozenset[str] = VARIABLES) -> Expression:
    """Reads an expression."""
    if library is None:
        _warn_once()
        return Expression(text, None)
    environment = library.NewEnv(
        variables=dict.fromkeys(variables, library.Type.DYN), extensions=[ExtOptional()]
    )
    try:
        return Expression(text, environment.compile(text))
    except RuntimeError as error:
        first_line = str(error).partition("\n")[0]
        raise CompilationError(first_line.removeprefix("INVALID_ARGUMENT: ")) from error


@cache
def _warn_once() -> None:
    _log.warning("CEL is not evaluated: cel-expr-python is not installed; all conditions hold")


def python_pattern(pattern: str) -> str:
    """Go's `$` means the very end; Python's also matches before a last newline."""
    return re.sub(r"(?<!\\)\$", r"\\Z", pattern)
