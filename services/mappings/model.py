"""Mappings: what the logical names of a namespace stand for.

Two kinds of custom resources of ``fpga.intel.com/v2`` give names: an AcceleratorFunction to a
function (of an interface id, in a mode), an FpgaRegion to a region that its workload programs
itself. An object's name is the name that pods of its namespace ask for. Mappings are a
namespace's access control: what isn't mapped in it, its pods can't have.

`parse` reads one object; `build_namespace` and `build_index` decide which of many can serve.
What can't is kept with the reason, so that a pod that asks for it is told. An index never
changes: `MappingIndex.with_namespaces` returns a new one that shares all others.
"""

import collections.abc
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from types import MappingProxyType

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

LOOKED_AT = 64
"""How many mappings to a resource are compared with one of them: there may be 100 000."""


class Mode(StrEnum):
    """The mode that a node must run to serve a mapping."""

    AF = "af"
    REGION = "region"
    REGIONDEVEL = "regiondevel"

    __hash__ = str.__hash__  # an enum's own is written in Python, and this one is hashed often


_AF, _REGION = Mode.AF, Mode.REGION  # looking a member up in its enum takes ten times as long
_AF_ONLY = frozenset({Mode.AF})
_FUNCTION_MODES = {mode.value: mode for mode in (Mode.AF, Mode.REGION)}
_SHARED_MODES = {
    modes: modes
    for modes in (
        frozenset({Mode.REGION}),
        frozenset({Mode.REGIONDEVEL}),
        frozenset({Mode.REGION, Mode.REGIONDEVEL}),
    )
}
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


