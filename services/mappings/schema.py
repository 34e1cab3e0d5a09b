"""Fields that an API server would refuse or drop of an object that comes from a folder.

It has only the types and fields of the schemas in `manifests/crd`.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from services.mappings.accelerator import AcceleratorSpec, problem, without_nulls
from services.mappings.kinds import ACCELERATOR, ACCELERATOR_FUNCTION, FPGA_REGION
from services.process.text import plain, quote


class _Function(msgspec.Struct, rename="camel"):
    afu_id: str = ""
    interface_id: str = ""
    mode: str = ""


class _Region(msgspec.Struct, rename="camel"):
    interface_id: str = ""
    mode: str = ""


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


SPECS: Final[dict[str, type[msgspec.Struct]]] = {
    ACCELERATOR_FUNCTION: _Function,
    FPGA_REGION: _Region,
    ACCELERATOR: AcceleratorSpec,
}
"""The spec of each kind, as far as types go."""

_FIELDS: Final = dict.fromkeys(("apiVersion", "kind", "metadata", "spec", "status"))


def wrong_type(kind: str, obj: dict[str, object]) -> str:
    """Return the first value of another type, as decoded from typed YAML; empty if none is."""
    for part, shape in (("metadata", _Metadata), ("spec", SPECS[kind])):
        try:
            msgspec.convert(without_nulls(obj.get(part, {})), shape)
        except msgspec.ValidationError as error:
            return problem(error, part)
    return ""


def unknown_fields(kind: str, obj: dict[str, object]) -> Iterator[str]:
    """Yield a sentence for each field that the kind hasn't; the values must be of its types."""
    spec = msgspec.convert(without_nulls(obj.get("spec", {})), SPECS[kind], strict=False)
    kept = _FIELDS | {"spec": msgspec.to_builtins(spec)}
    return (f"there is no field {quote(path)}" for path in _dropped(obj, kept, ""))


def _dropped(written: object, kept: object, at: str) -> Iterator[str]:
    if isinstance(written, dict) and isinstance(kept, dict):
        for name, value in written.items():
            path = f"{at}.{plain(str(name))}".removeprefix(".")
            if name in kept:
                yield from _dropped(value, kept[name], path)
            else:
                yield path
    elif isinstance(written, list) and isinstance(kept, tuple):
        for number, (value, read) in enumerate(zip(written, kept, strict=True)):
            yield from _dropped(value, read, f"{at}[{number}]")
