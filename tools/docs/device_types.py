"""Device types: the JSON Schema for editors, and the page of their fields."""

import json
from collections.abc import Iterator
from inspect import getmro
from typing import Any, Final

import msgspec

from services.devices.types import model
from services.devices.types.model import DeviceType
from services.devices.types.values import BUILT_IN_MEANINGS, PATTERNS
from tools.docs.texts import attribute_docstrings, code, table

PATH: Final = "docs/device-type.schema.json"
FIELDS_PATH: Final = "docs/device-type-fields.md"

_HEAD: Final = """\
<!-- Generated from the code by `make docs`. -->

# Fields of device types

All fields and built-in attributes of a `DeviceType`. [Device types](device-types.md) has examples;
[device-type.schema.json](device-type.schema.json) is for editors. `[]` stands for each item of a
list.

"""


def page() -> str:
    return f"{json.dumps(_schema(), indent=2)}\n"


def fields() -> str:
    """Return the page of fields."""
    rows = _rows(_schema()["$defs"], "DeviceType", "")
    built_in = (
        (code(name), "string" if kind is str else kind.__name__, text)
        for name, (kind, text) in BUILT_IN_MEANINGS.items()
    )
    return (
        _HEAD
        + table(("field", "type", "required, default", "meaning"), rows)
        + "\n## Built-in attributes\n\nA device has those of them that the kernel knows.\n\n"
        + table(("attribute", "type", "meaning"), built_in)
    )


def _schema() -> dict[str, Any]:
    return msgspec.json.schema(DeviceType)


def _rows(kinds: dict[str, Any], kind: str, above: str) -> Iterator[tuple[str, ...]]:
    """Yield a row for each field of a struct, and of the structs in it."""
    schema, meanings = kinds[kind], _meanings(getattr(model, kind))
    for name, field in schema["properties"].items():
        types = [each for each in field.get("anyOf", [field]) if each.get("type") != "null"]
        is_list = any(each.get("type") == "array" for each in types)
        inner = field.get("items", types[0]).get("$ref", "").rpartition("/")[2]
        path = f"{above}{name}{'[]' if is_list else ''}"
        needed = "required" if name in schema["required"] else _default(field)
        yield code(path), " or ".join(map(_type, types)), needed, meanings[name]
        if inner:
            yield from _rows(kinds, inner, f"{path}.")


def _meanings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstrings of a struct's fields by their names in files (KeyError without one)."""
    texts: dict[str, str] = {}
    for each in reversed(getmro(kind)):
        if each.__module__.startswith("services.devices.types."):
            texts |= attribute_docstrings(each)
    pairs = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return {at: texts[name] for name, at in pairs}


def _default(field: dict[str, Any]) -> str:
    default = field.get("default")
    return code(str(default)) if isinstance(default, int | str) and default is not False else ""


def _type(field: dict[str, Any]) -> str:
    """Return the type of a field in words, with its limits."""
    if field.get("type") == "array":
        inner = field["items"].get("anyOf", [field["items"]])
        return f"list of up to {field['maxItems']}: {' or '.join(map(_type, inner))}"
    if "enum" in field:
        return ", ".join(map(code, field["enum"]))
    if "maximum" in field:
        return f"{field['minimum']} to {field['maximum']}"
    plain = field.get("type", "object")
    longest = f" of up to {field['maxLength']} characters" if "maxLength" in field else ""
    return PATTERNS.get(field.get("pattern", ""), f"{plain}{longest}")
