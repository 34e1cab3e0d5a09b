"""Mappings: what the logical names of a namespace stand for.

Two kinds of custom resources of ``fpga.intel.com/v2`` give names: an AcceleratorFunction to a
function (of an interface id, in a mode), an FpgaRegion to a region that its workload programs
itself. An object's name is the name that pods of its namespace ask for. Mappings are a
namespace's access control: what isn't mapped in it, its pods can't have.

`parse` reads one object; `services.mappings.index` decides which of many can serve.
"""

import sys
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias

import msgspec

from services import names
from services.process.errors import InvalidMapping, InvalidName
from services.process.text import clip, plain, quote

API_VERSION = f"{names.DOMAIN}/v2"
ACCELERATOR_FUNCTION = "AcceleratorFunction"
FPGA_REGION = "FpgaRegion"
KINDS = (ACCELERATOR_FUNCTION, FPGA_REGION)

DEPRECATED = "accelbind.dev/deprecated"
"""The annotation of a mapping whose name nobody should use any more: what to do instead."""

MAX_NOTE = 120
"""How many characters of it are kept: as many as a warning may have."""


class Mode(StrEnum):
    """The mode that a node must run to serve a mapping."""

    AF = "af"
    REGION = "region"
    REGIONDEVEL = "regiondevel"

    __hash__ = str.__hash__  # an enum's own is written in Python, and this one is hashed often


_AF, _REGION = Mode.AF, Mode.REGION  # looking a member up in its enum takes ten times as long
_FUNCTION_MODES = {mode.value: mode for mode in (Mode.AF, Mode.REGION)}
_JSON_TYPES: dict[type, str] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


class Mapping(msgspec.Struct, frozen=True, gc=False):
    """One name of a namespace and what it stands for; ids are canonical.

    A struct that the garbage collector needn't visit: there may be 100 000, and a collection that
    walks over them would hold up requests.

    Attributes:
        kind: ``AcceleratorFunction`` or ``FpgaRegion``.
        namespace: the namespace whose pods may use it.
        name: the logical name; pods ask for ``fpga.intel.com/<name>``.
        interface_id: the interface that the region must have.
        afu_id: the function, None for an FpgaRegion.
        mode: which mode a node must run to serve it.
        resource: the physical resource name, without its domain.
        deprecated: what pods that use it are told, empty if there is nothing to tell but that;
            None for a mapping that isn't deprecated.
    """

    kind: str
    namespace: str
    name: str
    interface_id: str
    afu_id: str | None
    mode: Mode
    resource: str
    deprecated: str | None = None

    @property
    def label(self) -> str:
        """How people call the object: ``AcceleratorFunction default/nlb0``."""
        return label(self.kind, self.namespace, self.name)

    @property
    def pair(self) -> tuple[str, str] | None:
        """Interface id and AFU id of a function of mode region, None for anything else."""
        if self.mode is not _REGION or self.afu_id is None:
            return None
        return self.interface_id, self.afu_id

    def is_twin_of(self, other: "Mapping") -> bool:
        """Whether both give a name to the same thing, for nodes of the same mode."""
        return (
            self.name != other.name
            and self.resource == other.resource
            and self.afu_id == other.afu_id
            and self.mode is other.mode
        )


@dataclass(frozen=True, slots=True)
class Rejected:
    """An object that can't serve, and why: a sentence that names it."""

    kind: str
    namespace: str
    name: str
    reason: str


Entry: TypeAlias = Mapping | Rejected
"""What an object is: a mapping, or none and why."""


def parse(obj: object, *, default_namespace: str = "default") -> Mapping:
    """Read one custom resource, as decoded from JSON or YAML.

    Args:
        obj: the object: ``{"apiVersion": "fpga.intel.com/v2", "kind": …, "metadata": …, …}``.
        default_namespace: the namespace of an object that names none, as with kubectl.

    Raises:
        InvalidMapping: it can't serve; the text names the object and what is wrong with it.
    """
    kind, namespace, name = _identify(obj, default_namespace)
    try:
        return _read(kind, namespace, name, obj)
    except InvalidName as error:
        raise InvalidMapping(f"{label(kind, namespace, name)}: {error}") from error


def reject(obj: object, reason: str, *, default_namespace: str = "default") -> Rejected | None:
    """Return the record of an object that `parse` refused, None if it can't even be named."""
    try:
        kind, namespace, name = _identify(obj, default_namespace)
    except InvalidMapping:
        return None
    return Rejected(kind, namespace, name, reason)


def label(kind: str, namespace: str, name: str) -> str:
    """Return how people call an object: ``AcceleratorFunction default/nlb0``."""
    return f"{kind} {plain(namespace)}/{plain(name)}"


