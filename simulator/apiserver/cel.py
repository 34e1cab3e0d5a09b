"""The CEL of match conditions and of CRDs' rules, evaluated by the library `cel-expr-python`.

The library is a development dependency of 50 MB. Where it isn't installed, every condition and
every rule holds: a webhook is called for all objects that its rules select.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import structlog

try:
    from cel_expr_python import cel as library
    from cel_expr_python.ext.ext_optional import ExtOptional
except ImportError:
    library = None

_log = structlog.get_logger(__name__)
Scope: TypeAlias = Mapping[str, Any]
_VARIABLES = ("object", "oldObject", "request", "self")


class CelError(ValueError):
    """A text that is no expression, or an expression that has no value for this input."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression; without the library there is nothing compiled."""

    compiled: Any

    def holds(self, scope: Scope) -> bool:
        """Its value, which must be a boolean."""
        return self.compiled is None or self.value(scope) is True

    def value(self, scope: Scope) -> object:
        """Its value."""
        result = self.compiled.eval(data=dict(scope))
        if result.type() == library.Type.ERROR:
            raise CelError(str(result.value()))
        return result.plain_value()


@lru_cache(maxsize=256)
def compile_expression(text: str) -> Expression:
    """Compile an expression over `object`, `oldObject` and `request`, or over `self`."""
    if library is None:
        _log.warning("CEL is not evaluated: cel-expr-python is not installed; all conditions hold")
        return Expression(None)
    environment = library.NewEnv(
        variables=dict.fromkeys(_VARIABLES, library.Type.DYN), extensions=[ExtOptional()]
    )
    try:
        return Expression(environment.compile(text))
    except RuntimeError as error:
        raise CelError(f"compilation failed: {str(error).partition(chr(10))[0]}") from error
