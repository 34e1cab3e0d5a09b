"""Device types as their YAML files have them, and what such a file may hold.

Everything is checked where it is made, so a `DeviceType` that exists can be used. An error names
the field by its path: `spec.match[0].pci.vendor`. The JSON Schema for editors is made of the same
structs.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal

from msgspec import Meta, field

from services import names
from services.devices.model import Value
from services.devices.nodes import (
    SETTINGS,
    denied_class,
    denied_examples,
    denied_name,
    is_name,
)
from services.devices.reasons import REASONS
from services.devices.types.node_source import NodeSource, shares_path
from services.devices.types.values import (
    BUILT_IN,
    OF_FPGAS,
    Glob,
    Hex4,
    Identifier,
    Ids,
    Label,
    PciClass,
    Strict,
    Text,
    VariableName,
    Word,
    kubevirt_problem,
    repeated,
)
from services.mappings.accelerator import is_reserved_variable
from services.process.text import quote

_TYPES: Final[dict[str, type]] = {"bool": bool, "int": int, "string": str}
_WORDS: Final = {kind: word for word, kind in _TYPES.items()}

_FEW: Final = Meta(max_length=16)
_MANY: Final = Meta(max_length=256)
OneOf = Annotated[tuple[bool | int | Text, ...], Meta(min_length=1, max_length=32)]

_STEP: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.:@+*-]+")
_MAX_STEPS: Final = 8


class Pci(Strict, frozen=True):
    """Functions on the PCI bus; what is given must all hold, lists are alternatives."""

    vendor: Annotated[tuple[Hex4, ...], _FEW] = ()
    """Their vendors."""
    device: Annotated[tuple[Hex4, ...], _MANY] = ()
    """Their devices."""
    subsystem: Annotated[tuple[Ids, ...], _MANY] = ()
    """Vendor and device: `8086:1771`."""
    class_: Annotated[tuple[PciClass, ...], _FEW] = field(default=(), name="class")
    """How the class code starts: `12`, `1200`."""
    driver: Annotated[tuple[Glob, ...], _FEW] = ()
    """The drivers to which they are bound."""
    virtual_function: bool | None = None
    """Only virtual functions, or only others."""

    def _problems(self) -> Iterator[str]:
        # It would match half the machine.
        if not (self.vendor or self.device or self.subsystem or self.class_):
            yield " needs vendor, device, subsystem or class"


class Usb(Strict, frozen=True):
    """Devices on the USB."""

    vendor: Annotated[tuple[Hex4, ...], Meta(min_length=1, max_length=16)]
    """Their vendors."""
    product: Annotated[tuple[Hex4, ...], _MANY] = ()
    """Their products."""
    serial: Annotated[tuple[Glob, ...], _MANY] = ()
    """Their serial numbers."""


class ClassEntry(Strict, frozen=True):
    """Entries of a folder of /sys/class."""

    name: Word
    """The folder: `misc`, `tty`."""
    entry: Annotated[tuple[Glob, ...], _FEW] = ()
    """Their own names: `hw_random`."""
    driver: Annotated[tuple[Glob, ...], _FEW] = ()
    """The drivers of their devices."""

    def _problems(self) -> Iterator[str]:
        if why := denied_class(self.name, SETTINGS):
            yield f".name: {why}"


class Condition(Strict, frozen=True):
    """A condition on an attribute."""

    attribute: Identifier
    """One of `attributes`, or a built-in one."""
    equals: bool | int | Text | None = None
    """The value."""
    one_of: OneOf | None = None
    """The values."""
    glob: Glob | None = None
    """A string, in which * stands for any characters."""
    min_: int | None = field(default=None, name="min")
    """The least number, alone or with max."""
    max_: int | None = field(default=None, name="max")
    """The largest number, alone or with min."""

    def _problems(self) -> Iterator[str]:
        limits = self.limits or None
        given = [each for each in (self.equals, self.one_of, self.glob, limits) if each is not None]
        if len(given) != 1:
            yield " needs exactly one of equals, oneOf, glob, and min or max"
        if self.min_ is not None and self.max_ is not None and self.min_ > self.max_:
            yield ".min: it is more than max"

    @property
    def limits(self) -> tuple[int, ...]:
        """Its limits of a number, if it has any."""
        return tuple(each for each in (self.min_, self.max_) if each is not None)

    def values(self) -> Iterator[tuple[str, Value]]:
        """Yield the values that it compares with, and their fields."""
        given: list[tuple[str, Value | None]] = [("oneOf", each) for each in self.one_of or ()]
        given += [("equals", self.equals), ("glob", self.glob)]
        given += [("min", self.min_), ("max", self.max_)]
        yield from ((name, each) for name, each in given if each is not None)


class Rule(Condition, frozen=True, kw_only=True):
    """The values of an attribute while the device is healthy, and the reason for others."""

    reason: Label
    """Names the rule that does not hold in `accelbind devices -o json` and in metrics."""

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if self.reason in REASONS:  # which mean something else
            yield f".reason: {self.reason} is a reason of accelbind's own; choose another"


class Term(Strict, frozen=True):
    """A description of devices; everything given must hold."""

    pci: Pci | None = None
    """Functions on the PCI bus."""
    usb: Usb | None = None
    """Devices on the USB."""
    class_: ClassEntry | None = field(default=None, name="class")
    """Entries of a class; with pci or usb, those of such devices."""
    path: Annotated[tuple[str, ...], _FEW] = ()
    """Character devices: `/dev/NAME`, where * stands for any characters.

    Of a node that sysfs doesn't know, or of a link to it, the container has this path; with *,
    only nodes that sysfs knows match.
    """
    where: Annotated[tuple[Condition, ...], Meta(max_length=8)] = ()
    """Conditions, which must all hold."""

    def _problems(self) -> Iterator[str]:
        if not (self.pci or self.usb or self.class_ or self.path):
            yield " needs pci, usb, class or path"
        if (self.pci and self.usb) or (self.path and (self.pci or self.usb or self.class_)):
            yield " can't be both: use a term each"
        for number, path in enumerate(self.path):
            why = _path_problem(path)
            if why:
                yield f".path[{number}]: {quote(path)} {why}"


def _path_problem(path: str, allowed: Collection[str] = SETTINGS) -> str:
    name = path.removeprefix("/dev/")
    if name == path or not is_name(name.replace("*", "0")):
        return "is not /dev/ and the name of a device node"
    filled = (name.replace("*", each) for each in ("", "0", "a"))
    examples = (each for each in denied_examples() if fnmatchcase(each, name))
    for each in (*examples, *filled):
        if why := denied_name(each, allowed):
            return f"{'is refused' if each == name else f'would be /dev/{each}'}: {why}"
    return ""


class Attribute(Strict, frozen=True):
    """A file of the device in sysfs."""

    name: Identifier
    """Its name in `where`, `health` and `env`."""
    file: Annotated[str, Meta(max_length=256)]
    """Relative to the matched device; with `class`, to its entry, which has files of the PCI or USB
    device below `device`: `device/hwmon/hwmon*/temp1_input`. * stands for any characters within
    one step."""
    type: Literal["bool", "int", "string"] = "string"
    """The type of its value."""

    def _problems(self) -> Iterator[str]:
        steps = self.file.split("/")
        if len(steps) > _MAX_STEPS or not all(map(_STEP.fullmatch, steps)):
            yield f".file: {quote(self.file)} is not a path below the device, such as ve/ve*/state"
        if self.name in BUILT_IN or self.name in OF_FPGAS:
            yield f".name: {self.name} has a meaning already; choose another"


_OWN: Final = (NodeSource(own=True),)


class Resource(Strict, frozen=True):
    """The extended resource that pods request."""

    domain: str
    """One of the plugin's `--resource-domain`."""
    name: str
    """What follows the domain."""

    def _problems(self) -> Iterator[str]:
        # Whoever loads it says which domains there are.
        if not names.is_name_part(self.name):
            yield f".name: {quote(self.name)} is not the name of a resource"


