"""Device types as their YAML files have them, and what such a file may hold.

Everything is checked where it is made, so a `DeviceType` that exists can be used. An error names
the field by its path: `spec.match[0].pci.vendor`. The JSON Schema for editors is made of the same
structs.
"""

import difflib
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from services import names
from services.devices.model import Value
from services.devices.nodes import DENIED_EXAMPLES, DENIED_SUBSYSTEMS, denied_name, is_name
from services.devices.reasons import REASONS
from services.mappings.accelerator import is_reserved_variable
from services.process.text import quote

MAX_VALUE: Final = 64

BUILT_IN: Final[dict[str, type]] = {
    **dict.fromkeys(("type", "class", "kernelName", "kernelDriver", "vendorID", "deviceID"), str),
    **dict.fromkeys(("subsystemID", "pciClass", "pciBusID", "pcieRoot", "iommuGroup"), str),
    **dict.fromkeys(("afuID", "usbSerial", "usbPath"), str),
    "virtualFunction": bool,
    "numaNode": int,
}
"""Attributes that a device has without being declared, where the kernel knows them."""

OF_FPGAS: Final = frozenset({"interfaceID", "afuID", "program", "card", "programmable"})
"""Attributes that FPGAs have, and that every device has in DRA."""

_TYPES: Final[dict[str, type]] = {"bool": bool, "int": int, "string": str}
_WORDS: Final = {kind: word for word, kind in _TYPES.items()}

Hex4 = Annotated[str, Meta(pattern=r"^[0-9a-f]{4}$", description="four lower-case hex digits")]
Ids = Annotated[str, Meta(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]
PciClass = Annotated[str, Meta(pattern=r"^(?:[0-9a-f]{2}){1,3}$")]
Glob = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:@+*?-]+$", max_length=MAX_VALUE)]
Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]+$", max_length=32)]
Label = Annotated[str, Meta(pattern=r"^(?!fpga$)[a-z](?:[a-z0-9-]*[a-z0-9])?$", max_length=40)]
Identifier = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=32)]
Text = Annotated[str, Meta(max_length=MAX_VALUE)]
PATTERNS: Final = {
    "^[0-9a-f]{4}$": 'four lower-case hex digits in quotes, such as "8086"',
    "^[0-9a-f]{4}:[0-9a-f]{4}$": "two ids in lower-case hex digits, such as 8086:1771",
    "^(?:[0-9a-f]{2}){1,3}$": 'the begin of a class code in lower-case hex digits, such as "1200"',
    "^[A-Za-z0-9_.:@+*?-]+$": "a name, in which * stands for any characters",
    "^[A-Za-z0-9_-]+$": "a name of letters, digits, _ and -",
    "^(?!fpga$)[a-z](?:[a-z0-9-]*[a-z0-9])?$": (
        "a name of lower-case letters, digits and - that starts with a letter, other than fpga"
    ),
    "^[A-Za-z_][A-Za-z0-9_]*$": "a name of letters, digits and _ that starts with a letter or _",
}
"""The patterns of texts in words."""

_FEW: Final = Meta(max_length=16)
_MANY: Final = Meta(max_length=256)
OneOf = Annotated[tuple[bool | int | Text, ...], Meta(min_length=1, max_length=32)]

_STEP: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.:@+*-]+")
_MAX_STEPS: Final = 8


class _Strict(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """An object of the file; unknown fields are refused."""

    def __post_init__(self) -> None:
        # What no schema can check.
        for problem in (*self._unprintable(), *self._problems()):
            raise ValueError(problem)

    def _problems(self) -> Iterator[str]:
        """Yield what is wrong; each text begins with the field or with a blank."""
        yield from ()

    def _unprintable(self) -> Iterator[str]:
        """Yield where control characters are."""
        # The schema can't refuse them: `$` in a pattern lets a line feed follow.
        for name, at in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = getattr(self, name)
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, str) and not each.isprintable():
                    yield f".{at}: {quote(each)} has unprintable characters"


class Pci(_Strict, frozen=True):
    """Functions on the PCI bus; what is given must all hold, lists are alternatives."""

    vendor: Annotated[tuple[Hex4, ...], _FEW] = ()
    device: Annotated[tuple[Hex4, ...], _MANY] = ()
    subsystem: Annotated[tuple[Ids, ...], _MANY] = ()
    """Vendor and device: `8086:1771`."""
    class_: Annotated[tuple[PciClass, ...], _FEW] = field(default=(), name="class")
    """How the class code starts: `12`, `1200`."""
    driver: Annotated[tuple[Glob, ...], _FEW] = ()
    virtual_function: bool | None = None

    def _problems(self) -> Iterator[str]:
        # It would match half the machine.
        if not (self.vendor or self.device or self.subsystem or self.class_):
            yield " needs vendor, device, subsystem or class"


