"""Custom resource definitions: a created one is served at once, and its schema is kept.

What is read of a schema: `type`, `properties`, `required`, `pattern`, `enum`, `minLength`,
`maxLength`, `default`, and `x-kubernetes-validations` on `self`. An update is validated as since
Kubernetes 1.30: a part that stays as it was is not validated again.

CEL, here and in match conditions, is evaluated by the library `cel-expr-python`, a development
dependency of 50 MB. Where it is not installed, every condition and every rule holds.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import structlog

from simulator.apiserver.calls import Cause, invalid_value
from simulator.apiserver.resources import DEFINITIONS, Json, Resource, ResourceTable
from simulator.apiserver.store import Change, Store, decode

try:
    from cel_expr_python import cel as library
    from cel_expr_python.ext.ext_optional import ExtOptional
    from cel_expr_python.ext.ext_strings import ExtStrings
except ImportError:
    library = None

_log = structlog.get_logger(__name__)

_TYPES = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}
_ROOT = ("apiVersion", "kind", "metadata")
_RULES = "x-kubernetes-validations"
_VARIABLES = ("device", "object", "oldObject", "request", "self", "variables")
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing"
    " errors to complete validation"
)


class CelError(ValueError):
    """A text that is no expression, or an expression that has no value for this input."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression; without the library there is nothing compiled."""

    compiled: Any

    def holds(self, scope: Mapping[str, Any]) -> bool:
        """Its value, which must be a boolean."""
        return self.compiled is None or self.value(scope) is True

    def value(self, scope: Mapping[str, Any]) -> object:
        """Its value."""
        result = self.compiled.eval(data=dict(scope))
        if result.type() == library.Type.ERROR:
            raise CelError(str(result.value()))
        return result.plain_value()


@lru_cache(maxsize=256)
def compile_expression(text: str) -> Expression:
    """Compile an expression over a review, a policy's variables, `self`, or `device`."""
    if library is None:
        _log.warning("CEL is not evaluated: cel-expr-python is not installed; all conditions hold")
        return Expression(None)
    environment = library.NewEnv(
        variables=dict.fromkeys(_VARIABLES, library.Type.DYN),
        extensions=[ExtOptional(), ExtStrings()],
    )
    try:
        return Expression(environment.compile(text))
    except RuntimeError as error:
        raise CelError(f"compilation failed: {str(error).partition(chr(10))[0]}") from error


def serve_definitions(store: Store, table: ResourceTable) -> None:
    """Keep the table of resources in step with the definitions in the store."""

    def on_change(change: Change) -> None:
        resource = resource_of(decode(change.data))
        if change.kind != "DELETED":
            table.put(resource)
            return
        for path in tuple(store.shelf(resource).objects):
            store.remove(resource, path)
        table.drop(resource)

    store.listen(DEFINITIONS, on_change)


def resource_of(definition: Json) -> Resource:
    """The resource that a definition describes, in the version that is stored."""
    spec = definition["spec"]
    version = next(one for one in spec["versions"] if one.get("storage"))
    names = spec["names"]
    return Resource(
        spec["group"],
        version["name"],
        names["plural"],
        names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        schema=version["schema"]["openAPIV3Schema"],
        subresources=frozenset(version.get("subresources") or {}),
        short_names=tuple(names.get("shortNames") or ()),
    )


def established(definition: Json) -> Json:
    """The definition with the status of one that is served."""
    conditions = [{"type": name, "status": "True"} for name in ("NamesAccepted", "Established")]
    return definition | {"status": {"conditions": conditions}}


def prune(schema: Json, item: Json) -> tuple[Json, list[str]]:
    """The object without the fields that its schema does not know, and the paths of those."""
    dropped: list[str] = []
    root = {name: item[name] for name in _ROOT if name in item}
    body = {name: value for name, value in item.items() if name not in _ROOT}
    return root | _pruned(schema, body, "", dropped), dropped