class Variable(Strict, frozen=True):
    """A variable that a container gets: an attribute or a value."""

    name: VariableName
    """The variable."""
    attribute: Identifier | None = None
    """One of `attributes`, or a built-in one: a value for each device, separated by commas."""
    value: Text | None = None
    """A fixed value."""

    def _problems(self) -> Iterator[str]:
        if (self.attribute is None) == (self.value is None):
            yield " needs exactly one of attribute and value"
        if is_reserved_variable(self.name):
            yield f".name: {self.name} is reserved"


class Sharing(Strict, frozen=True):
    """How many containers may have the same device."""

    replicas: Annotated[int, Meta(ge=1, le=128)] = 1
    """The number of containers."""
    dra: Literal["capacity", "replicas"] = "capacity"
    """How slices show it: as one device with a capacity of shares, or as a device for each."""


class Spec(Strict, frozen=True):
    """Devices of a type, and what a container gets with one."""

    match: Annotated[tuple[Term, ...], Meta(min_length=1, max_length=16)]
    """Descriptions of devices, which are alternatives."""
    resource: Resource
    """The extended resource that pods request."""
    attributes: Annotated[tuple[Attribute, ...], Meta(max_length=20)] = ()
    """Files of the device in sysfs."""
    health: Annotated[tuple[Rule, ...], Meta(max_length=16)] = ()
    """Rules for attributes of a healthy device; a file that cannot be read violates its rule."""
    nodes: Annotated[tuple[NodeSource, ...], Meta(max_length=8)] = ()
    """The nodes that a container gets; by default the device's own."""
    each: Literal["device", "node"] = "device"
    """A device of pods: a device with all its nodes, or each of its nodes alone."""
    env: Annotated[tuple[Variable, ...], Meta(max_length=16)] = ()
    """Variables that a container gets."""
    sharing: Sharing = Sharing()
    """How many containers may have a device."""

    @property
    def is_vfio(self) -> bool:
        """Whether the devices are IOMMU groups."""
        return any(each.vfio for each in self.nodes)

    @property
    def used(self) -> Iterator[str]:
        """Yield the attributes on which matches, health and variables depend."""
        yield from (each.attribute for term in self.match for each in term.where)
        yield from (each.attribute for each in self.health)
        yield from (each.attribute for each in self.env if each.attribute is not None)

    @property
    def sources(self) -> tuple[NodeSource, ...]:
        """Where nodes come from."""
        return self.nodes or _OWN

    def paths(self) -> Iterator[tuple[str, str]]:
        """Yield the fields with paths that containers have, and the paths."""
        for number, source in enumerate(self.nodes):
            if source.as_:
                yield f"spec.nodes[{number}].as", source.as_
        if any(each.own and not each.as_ for each in self.sources):
            for number, term in enumerate(self.match):
                for at, path in enumerate(term.path):
                    yield f"spec.match[{number}].path[{at}]", path

    def denied(self, allowed: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield the fields about nodes that need words of the plugin's setting, and why."""
        for number, term in enumerate(self.match):
            if term.class_ and (why := denied_class(term.class_.name, allowed)):
                yield f"spec.match[{number}].class.name", why
            for at, path in enumerate(term.path):
                if why := _path_problem(path, allowed):
                    yield f"spec.match[{number}].path[{at}]", f"{quote(path)} {why}"
        for number, source in enumerate(self.nodes):
            if why := denied_class(source.class_ or "", allowed):
                yield f"spec.nodes[{number}].class", why

    def _problems(self) -> Iterator[str]:
        yield from self._attribute_problems()
        bare = [each.pci is not None and each.class_ is None for each in self.match]
        if any(bare) and any(each.own for each in self.sources):
            yield ".nodes: a PCI function has no node of its own; name a class, or vfio"
        if self.is_vfio and (not all(bare) or len(self.nodes) > 1):
            yield ".nodes: vfio stands alone, and is for PCI functions"
        if self.is_vfio and self.sharing.replicas > 1:
            yield ".sharing.replicas: an IOMMU group can't be shared"
        if self.is_vfio and self.each == "node":
            yield ".each: an IOMMU group is one device"
        for number, source in enumerate(self.nodes):
            before = (each.as_ for each in self.nodes[:number])
            if source.as_ and any(each and shares_path(each, source.as_) for each in before):
                yield f".nodes[{number}].as: another node has {source.as_}, or a part of that path"

    def _attribute_problems(self) -> Iterator[str]:
        known = BUILT_IN | {each.name: _TYPES[each.type] for each in self.attributes}
        yield from repeated(
            {f".attributes[{n}].name": each.name for n, each in enumerate(self.attributes)}
        )
        conditions: dict[str, Condition] = {
            f".match[{term}].where[{number}]": each
            for term, of in enumerate(self.match)
            for number, each in enumerate(of.where)
        }
        conditions |= {f".health[{number}]": each for number, each in enumerate(self.health)}
        for at, each in conditions.items():
            wanted = known.get(each.attribute)
            if wanted is None:
                yield f"{at}.attribute: {_undeclared(each.attribute, known)}"
                continue
            for name, value in each.values():
                if type(value) is not wanted:
                    is_of, of = _WORDS[type(value)], each.attribute
                    todo = "" if of in BUILT_IN else f"; declare it with type: {is_of}"
                    yield f"{at}: {name} is of type {is_of}, and {of} of {_WORDS[wanted]}{todo}"
        for number, variable in enumerate(self.env):
            named = variable.attribute
            if named is not None and named not in known:
                yield f".env[{number}].attribute: {_undeclared(named, known)}"
            resource = f"{self.resource.domain}/{self.resource.name}"
            if why := kubevirt_problem(variable.name, resource):
                yield f".env[{number}].name: {why}"
        variables = {f".env[{n}].name": each.name for n, each in enumerate(self.env)}
        variables |= {f".nodes[{n}].env": each.env for n, each in enumerate(self.nodes) if each.env}
        yield from repeated(variables)


def _undeclared(attribute: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(attribute, known, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"{attribute} is not declared in attributes{meant}"


class Metadata(Strict, frozen=True):
    """The name of a type."""

    name: Label
    """Unique in a folder."""


class DeviceType(Strict, frozen=True):
    """A file."""

    api_version: Literal["accelbind.dev/v1alpha1"]
    """The version of this format."""
    kind: Literal["DeviceType"]
    """The kind of the object."""
    metadata: Metadata
    """The name of the type."""
    spec: Spec
    """Its devices, and what a container gets with one."""

    @property
    def name(self) -> str:
        """Its name, of which there is one in a folder."""
        return self.metadata.name

    @property
    def resource(self) -> str:
        """The full name of its resource."""
        return f"{self.spec.resource.domain}/{self.spec.resource.name}"
