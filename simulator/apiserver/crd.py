"""Custom resource definitions: a created one is served at once, and its schema is kept.

Objects are checked by the library `jsonschema`; CEL, here and in match conditions, is evaluated by
the library `cel-expr-python`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import structlog

from simulator.apiserver.calls import invalid_value
from simulator.apiserver.resources import DEFINITIONS, Json, Resource, ResourceTable
from simulator.apiserver.store import Change, Store, decode

try:
    import jsonschema
    from cel_expr_python import cel as library
    from cel_expr_python.ext.ext_optional import ExtOptional
    from cel_expr_python.ext.ext_strings import ExtStrings
except ImportError:  # images are without these, of 50 MB: every condition, rule and object holds
    jsonschema = library = None

_log = structlog.get_logger(__name__)

_ROOT = ("apiVersion", "kind", "metadata")
_RULES = "x-kubernetes-validations"
_VARIABLES = ("device", "object", "oldObject", "request", "self", "variables")


class CelError(ValueError):
    """A text that is no expression, or an expression that has no value for this input."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression; nothing is compiled without the library."""

    compiled: Any

    def holds(self, scope: Mapping[str, Any]) -> bool:
        """Its value, which must be a boolean."""
        return self.compiled is None or self.value(scope) is True

    def value(self, scope: Mapping[str, Any]) -> object:
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
        printed=tuple(version.get("additionalPrinterColumns") or ()),
    )


def established(definition: Json) -> Json:
    conditions = [{"type": name, "status": "True"} for name in ("NamesAccepted", "Established")]
    return definition | {"status": {"conditions": conditions}}


def prune(schema: Json, item: Json) -> Json:
    """The object without the fields that its schema does not know, and with its defaults."""
    root = {name: item[name] for name in _ROOT if name in item}
    body = {name: value for name, value in item.items() if name not in _ROOT}
    return root | _pruned(schema, body)


def _pruned(schema: Json, value: Json) -> Json:
    properties: Json = schema.get("properties") or {}
    if not properties:
        return value
    defaults = {name: one["default"] for name, one in properties.items() if "default" in one}
    return defaults | {
        name: _pruned(properties[name], inner) if isinstance(inner, dict) else inner
        for name, inner in value.items()
        if name in properties
    }


def validate(schema: Json, item: Json) -> list[str]:
    """Errors of an object against its schema, each after its field; rules are read at last."""
    if jsonschema is None:
        return []
    judged = _judged(item)
    return list(_schema_errors(schema, judged)) or list(_broken_rules(schema, judged, ""))


def _judged(item: Json) -> Json:
    """The part of an object that a schema sees: of the metadata, only the name."""
    names = {"name": item["metadata"]["name"]}
    return {name: value for name, value in item.items() if name not in _ROOT} | {"metadata": names}


def _schema_errors(schema: Json, value: Json) -> Iterator[str]:
    # Go's `$` means the very end; Python's also matches before a last newline.
    anchored = json.loads(json.dumps(schema).replace('$"', '\\\\Z"'))
    for error in jsonschema.Draft202012Validator(anchored).iter_errors(value):
        missing = error.message.split("'")[1:2] if error.validator == "required" else ()
        yield f"{'.'.join((*map(str, error.path), *missing))}: {error.message}"


def _broken_rules(schema: Json, value: object, path: str) -> Iterator[str]:
    if value is None:
        return
    for rule in schema.get(_RULES) or []:
        if not compile_expression(rule["rule"]).holds({"self": value}):
            yield invalid_value(path.removeprefix("."), value, rule["message"])
    if isinstance(value, dict):
        for name, inner in (schema.get("properties") or {}).items():
            yield from _broken_rules(inner, value.get(name), f"{path}.{name}")