class Usb(_Strict, frozen=True):
    """Devices on the USB."""

    vendor: Annotated[tuple[Hex4, ...], Meta(min_length=1, max_length=16)]
    product: Annotated[tuple[Hex4, ...], _MANY] = ()
    serial: Annotated[tuple[Glob, ...], _MANY] = ()


class ClassEntry(_Strict, frozen=True):
    """Entries of a folder of /sys/class."""

    name: Word
    entry: Annotated[tuple[Glob, ...], _FEW] = ()
    """Their own names: `hw_random`."""
    driver: Annotated[tuple[Glob, ...], _FEW] = ()

    def _problems(self) -> Iterator[str]:
        if self.name in DENIED_SUBSYSTEMS:
            yield f".name: nodes of {self.name} are never handed out"


class Condition(_Strict, frozen=True):
    """A condition on an attribute."""

    attribute: Identifier
    equals: bool | int | Text | None = None
    one_of: OneOf | None = None
    glob: Glob | None = None
    min_: int | None = field(default=None, name="min")
    """The least number, alone or with max."""
    max_: int | None = field(default=None, name="max")

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

    def values(self) -> tuple[Value, ...]:
        """The values that it compares with; a glob only compares with strings."""
        return (
            self.limits
            or self.one_of
            or ((self.glob or "",) if self.equals is None else (self.equals,))
        )


class Rule(Condition, frozen=True, kw_only=True):
    """The values of an attribute while the device is healthy, and the reason for others."""

    reason: Label

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if self.reason in REASONS:  # which mean something else
            yield f".reason: {self.reason} is a reason of accelbind's own; choose another"


class Term(_Strict, frozen=True):
    """A description of devices; everything given must hold."""

    pci: Pci | None = None
    usb: Usb | None = None
    class_: ClassEntry | None = field(default=None, name="class")
    """With pci or usb: the entries of such devices."""
    path: Annotated[tuple[str, ...], _FEW] = ()
    """Character devices: /dev/NAME, where * stands for any characters."""
    where: Annotated[tuple[Condition, ...], Meta(max_length=8)] = ()

    def _problems(self) -> Iterator[str]:
        if not (self.pci or self.usb or self.class_ or self.path):
            yield " needs pci, usb, class or path"
        if (self.pci and self.usb) or (self.path and (self.pci or self.usb or self.class_)):
            yield " can't be both: use a term each"
        for number, path in enumerate(self.path):
            why = _path_problem(path)
            if why:
                yield f".path[{number}]: {quote(path)} {why}"


def _path_problem(path: str) -> str:
    name = path.removeprefix("/dev/")
    if name == path or not is_name(name.replace("*", "0")):
        return "is not /dev/ and the name of a device node"
    filled = (name.replace("*", each) for each in ("", "0", "a"))
    examples = (each for each in DENIED_EXAMPLES if fnmatchcase(each, name))
    shown = next((each for each in (*examples, *filled) if denied_name(each)), "")
    return f"would be /dev/{shown}, which is never handed out" if shown else ""


class Attribute(_Strict, frozen=True):
    """A file of the device in sysfs."""

    name: Identifier
    file: Annotated[str, Meta(max_length=256)]
    """Relative to the matched device; * stands for any characters within one step."""
    type: Literal["bool", "int", "string"] = "string"

    def _problems(self) -> Iterator[str]:
        steps = self.file.split("/")
        if len(steps) > _MAX_STEPS or not all(map(_STEP.fullmatch, steps)):
            yield f".file: {quote(self.file)} is not a path below the device, such as ve/ve*/state"
        if self.name in BUILT_IN or self.name in OF_FPGAS:
            yield f".name: {self.name} is an attribute that every device has; choose another"


