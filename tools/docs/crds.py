"""`docs/crds.md`: the fields of the custom resources, from their definitions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tools.docs.texts import cell, code, table, written_part

Json = dict[str, Any]

PATH: Final = "docs/crds.md"
FOLDER: Final = Path(__file__).parents[2] / "manifests" / "crd"
KINDS: Final = ("acceleratorfunctions", "fpgaregions", "accelerators")


def page() -> str:
    """Return the page: what is written by hand, and a section for each kind."""
    return written_part(PATH, "## ") + "\n".join(map(_section, KINDS))


def definition(name: str) -> Json:
    loaded: Json = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return loaded


def _section(name: str) -> str:
    spec = definition(name)["spec"]
    names, (version,) = spec["names"], spec["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    short = ", ".join(map(code, names["shortNames"]))
    parts = [
        f"## {names['kind']}\n",
        f"{cell(schema['description'])}\n",
        f"`{spec['group']}/{version['name']}`, plural `{names['plural']}`, short name {short}.\n",
        table(("field", "type", "required", "description"), _fields(schema, "")),
        "Further rules:\n",
        table(("field", "message of a refusal"), _rules(schema, "")),
    ]
    return "\n".join(parts)


def _fields(schema: Json, above: str) -> Iterator[tuple[str, ...]]:
    """Yield a row for each field: path, type, whether it is required, description with bounds."""
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        path = f"{above}{name}"
        needed = "yes" if name in required else ""
        text = f"{field.get('description', '')} {_bounds(field)}".strip()
        if text:
            yield code(path), field["type"], needed, text
        yield from _fields(field, f"{path}.")
        yield from _fields(field.get("items", {}), f"{path}[].")


def _bounds(field: Json) -> str:
    texts = []
    if "enum" in field:
        texts.append(f"One of {', '.join(map(code, field['enum']))}.")
    if "default" in field:
        texts.append(f"Default: {code(str(field['default']))}.")
    if "pattern" in field:
        texts.append(f"Pattern: {code(field['pattern'])}.")
    elif "maxLength" in field:
        texts.append(f"At most {field['maxLength']} characters.")
    if "maximum" in field:
        texts.append(f"{field['minimum']} to {field['maximum']}.")
    if "maxItems" in field or "maxProperties" in field:
        texts.append(f"At most {field.get('maxItems') or field['maxProperties']}.")
    return " ".join(texts)


def _rules(schema: Json, above: str) -> Iterator[tuple[str, str]]:
    """Yield the CEL rules: path of the field, message."""
    for rule in schema.get("x-kubernetes-validations", []):
        yield code(above.removesuffix(".") or "the object"), rule["message"]
    for name, field in schema.get("properties", {}).items():
        yield from _rules(field, f"{above}{name}.")
        yield from _rules(field.get("items", {}), f"{above}{name}[].")
