"""Structural schemas of custom resources: pruning and validation.

What is read of a schema: `type`, `properties`, `required`, `pattern`, `enum`, `minLength`,
`maxLength`, `minimum`, `maximum`, `items`, `minItems`, `maxItems`, `additionalProperties`,
`nullable`, `default`, `x-kubernetes-preserve-unknown-fields`, `x-kubernetes-int-or-string`.
Not read: `x-kubernetes-validations` (CEL), `oneOf`, `anyOf`, `allOf`, `not`, `format`.
"""

import re
from collections.abc import Iterator

from simulator.apiserver import status
from simulator.apiserver.status import Cause
from simulator.apiserver.wire import Json

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_ROOT = ("apiVersion", "kind", "metadata")


def prune(schema: Json, item: Json) -> tuple[Json, list[str]]:
    """The object without the fields that its schema does not know, and the paths of those."""
    dropped: list[str] = []
    root = {name: item[name] for name in _ROOT if name in item}
    body = {name: value for name, value in item.items() if name not in _ROOT}
    return root | _prune_object(schema, body, "", dropped), dropped


def _prune_object(schema: Json, value: Json, path: str, dropped: list[str]) -> Json:
    properties: Json = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    keeps = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    kept: Json = {}
    for name, inner in value.items():
        where = f"{path}.{name}" if path else name
        if name in properties:
            kept[name] = _prune(properties[name], inner, where, dropped)
        elif isinstance(extra, dict):
            kept[name] = _prune(extra, inner, where, dropped)
        elif extra or keeps:
            kept[name] = inner
        else:
            dropped.append(where)
    for name, inner in properties.items():
        if name not in kept and "default" in inner:
            kept[name] = inner["default"]
    return kept


def _prune(schema: Json, value: object, path: str, dropped: list[str]) -> object:
    if isinstance(value, dict):
        return _prune_object(schema, value, path, dropped)
    if isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        return [_prune(items, item, f"{path}[{at}]", dropped) for at, item in enumerate(value)]
    return value


def validate(schema: Json, item: Json) -> list[Cause]:
    """What of an object does not fit its schema."""
    body = {name: value for name, value in item.items() if name not in _ROOT}
    return list(_check(schema, body, ""))


def _check(schema: Json, value: object, path: str) -> Iterator[Cause]:
    if value is None and schema.get("nullable"):
        return
    expected = schema.get("type")
    if expected and not _is_type(value, expected, schema):
        found = _type_name(value)
        why = f'{path} in body must be of type {expected}: "{found}"'
        cause = status.invalid_value(path, found, why)
        yield Cause(cause.field, cause.message, "FieldValueTypeInvalid")
        return
    if (enum := schema.get("enum")) and value not in enum:
        yield status.unsupported(path, value, [str(one) for one in enum])
    match value:
        case str():
            yield from _check_text(schema, value, path)
        case bool():
            return
        case int() | float():
            yield from _check_number(schema, value, path)
        case list():
            yield from _check_list(schema, value, path)
        case dict():
            yield from _check_object(schema, value, path)


def _is_type(value: object, expected: str, schema: Json) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, int | str) and not isinstance(value, bool)
    if isinstance(value, bool):
        return expected == "boolean"
    return isinstance(value, _TYPES.get(expected, (object,)))


def _type_name(value: object) -> str:
    if value is None:
        return "null"
    return next(name for name in ("boolean", *_TYPES) if isinstance(value, _TYPES[name]))


def _check_text(schema: Json, value: str, path: str) -> Iterator[Cause]:
    if (pattern := schema.get("pattern")) and not re.search(_python_pattern(pattern), value):
        yield status.invalid_value(path, value, f"{path} in body should match '{pattern}'")
    if (longest := schema.get("maxLength")) is not None and len(value) > longest:
        yield Cause(path, f"Too long: may not be more than {longest} bytes", "FieldValueTooLong")
    if (shortest := schema.get("minLength")) is not None and len(value) < shortest:
        why = f"{path} in body should be at least {shortest} chars long"
        yield status.invalid_value(path, value, why)


def _python_pattern(pattern: str) -> str:
    """Go's `$` means the very end; Python's also matches before a last newline."""
    return re.sub(r"(?<!\\)\$", r"\\Z", pattern)


def _check_number(schema: Json, value: float, path: str) -> Iterator[Cause]:
    if (lowest := schema.get("minimum")) is not None and value < lowest:
        why = f"{path} in body should be greater than or equal to {lowest}"
        yield status.invalid_value(path, value, why)
    if (highest := schema.get("maximum")) is not None and value > highest:
        why = f"{path} in body should be less than or equal to {highest}"
        yield status.invalid_value(path, value, why)


def _check_list(schema: Json, value: list[object], path: str) -> Iterator[Cause]:
    if (most := schema.get("maxItems")) is not None and len(value) > most:
        yield Cause(path, f"Too many: {len(value)}: must have at most {most} items")
    if (least := schema.get("minItems")) is not None and len(value) < least:
        why = f"{path} in body should have at least {least} items"
        yield status.invalid_value(path, len(value), why)
    if isinstance(items := schema.get("items"), dict):
        for at, item in enumerate(value):
            yield from _check(items, item, f"{path}[{at}]")


def _check_object(schema: Json, value: Json, path: str) -> Iterator[Cause]:
    properties: Json = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    for name in schema.get("required") or []:
        if name not in value:
            yield status.required(f"{path}.{name}" if path else name)
    for name, inner in value.items():
        where = f"{path}.{name}" if path else name
        if name in properties:
            yield from _check(properties[name], inner, where)
        elif isinstance(extra, dict):
            yield from _check(extra, inner, where)
