"""Structural schemas of custom resources: pruning and validation.

What is read of a schema: `type`, `properties`, `required`, `pattern`, `enum`, `minLength`,
`maxLength`, `minimum`, `maximum`, `items`, `minItems`, `maxItems`, `additionalProperties`,
`nullable`, `default`, `x-kubernetes-preserve-unknown-fields`, `x-kubernetes-int-or-string`, and
`x-kubernetes-validations` on `self`, evaluated by `cel`. Not read: `oneOf`, `anyOf`, `allOf`,
`not`, `format`.

An update is validated as since Kubernetes 1.30: a part that stays as it was isn't looked at.
"""

import re
from collections.abc import Iterator

from simulator.apiserver import status
from simulator.apiserver.cel import (
    CompilationError,
    EvaluationError,
    compile_expression,
    python_pattern,
)
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
_RULES = "x-kubernetes-validations"
_SELF = frozenset({"self"})
_BLOCKING = (
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
)
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing"
    " errors to complete validation"
)


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


def validate(schema: Json, item: Json, old: Json | None = None) -> list[Cause]:
    """What in an object does not fit its schema."""
    new, before = _judged(item), old and _judged(old)
    causes = list(_check(schema, new, "", before))
    if not _has_rules(schema):
        return causes
    if any(cause.reason in _BLOCKING for cause in causes):
        return [*causes, Cause("<nil>", f"Invalid value: null: {_UNCHECKED}")]
    return [*causes, *_broken_rules(schema, new, "", before)]


def _has_rules(schema: Json) -> bool:
    return _RULES in schema or any(map(_has_rules, (schema.get("properties") or {}).values()))


def rule_problems(schema: Json, path: str) -> Iterator[Cause]:
    """The rules of a schema that can't be compiled."""
    for number, rule in enumerate(schema.get(_RULES) or []):
        for name in ("rule", "messageExpression"):
            text = rule.get(name, "")
            try:
                if text or name == "rule":
                    compile_expression(text, _SELF)
            except CompilationError as problem:
                where = f"{path}.{_RULES}[{number}].{name}"
                yield status.invalid_value(where, text, f"compilation failed: {problem}")
    for name, inner in (schema.get("properties") or {}).items():
        yield from rule_problems(inner, f"{path}.properties[{name}]")
    for name in ("items", "additionalProperties"):
        if isinstance(inner := schema.get(name), dict):
            yield from rule_problems(inner, f"{path}.{name}")


def _judged(item: Json) -> Json:
    """The part of an object that a schema sees: of the metadata, only the names."""
    metadata = item.get("metadata") or {}
    names = {name: metadata[name] for name in ("name", "generateName") if metadata.get(name)}
    return {name: value for name, value in item.items() if name not in _ROOT} | {"metadata": names}


def _check(schema: Json, value: object, path: str, old: object = None) -> Iterator[Cause]:
    if (value is None and schema.get("nullable")) or _stays(value, old):
        return
    expected = schema.get("type")
    if expected and not _is_type(value, expected, schema):
        found = _type_name(value)
        why = f'{path} in body must be of type {expected}: "{found}"'
        cause = status.invalid_value(path, found, why)
        yield Cause(cause.field, cause.message, "FieldValueTypeInvalid")
    if (enum := schema.get("enum")) and value not in enum:
        yield status.unsupported(path, value, [str(one) for one in enum])
    if expected and not _is_type(value, expected, schema):
        return
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
            yield from _check_object(schema, value, path, old)


def _stays(value: object, old: object) -> bool:
    return old is not None and value == old


def _broken_rules(schema: Json, value: object, path: str, old: object) -> Iterator[Cause]:
    """The rules that a value and what is in it break."""
    if _stays(value, old) or value is None:
        return
    for rule in schema.get(_RULES) or []:
        try:
            if compile_expression(rule["rule"], _SELF).holds({"self": value}):
                continue
            why = _said(rule, value)
        except EvaluationError as problem:
            why = f"{problem} evaluating rule: {rule.get('message', rule['rule'])}"
        if isinstance(value, dict | list):
            yield Cause(path, f"Invalid value: {why}")
        else:
            yield status.invalid_value(path, value, why)
    if not isinstance(value, dict):
        return
    before = old if isinstance(old, dict) else {}
    for name, inner in (schema.get("properties") or {}).items():
        where = f"{path}.{name}" if path else name
        yield from _broken_rules(inner, value.get(name), where, before.get(name))


def _said(rule: Json, value: object) -> str:
    expression = rule.get("messageExpression")
    try:
        if expression:
            return compile_expression(expression, _SELF).text_of({"self": value})
    except EvaluationError:
        pass
    return str(rule.get("message") or f"failed rule: {rule['rule']}")


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
    """Report the first of length and pattern that does not fit."""
    longest, shortest, pattern = map(schema.get, ("maxLength", "minLength", "pattern"))
    if longest is not None and len(value) > longest:
        yield Cause(path, f"Too long: may not be more than {longest} bytes", "FieldValueTooLong")
    elif shortest is not None and len(value) < shortest:
        why = f"{path} in body should be at least {shortest} chars long"
        yield status.invalid_value(path, value, why)
    elif pattern and not re.search(python_pattern(pattern), value):
        yield status.invalid_value(path, value, f"{path} in body should match '{pattern}'")


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


def _check_object(schema: Json, value: Json, path: str, old: object) -> Iterator[Cause]:
    before = old if isinstance(old, dict) else {}
    properties: Json = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    for name in schema.get("required") or []:
        if name not in value:
            yield status.required(f"{path}.{name}" if path else name)
    for name, inner in value.items():
        where = f"{path}.{name}" if path else name
        if name in properties:
            yield from _check(properties[name], inner, where, before.get(name))
        elif isinstance(extra, dict):
            yield from _check(extra, inner, where, before.get(name))