def _member(obj: object, key: str) -> object:
    return obj.get(key) if isinstance(obj, dict) else None


def _identify(obj: object, default_namespace: str) -> tuple[str, str, str]:
    """Return kind, namespace and name of an object; the strings are shared among objects."""
    if not isinstance(obj, dict):
        raise InvalidMapping("a mapping must be an object")
    kind = obj.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidMapping(f"kind must be {' or '.join(KINDS)}, {_but_is(kind)}")
    if obj.get("apiVersion") != API_VERSION:
        raise InvalidMapping(
            f"{kind}: apiVersion must be {API_VERSION}, {_but_is(obj.get('apiVersion'))}"
        )
    metadata = obj.get("metadata")
    name = _member(metadata, "name")
    if not isinstance(name, str) or not name:
        raise InvalidMapping(f"{kind}: metadata.name is missing, or is no text")
    namespace = _member(metadata, "namespace")
    if namespace is None or namespace == "":
        namespace = default_namespace
    if not isinstance(namespace, str):
        raise InvalidMapping(f"{kind} {plain(name)}: metadata.namespace must be a text")
    return sys.intern(kind), sys.intern(namespace), name


def _read(kind: str, namespace: str, name: str, obj: object) -> Mapping:
    if not names.is_name_part(name):
        raise InvalidName(
            "no pod could ask for a resource of this name: after the domain, Kubernetes allows at "
            "most 63 letters, digits, '-', '_' and '.', alphanumeric at both ends"
        )
    if names.is_physical(name):
        raise InvalidName("this name has the form of a physical one; choose another")
    spec = _member(obj, "spec")
    if not isinstance(spec, dict):
        raise InvalidName("spec is missing, or is no object")
    note = _deprecation(_member(obj, "metadata"))
    if kind == ACCELERATOR_FUNCTION:
        return _function(namespace, name, spec, note)
    return _region(namespace, name, spec, note)


def _function(namespace: str, name: str, spec: dict[str, object], note: str | None) -> Mapping:
    interface_id = _id(spec, "interfaceId", names.INTERFACE_LENGTHS)
    afu_id = _id(spec, "afuId", names.AFU_LENGTHS)
    asked = spec.get("mode")
    mode = _FUNCTION_MODES.get(asked) if isinstance(asked, str) else None
    if mode is None:
        raise InvalidName(f"spec.mode must be af or region, {_but_is(asked)}")
    if mode is _AF:
        resource = sys.intern(names.function_name(interface_id, afu_id))
    else:
        resource = _region_resource(interface_id)
    return Mapping(
        ACCELERATOR_FUNCTION, namespace, name, interface_id, afu_id, mode, resource, note
    )


def _region(namespace: str, name: str, spec: dict[str, object], note: str | None) -> Mapping:
    interface_id = _id(spec, "interfaceId", names.INTERFACE_LENGTHS)
    asked = spec.get("mode")
    if asked is not None and asked != Mode.REGIONDEVEL:
        raise InvalidName(f"spec.mode must be regiondevel, or left out, {_but_is(asked)}")
    resource = _region_resource(interface_id)
    return Mapping(
        FPGA_REGION, namespace, name, interface_id, None, Mode.REGIONDEVEL, resource, note
    )


@lru_cache(maxsize=256)  # many mappings, few kinds of regions
def _region_resource(interface_id: str) -> str:
    return sys.intern(names.region_name(interface_id))


def _id(spec: dict[str, object], key: str, lengths: range) -> str:
    """Return an id of the spec in canonical form, shared among the mappings that have it."""
    value = spec.get(key)
    if isinstance(value, str):
        return sys.intern(names.check_id(value, what=f"spec.{key}", lengths=lengths))
    if isinstance(value, (int, float)):
        raise InvalidName(
            f"spec.{key} must be a text, but was read as a number; put it into quotes"
        )
    raise InvalidName(f"spec.{key} is missing, or is no text")


def _deprecation(metadata: object) -> str | None:
    """Return what the annotation of a deprecated mapping says, None if it isn't deprecated."""
    note = _member(_member(metadata, "annotations"), DEPRECATED)
    if note is None or note is False:
        return None
    text = " ".join(note.split()) if isinstance(note, str) else ""
    if text.lower() == "false":
        return None
    return sys.intern("" if text.lower() == "true" else clip(text, MAX_NOTE))


def _but_is(value: object) -> str:
    """Return the end of a sentence that said what a value must be."""
    if isinstance(value, str):
        return f"not {quote(value)}"
    return "and is missing" if value is None else f"not {_JSON_TYPES.get(type(value), 'this')}"