class NodeSource(_Strict, frozen=True):
    """Where a device's nodes come from: exactly one of class, own and vfio."""

    class_: Word | None = field(default=None, name="class")
    """Nodes of this class that the device has."""
    kind: Word | None = None
    """How their names start, before a number: render."""
    own: bool = False
    """The node of the matched class entry, USB device or path itself."""
    vfio: bool = False
    """The nodes of the device's IOMMU group."""
    optional: bool = False
    permissions: Literal["r", "w", "rw"] = "rw"

    def has_kind(self, entry: str) -> bool:
        """Whether a class entry is of the kind: `renderD128` is of kind render."""
        return self.kind is None or bool(re.fullmatch(rf"{re.escape(self.kind)}[A-Z]*\d*", entry))

    def _problems(self) -> Iterator[str]:
        if [self.class_ is not None, self.own, self.vfio].count(True) != 1:
            yield " needs exactly one of class, own and vfio"
        if self.kind and not self.class_:
            yield ".kind: it needs class"
        if self.vfio and self.optional:
            yield ".optional: a group is nothing without its node"
        if self.class_ in DENIED_SUBSYSTEMS:
            yield f".class: nodes of {self.class_} are never handed out"


_OWN: Final = (NodeSource(own=True),)


class Resource(_Strict, frozen=True):
    """The extended resource that pods request."""

    domain: str
    name: str

    def _problems(self) -> Iterator[str]:
        # Whoever loads it says which domains there are.
        if not names.is_name_part(self.name):
            yield f".name: {quote(self.name)} is not the name of a resource"


class Variable(_Strict, frozen=True):
    """A variable that a container gets: an attribute or a value."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=63)]
    attribute: Identifier | None = None
    value: Text | None = None

    def _problems(self) -> Iterator[str]:
        if (self.attribute is None) == (self.value is None):
            yield " needs exactly one of attribute and value"
        if is_reserved_variable(self.name):
            yield f".name: {self.name} is reserved"


class Sharing(_Strict, frozen=True):
    """How many containers may have the same device."""

    replicas: Annotated[int, Meta(ge=1, le=128)] = 1
    dra: Literal["capacity", "replicas"] = "capacity"
    """How slices show it: as one device with a capacity of shares, or as a device for each."""


class Spec(_Strict, frozen=True):
    """Devices of a type, and what a container gets with one."""

    match: Annotated[tuple[Term, ...], Meta(min_length=1, max_length=16)]
    """Alternatives."""
    resource: Resource
    attributes: Annotated[tuple[Attribute, ...], Meta(max_length=20)] = ()
    health: Annotated[tuple[Rule, ...], Meta(max_length=16)] = ()
    """All must hold."""
    nodes: Annotated[tuple[NodeSource, ...], Meta(max_length=8)] = ()
    """By default the device's own."""
    env: Annotated[tuple[Variable, ...], Meta(max_length=16)] = ()
    sharing: Sharing = Sharing()

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

    def _problems(self) -> Iterator[str]:
        yield from self._attribute_problems()
        bare = [each.pci is not None and each.class_ is None for each in self.match]
        if any(bare) and any(each.own for each in self.sources):
            yield ".nodes: a PCI function has no node of its own; name a class, or vfio"
        if self.is_vfio and (not all(bare) or len(self.nodes) > 1):
            yield ".nodes: vfio stands alone, and is for PCI functions"
        if self.is_vfio and self.sharing.replicas > 1:
            yield ".sharing.replicas: an IOMMU group can't be shared"

    def _attribute_problems(self) -> Iterator[str]:
        known = BUILT_IN | {each.name: _TYPES[each.type] for each in self.attributes}
        if len(known) < len(BUILT_IN) + len(self.attributes):
            yield ".attributes: two have one name"
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
            elif any(type(value) is not wanted for value in each.values()):
                yield f"{at}: {each.attribute} must be compared with type {_WORDS[wanted]}"
        for number, variable in enumerate(self.env):
            of = variable.attribute
            if of is not None and of not in known:
                yield f".env[{number}].attribute: {_undeclared(of, known)}"
        if len({each.name for each in self.env}) < len(self.env):
            yield ".env: two have one name"


def _undeclared(attribute: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(attribute, known, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"{attribute} is not declared in attributes{meant}"


class Metadata(_Strict, frozen=True):
    """The name of a type."""

    name: Label


class DeviceType(_Strict, frozen=True):
    """A file."""

    api_version: Literal["accelbind.dev/v1alpha1"]
    kind: Literal["DeviceType"]
    metadata: Metadata
    spec: Spec

    @property
    def name(self) -> str:
        """Its name, of which there is one in a folder."""
        return self.metadata.name

    @property
    def resource(self) -> str:
        """The full name of its resource."""
        return f"{self.spec.resource.domain}/{self.spec.resource.name}"
