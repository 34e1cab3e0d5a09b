"""Mappings: what the logical names of a namespace stand for.

An AcceleratorFunction names a function (of an interface ID, in a mode), an FpgaRegion a region that
its workload programs itself, and an Accelerator any resource or claim. Mappings are the access
control of a namespace: its pods can use only what is mapped in it. `services.mappings.index`
decides which of many objects are served.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import msgspec

from services import names
from services.mappings.accelerator import Effects, read_spec
from services.mappings.kinds import ACCELERATOR, ACCELERATOR_FUNCTION, FPGA_REGION, TABLE, Family
from services.process.errors import InvalidMapping, InvalidName
from services.process.text import clip, listing, plain, quote

DEPRECATED = "accelbind.dev/deprecated"
"""The annotation of a mapping whose name is deprecated: what to use instead."""

MAX_NOTE = 120
"""Characters of that annotation that are kept: as many as a warning may have."""

_MAX_NAMESPACE = 63
"""Characters of a namespace, as in Kubernetes."""

Function: TypeAlias = tuple[str, str]
"""Interface ID and AFU ID of what is programmed into one region."""


class Mode(StrEnum):
    """The mode that a node must run to serve a mapping."""

    AF = "af"
    REGION = "region"
    REGIONDEVEL = "regiondevel"

    __hash__ = str.__hash__  # Enum.__hash__ is Python code, and modes are hashed often


_FUNCTION_MODES = {mode.value: mode for mode in (Mode.AF, Mode.REGION)}


class Resolution(msgspec.Struct, frozen=True, gc=False):
    """The target of a logical name; equal for all names of the same thing."""

    resource: str
    """Physical resource name; without its domain for an FPGA, which has that of the request. A
    ResourceClaimTemplate is `ResourceClaimTemplate/NAME`."""
    mode: Mode | None = None
    """None for what is no FPGA."""
    interface_id: str = ""
    afu_id: str | None = None
    """None where the workload programs the region itself."""
    count: int = 1
    """How many of the resource a unit of the name is."""
    effects: Effects | None = None
    """What else a pod gets; None for an FPGA."""

    @property
    def function(self) -> Function | None:
        """The function that is programmed into each unit; None where nothing is programmed."""
        if self.mode is not Mode.REGION or self.afu_id is None:
            return None
        return self.interface_id, self.afu_id


# gc=False: a garbage collection that visits 100,000 mappings would delay requests.
class Mapping(msgspec.Struct, frozen=True, gc=False):
    """One name of a namespace and what it stands for; IDs are canonical."""

    kind: str
    namespace: str
    name: str
    """The logical name; pods request ``fpga.intel.com/<name>`` or ``accelbind.dev/<name>``."""
    resolution: Resolution
    deprecated: str | None = None
    """The hint for pods that use it, possibly empty; None for a mapping that isn't deprecated."""

    @property
    def label(self) -> str:
        """The object's name in messages: ``AcceleratorFunction default/nlb0``."""
        return label(self.kind, self.namespace, self.name)

    @property
    def family(self) -> Family:
        """The family of its kind."""
        return TABLE[self.kind].family


@dataclass(frozen=True, slots=True)
class Rejected:
    """An object that can't be used; `reason` is a sentence that names it."""

    kind: str
    namespace: str
    name: str
    reason: str

    @property
    def family(self) -> Family:
        """The family of its kind."""
        return TABLE[self.kind].family


MappingEntry: TypeAlias = Mapping | Rejected
"""An object that was read: a mapping, or why it is none."""


def parse(obj: object) -> Mapping:
    """Read one custom resource, as decoded from JSON or YAML; its default namespace is `default`.

    Raises:
        InvalidMapping: it can't be used; the message names the object and its error.
    """
    kind, namespace, name = _identify(obj)
    try:
        resolution = _resolve(kind, name, _member(obj, "spec"))
    except InvalidName as error:
        raise InvalidMapping(f"{label(kind, namespace, name)}: {error}") from error
    return Mapping(kind, namespace, name, resolution, _deprecation(_member(obj, "metadata")))


def reject(obj: object, reason: str) -> Rejected | None:
    """Return the record of an object that `parse` refused; None if it has no kind and name."""
    try:
        kind, namespace, name = _identify(obj)
    except InvalidMapping:
        return None
    return Rejected(kind, namespace, name, reason)


def read_entry(obj: object) -> MappingEntry | None:
    """Read an object, or why it can't be used; None if it has no kind and name."""
    try:
        return parse(obj)
    except InvalidMapping as error:
        return reject(obj, str(error))


def label(kind: str, namespace: str, name: str) -> str:
    """Return the name of an object in messages: ``AcceleratorFunction default/nlb0``."""
    return f"{kind} {plain(namespace)}/{plain(name)}"