@dataclass(frozen=True, slots=True)
class NamespaceMappings:
    """What one namespace maps.

    Attributes:
        namespace: its name.
        by_name: each logical name and its mapping.
        by_resource: each physical name and the mappings that resolve to it.
        pairs: (interface id, AFU id) of each function of mode region: what a container of this
            namespace may have programmed.
        rejected: each name with an object that can't serve, and the reason. A name that is in
            `by_name` as well is served all the same.
        region_modes: each region's physical name and the modes of the mappings to it; see
            `modes_of`.
        sharers: how many mappings have each of the `pairs`.
    """

    namespace: str
    by_name: collections.abc.Mapping[str, Mapping] = field(
        default_factory=lambda: MappingProxyType({})
    )
    by_resource: collections.abc.Mapping[str, Collection[Mapping]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    pairs: collections.abc.Set[tuple[str, str]] = frozenset()
    rejected: collections.abc.Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({})
    )
    region_modes: collections.abc.Mapping[str, frozenset[Mode]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    sharers: collections.abc.Mapping[tuple[str, str], int] = field(
        default_factory=lambda: MappingProxyType({})
    )

    def __len__(self) -> int:
        return len(self.by_name)

    def modes_of(self, resource: str) -> frozenset[Mode]:
        """Return the modes in which the mappings to a physical name are served."""
        if resource in self.region_modes:
            return self.region_modes[resource]
        return _AF_ONLY if resource in self.by_resource else frozenset()

    def twin_of(self, mapping: Mapping, *, limit: int | None = LOOKED_AT) -> Mapping | None:
        """Return any mapping that gives another name to the same thing, None if there is none.

        One that is deprecated doesn't count: that is how a name gives way to another.

        Args:
            mapping: of this namespace, or one that could be.
            limit: how many mappings to the resource are looked at; None for all.
        """
        # Most functions of a region have no twin, however many others the region has.
        if (pair := mapping.pair) is not None:
            known = self.by_name.get(mapping.name)
            counted = known is mapping or (known is not None and known.pair == pair)
            if self.sharers.get(pair, 0) <= counted:
                return None
        for other in islice(self.by_resource.get(mapping.resource, ()), limit):
            if other.deprecated is None and other.is_twin_of(mapping):
                return other
        return None


class MappingIndex:
    """The mappings of all namespaces at one moment; it never changes."""

    __slots__ = ("_by_namespace", "_count")

    def __init__(
        self,
        by_namespace: collections.abc.Mapping[str, NamespaceMappings],
        *,
        count: int | None = None,
    ) -> None:
        """Take the mappings of each namespace.

        Args:
            by_namespace: them.
            count: how many these are in all. Who knows keeps no hand on them, which saves copying
                and counting: there may be many namespaces, of which one has changed.
        """
        if count is None:
            by_namespace = dict(by_namespace)
            count = sum(map(len, by_namespace.values()))
        self._by_namespace = by_namespace
        self._count = count

    def namespace(self, name: str) -> NamespaceMappings:
        """Return what a namespace maps; a namespace that nobody knows maps nothing."""
        known = self._by_namespace.get(name)
        return NamespaceMappings(name) if known is None else known

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces that have a mapping, or one that can't serve."""
        return tuple(self._by_namespace)

    def with_namespaces(self, changed: Iterable[NamespaceMappings]) -> "MappingIndex":
        """Return an index that differs in some namespaces and shares all others.

        A namespace without any mapping, good or rejected, is left out.
        """
        updated, count = dict(self._by_namespace), self._count
        for mappings in changed:
            before = updated.pop(mappings.namespace, None)
            if mappings.by_name or mappings.rejected:
                updated[mappings.namespace] = mappings
            count += len(mappings) - (0 if before is None else len(before))
        return MappingIndex(updated, count=count)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"MappingIndex({self._count} mappings in {len(self._by_namespace)} namespaces)"


EMPTY_INDEX = MappingIndex({})


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


def build_namespace(
    namespace: str, mappings: Iterable[Mapping], rejected: Iterable[Rejected] = ()
) -> NamespaceMappings:
    """Decide which mappings of one namespace serve, and keep the reasons of the others.

    Of two objects of one kind and name the first serves. An AcceleratorFunction and an
    FpgaRegion of one name cancel each other out: nobody can tell which one a pod means.
    """
    by_kind: dict[str, dict[str, Mapping]] = {kind: {} for kind in KINDS}
    reasons: dict[str, str] = {}
    for mapping in mappings:
        first = by_kind[mapping.kind].setdefault(mapping.name, mapping)
        if first is not mapping:
            reasons[mapping.name] = repeated(mapping.kind, namespace, mapping.name)
    for refused in rejected:
        reasons.setdefault(refused.name, refused.reason)
    functions, regions = by_kind[ACCELERATOR_FUNCTION], by_kind[FPGA_REGION]
    for name in functions.keys() & regions.keys():
        reasons[name] = clash(namespace, name)
        del functions[name], regions[name]
    return _index_namespace(namespace, functions | regions, reasons)


def repeated(kind: str, namespace: str, name: str) -> str:
    """Return what is odd about a name that two objects of a kind have."""
    return f"{label(kind, namespace, name)} is there more than once; the first one counts"


def clash(namespace: str, name: str) -> str:
    """Return why neither of two objects of one name serves."""
    function = label(ACCELERATOR_FUNCTION, namespace, name)
    region = label(FPGA_REGION, namespace, name)
    return f"{function} and {region} have one name, so neither can be used: rename one of them"


def build_index(mappings: Iterable[Mapping], rejected: Iterable[Rejected] = ()) -> MappingIndex:
    """Return the index of all mappings, by namespace; see `build_namespace`."""
    served: dict[str, list[Mapping]] = {}
    refused: dict[str, list[Rejected]] = {}
    for mapping in mappings:
        served.setdefault(mapping.namespace, []).append(mapping)
    for entry in rejected:
        refused.setdefault(entry.namespace, []).append(entry)
    return MappingIndex(
        {
            namespace: build_namespace(
                namespace, served.get(namespace, ()), refused.get(namespace, ())
            )
            for namespace in {**served, **refused}
        }
    )


def label(kind: str, namespace: str, name: str) -> str:
    """Return how people call an object: ``AcceleratorFunction default/nlb0``."""
    return f"{kind} {plain(namespace)}/{plain(name)}"


def with_mode(modes: frozenset[Mode] | None, mode: Mode) -> frozenset[Mode]:
    """Return the modes of a region with one more; one set for all regions of the same modes."""
    if modes is not None and mode in modes:
        return modes
    return _SHARED_MODES[frozenset({mode}) if modes is None else modes | {mode}]


def _index_namespace(
    namespace: str, by_name: dict[str, Mapping], reasons: dict[str, str]
) -> NamespaceMappings:
    gathered: dict[str, list[Mapping]] = {}
    modes: dict[str, frozenset[Mode]] = {}
    sharers: dict[tuple[str, str], int] = {}
    for mapping in by_name.values():
        gathered.setdefault(mapping.resource, []).append(mapping)
        if mapping.mode is not _AF:
            modes[mapping.resource] = with_mode(modes.get(mapping.resource), mapping.mode)
        if mapping.pair is not None:
            sharers[mapping.pair] = sharers.get(mapping.pair, 0) + 1
    return NamespaceMappings(
        namespace,
        by_name=MappingProxyType(by_name),
        by_resource=MappingProxyType({key: tuple(found) for key, found in gathered.items()}),
        pairs=frozenset(sharers),
        rejected=MappingProxyType(reasons),
        region_modes=MappingProxyType(modes),
        sharers=MappingProxyType(sharers),
    )


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
