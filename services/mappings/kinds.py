"""The kinds of custom resources that define names; sources, reviews and messages read this table.

A kind belongs to a family, which has names and domains of its own: a name is unique per namespace
and family. Of an object that comes from a folder, the fields are found that an API server would
refuse or drop; the types and fields are those of the schemas in `manifests/crd`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from services import names
from services.mappings.accelerator import AcceleratorSpec, problem, without_nulls
from services.process.text import plain, quote


class Family(StrEnum):
    """A family of kinds: what their names stand for, and in which domains pods request them."""

    FPGA = "fpga"
    """Functions and regions of FPGAs, which accelbind's plugin serves."""
    ACCELERATOR = "accelerator"
    """Resources of any device plugin or DRA driver."""


@dataclass(frozen=True, slots=True)
class MappingKind:
    """A kind of mapping."""

    name: str
    api_version: str
    plural: str
    family: Family

    @property
    def group(self) -> str:
        """Its API group."""
        return self.api_version.partition("/")[0]

    @property
    def path(self) -> str:
        """Where the API server lists the objects of all namespaces."""
        return f"/apis/{self.api_version}/{self.plural}"


ACCELERATOR_FUNCTION: Final = "AcceleratorFunction"
FPGA_REGION: Final = "FpgaRegion"
ACCELERATOR: Final = "Accelerator"

FPGA_VERSION: Final = f"{names.DOMAIN}/v2"
ACCELERATOR_VERSION: Final = f"{names.ACCELERATOR_DOMAIN}/v1alpha1"

TABLE: Final = {
    kind.name: kind
    for kind in (
        MappingKind(ACCELERATOR_FUNCTION, FPGA_VERSION, "acceleratorfunctions", Family.FPGA),
        MappingKind(FPGA_REGION, FPGA_VERSION, "fpgaregions", Family.FPGA),
        MappingKind(ACCELERATOR, ACCELERATOR_VERSION, "accelerators", Family.ACCELERATOR),
    )
}
"""All kinds, by name."""


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