def _member(obj: object, key: str) -> object:
    return obj.get(key) if isinstance(obj, dict) else None


def _identify(obj: object) -> tuple[str, str, str]:
    """Return kind, namespace and name of an object."""
    if not isinstance(obj, dict):
        raise InvalidMapping("a mapping must be an object")
    kind = obj.get("kind")
    if not isinstance(kind, str) or kind not in TABLE:
        raise InvalidMapping(f"kind must be {listing([*TABLE], last='or')}, {_but_is(kind)}")
    version = TABLE[kind].api_version
    if obj.get("apiVersion") != version:
        raise InvalidMapping(
            f"{kind}: apiVersion must be {version}, {_but_is(obj.get('apiVersion'))}"
        )
    metadata = obj.get("metadata")
    name = _member(metadata, "name")
    if not isinstance(name, str) or not name:
        raise InvalidMapping(f"{kind}: metadata.name is missing or not a string")
    namespace = _member(metadata, "namespace")
    if namespace is None or namespace == "":
        namespace = "default"
    if not isinstance(namespace, str) or len(namespace) > _MAX_NAMESPACE:
        what = f"metadata.namespace must be a string of at most {_MAX_NAMESPACE} characters"
        raise InvalidMapping(f"{kind} {plain(name)}: {what}")
    # Many objects share these strings.
    return sys.intern(kind), sys.intern(namespace), name


def _resolve(kind: str, name: str, spec: object) -> Resolution:
    if not names.is_name_part(name):
        raise InvalidName(
            "pods can't request a resource of this name: Kubernetes allows at most 63 letters, "
            "digits, '-', '_' and '.', beginning and ending with a letter or digit"
        )
    if TABLE[kind].family is Family.FPGA and names.is_physical(name):
        raise InvalidName("this name has the form of a physical name; choose another")
    if not isinstance(spec, dict):
        raise InvalidName("spec is missing or not an object")
    return _RESOLVERS[kind](spec)


def _resolve_function(spec: dict[str, object]) -> Resolution:
    interface_id = _id(spec, "interfaceId", names.INTERFACE_LENGTHS)
    afu_id = _id(spec, "afuId", names.AFU_LENGTHS)
    value = spec.get("mode")
    mode = _FUNCTION_MODES.get(value) if isinstance(value, str) else None
    if mode is None:
        raise InvalidName(f"spec.mode must be af or region, {_but_is(value)}")
    if mode is Mode.AF:
        resource = names.function_name(interface_id, afu_id)
    else:
        resource = names.region_name(interface_id)
    return Resolution(sys.intern(resource), mode, interface_id, afu_id)


def _resolve_region(spec: dict[str, object]) -> Resolution:
    interface_id = _id(spec, "interfaceId", names.INTERFACE_LENGTHS)
    value = spec.get("mode")
    if value is not None and value != Mode.REGIONDEVEL:
        raise InvalidName(f"spec.mode must be regiondevel or left out, {_but_is(value)}")
    return Resolution(sys.intern(names.region_name(interface_id)), Mode.REGIONDEVEL, interface_id)


def _resolve_accelerator(spec: dict[str, object]) -> Resolution:
    resource, count, effects = read_spec(spec)
    return Resolution(sys.intern(resource), count=count, effects=effects)


# Pods are admitted by resolutions alone: a new kind needs a row here and in `kinds.TABLE`.
_RESOLVERS: dict[str, Callable[[dict[str, object]], Resolution]] = {
    ACCELERATOR_FUNCTION: _resolve_function,
    FPGA_REGION: _resolve_region,
    ACCELERATOR: _resolve_accelerator,
}


def _id(spec: dict[str, object], key: str, lengths: range) -> str:
    """Return an ID of the spec in canonical form."""
    value = spec.get(key)
    if isinstance(value, str):
        return sys.intern(names.check_id(value, what=f"spec.{key}", lengths=lengths))
    if isinstance(value, (int, float)):  # YAML reads an ID of digits, or 12e4, as a number
        raise InvalidName(f"spec.{key} must be a string, but is a number; put it into quotes")
    raise InvalidName(f"spec.{key} is missing or not a string")


def _deprecation(metadata: object) -> str | None:
    """Return the hint of a deprecated mapping, None if it isn't deprecated."""
    note = _member(_member(metadata, "annotations"), DEPRECATED)
    if not isinstance(note, str) or note.lower() == "false":
        return None
    text = " ".join(note.split())
    return sys.intern("" if text.lower() == "true" else clip(text, MAX_NOTE))


def _but_is(value: object) -> str:
    """Return the end of a sentence that began with what a value must be."""
    if isinstance(value, str):
        return f"not {quote(value)}"
    return "and is missing" if value is None else f"not of type {type(value).__name__}"
