"""What the custom resource definitions say of fields and their types, for objects from a folder.

An API server refuses an object with a value of another type, and drops fields that it does not
know; kubectl refuses those too. `manifests/crd` has the whole schema.
"""

import difflib
from collections.abc import Iterator
from typing import Final, TypeAlias

from services.mappings.kinds import ACCELERATOR, ACCELERATOR_FUNCTION, FPGA_REGION
from services.process.text import plain, quote

Shape: TypeAlias = "type | dict[str, Shape] | list[Shape]"
"""A type of scalars, the fields of an object (`*` is any), or the shape of a list's items."""

_TARGET: Final[dict[str, Shape]] = {"resource": str, "count": int}
SPECS: Final[dict[str, dict[str, Shape]]] = {
    ACCELERATOR_FUNCTION: {"afuId": str, "interfaceId": str, "mode": str},
    FPGA_REGION: {"interfaceId": str, "mode": str},
    ACCELERATOR: {
        "target": _TARGET,
        "alsoRequest": [_TARGET | {"per": str}],
        "env": [{"name": str, "value": str}],
        "nodeSelector": {"*": str},
        "tolerations": [{"key": str, "operator": str, "value": str, "effect": str}],
        "runtimeClassName": str,
    },
}
"""The spec of each kind."""

_METADATA: Final[Shape] = {
    "name": str,
    "namespace": str,
    "labels": {"*": str},
    "annotations": {"*": str},
}
_OPEN: Final = frozenset({"metadata", "status"})
"""Fields that have more than is listed here."""
_NAMES: Final = {str: "a text", int: "a whole number", dict: "an object", list: "a list"}


def unknown_fields(obj: object) -> Iterator[str]:
    """Yield a sentence for each field that no mapping of this kind has."""
    return (problem for problem, is_type in _problems(obj) if not is_type)


def wrong_types(obj: object) -> Iterator[str]:
    """Yield a sentence for each value of another type, as decoded from typed YAML or JSON."""
    return (problem for problem, is_type in _problems(obj) if is_type)


def _problems(obj: object) -> Iterator[tuple[str, bool]]:
    """Yield each problem, and whether it is one of types."""
    spec = SPECS.get(str(obj.get("kind"))) if isinstance(obj, dict) else None
    if spec is None:
        return
    root: Shape = {
        "apiVersion": str,
        "kind": str,
        "metadata": _METADATA,
        "spec": spec,
        "status": {},
    }
    todo: list[tuple[str, object, Shape]] = [("", obj, root)]
    for path, value, shape in todo:  # it grows
        kind = shape if isinstance(shape, type) else type(shape)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            yield f"{path} must be {_NAMES[kind]}{_advice(value, kind)}", True
        elif isinstance(shape, list) and isinstance(value, list):
            todo += [(f"{path}[{place}]", each, shape[0]) for place, each in enumerate(value)]
        elif isinstance(shape, dict) and isinstance(value, dict):
            for name, each in value.items():
                at = f"{path}.{plain(name)}" if path else plain(name)
                if (inner := shape.get(name, shape.get("*"))) is not None:
                    todo.append((at, each, inner))
                elif path not in _OPEN:
                    yield f"there is no field {quote(at)}{_meant(name, shape)}", False


def _advice(value: object, kind: type) -> str:
    if kind is str and isinstance(value, bool | int | float):
        return ": put it into quotes"
    if kind is int and isinstance(value, str) and value.isdecimal():
        return ": write it without quotes"
    return ": remove it, or give it a value" if value is None else ""


def _meant(name: str, shape: dict[str, Shape]) -> str:
    near = difflib.get_close_matches(name, shape, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(shape)}"