def _pruned(schema: Json, value: Json, path: str, dropped: list[str]) -> Json:
    properties: Json = schema.get("properties") or {}
    if not properties:
        return value
    kept: Json = {}
    for name, inner in value.items():
        where = f"{path}.{name}" if path else name
        if name not in properties:
            dropped.append(where)
        elif isinstance(inner, dict):
            kept[name] = _pruned(properties[name], inner, where, dropped)
        else:
            kept[name] = inner
    defaults = {name: one["default"] for name, one in properties.items() if "default" in one}
    return defaults | kept


def validate(schema: Json, item: Json, old: Json | None = None) -> list[Cause]:
    """What in an object does not fit its schema; its rules are read once all else fits."""
    new, before = _judged(item), old and _judged(old)
    causes = list(_check(schema, new, "", before))
    if causes:
        return [*causes, Cause("<nil>", f"Invalid value: null: {_UNCHECKED}")]
    return list(_broken_rules(schema, new, "", before))


def _judged(item: Json) -> Json:
    """The part of an object that a schema sees: of the metadata, only the name."""
    names = {"name": item["metadata"]["name"]}
    return {name: value for name, value in item.items() if name not in _ROOT} | {"metadata": names}


def _check(schema: Json, value: object, path: str, old: object = None) -> Iterator[Cause]:
    """The types and bounds that a value and what is in it do not meet."""
    if _stays(value, old):
        return
    expected = schema.get("type", "")
    if not isinstance(value, _TYPES.get(expected, object)):
        type_ = next((name for name, kind in _TYPES.items() if isinstance(value, kind)), "null")
        why = f'{path} in body must be of type {expected}: "{type_}"'
        yield invalid_value(path, type_, why)
    elif value not in schema.get("enum", [value]):
        known = ", ".join(f'"{one}"' for one in schema["enum"])
        yield Cause(path, f'Unsupported value: "{value}": supported values: {known}')
    elif isinstance(value, str):
        yield from _check_text(schema, value, path)
    elif isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name in schema.get("required") or []:
            if name not in value:
                yield Cause(_inside(path, name), "Required value")
        for name, inner in (schema.get("properties") or {}).items():
            if name in value:
                yield from _check(inner, value[name], _inside(path, name), before.get(name))


def _check_text(schema: Json, value: str, path: str) -> Iterator[Cause]:
    """Report the first of length and pattern that does not fit."""
    longest, pattern = schema.get("maxLength", len(value)), schema.get("pattern", "")
    if len(value) > longest:
        yield Cause(path, f"Too long: may not be more than {longest} bytes")
    elif len(value) < (shortest := schema.get("minLength", 0)):
        why = f"{path} in body should be at least {shortest} chars long"
        yield invalid_value(path, value, why)
    elif not re.search(_python_pattern(pattern), value):
        yield invalid_value(path, value, f"{path} in body should match '{pattern}'")


def _python_pattern(pattern: str) -> str:
    """Go's `$` means the very end; Python's also matches before a last newline."""
    return re.sub(r"(?<!\\)\$", r"\\Z", pattern)


def _broken_rules(schema: Json, value: object, path: str, old: object) -> Iterator[Cause]:
    """The CEL rules that a value and what is in it break."""
    if _stays(value, old) or value is None:
        return
    for rule in schema.get(_RULES) or []:
        if not compile_expression(rule["rule"]).holds({"self": value}):
            yield invalid_value(path, value, _explanation(rule, value))
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, inner in (schema.get("properties") or {}).items():
            yield from _broken_rules(inner, value.get(name), _inside(path, name), before.get(name))


def _explanation(rule: Json, value: object) -> str:
    if expression := rule.get("messageExpression"):
        return str(compile_expression(expression).value({"self": value}))
    return str(rule["message"])


def _stays(value: object, old: object) -> bool:
    return old is not None and value == old


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
