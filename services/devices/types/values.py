"""Parts of device types: texts with their patterns, built-in attributes, strict objects."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

from msgspec import Meta, Struct

from services.process.text import quote

MAX_VALUE: Final = 64

BUILT_IN_MEANINGS: Final[dict[str, tuple[type, str]]] = {
    "type": (str, "Name of the device type."),
    "class": (str, "Class of the matched entry, `pci`, or `usb`."),
    "kernelName": (str, "The kernel's name: `ve0`, a PCI address, a USB port, or a path."),
    "kernelDriver": (str, "Driver of the device, or of the device of a class entry."),
    "vendorID": (str, "Vendor on PCI or USB, four hex digits."),
    "deviceID": (str, "Device on PCI, or product on USB, four hex digits."),
    "subsystemID": (str, "Vendor and device of the subsystem on PCI: `8086:1771`."),
    "pciClass": (str, "Class code on PCI, six hex digits."),
    "pciBusID": (str, "PCI address: `0000:b1:00.0`."),
    "pcieRoot": (str, "PCIe root complex: `pci0000:b0`."),
    "iommuGroup": (str, "Number of the IOMMU group."),
    "afuID": (str, "Function behind a virtual function of an OFS card."),
    "usbSerial": (str, "Serial number on USB."),
    "usbPath": (str, "Port on USB: `3-1.2`."),
    "usbInterface": (
        int,
        "Number of the interface on USB that a class entry is of: 2 of `1-1:1.2`.",
    ),
    "virtualFunction": (bool, "Whether a PCI function is a virtual one."),
    "numaNode": (int, "NUMA node of the PCI function, or of the USB controller."),
}
"""Attributes that a device has without being declared, where the kernel knows them."""

BUILT_IN: Final[dict[str, type]] = {name: kind for name, (kind, _) in BUILT_IN_MEANINGS.items()}

OF_FPGAS: Final = frozenset({"interfaceID", "afuID", "program", "card", "programmable"})
"""Attributes of FPGAs in DRA, and `card`, which every device has there."""

PATTERNS: Final[dict[str, str]] = {}
"""The patterns of texts in words."""


def _pattern(regex: str, words: str, max_length: int | None = None) -> Meta:
    PATTERNS[regex] = words
    return Meta(pattern=regex, max_length=max_length)


_IDENTIFIER: Final = (
    "^[A-Za-z_][A-Za-z0-9_]*$",
    "a name of letters, digits and _ that starts with a letter or _",
)
Hex4 = Annotated[
    str,
    _pattern("^[0-9a-f]{4}$", 'four lower-case hex digits in quotes, such as "8086"'),
    Meta(description="four lower-case hex digits"),
]
Ids = Annotated[
    str,
    _pattern("^[0-9a-f]{4}:[0-9a-f]{4}$", "two ids in lower-case hex digits, such as 8086:1771"),
]
PciClass = Annotated[
    str,
    _pattern(
        "^(?:[0-9a-f]{2}){1,3}$",
        'the begin of a class code in lower-case hex digits, such as "1200"',
    ),
]
Glob = Annotated[
    str,
    _pattern(
        "^[A-Za-z0-9_.:@+*?-]+$",
        "a name, in which * stands for any characters and ? for one",
        MAX_VALUE,
    ),
]
Word = Annotated[str, _pattern("^[A-Za-z0-9_-]+$", "a name of letters, digits, _ and -", 32)]
Label = Annotated[
    str,
    _pattern(
        "^(?!fpga$)[a-z](?:[a-z0-9-]*[a-z0-9])?$",
        "a name of lower-case letters, digits and - that starts with a letter, other than fpga",
        40,
    ),
]
Identifier = Annotated[str, _pattern(*_IDENTIFIER, 32)]
VariableName = Annotated[str, _pattern(*_IDENTIFIER, 63)]
Text = Annotated[str, Meta(max_length=MAX_VALUE)]


def kubevirt_problem(variable: str, resource: str) -> str:
    """Why KubeVirt does not find a resource by a variable of its kind; empty if it does."""
    # `ResourceNameToEnvVar` of KubeVirt replaces nothing else.
    name = f"PCI_RESOURCE_{re.sub('[/.]', '_', resource.upper())}"
    if variable == name or not variable.startswith("PCI_RESOURCE_"):
        return ""
    if "-" in name:
        return f"KubeVirt finds no resource with -, such as {resource}; choose another name"
    return f"KubeVirt finds {resource} by {name}"


def repeated(names: Mapping[str, str]) -> Iterator[str]:
    """Yield the fields with a name that an earlier one has."""
    first: dict[str, str] = {}
    for at, name in names.items():
        other = first.setdefault(name, at)
        if other != at:
            yield f"{at}: spec{other} is {name} already"


class Strict(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """An object of the file; unknown fields are refused."""

    def __post_init__(self) -> None:
        # What no schema can check.
        problems = [*self._unprintable(), *self._problems()]
        if problems:
            raise ValueError("\n".join(problems))

    def _problems(self) -> Iterator[str]:
        """Yield what is wrong, each in a line that begins with the field or with a blank."""
        yield from ()

    def _unprintable(self) -> Iterator[str]:
        """Yield where control characters are."""
        # The schema can't refuse them: `$` in a pattern lets a line feed follow.
        for name, at in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = getattr(self, name)
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, str) and not each.isprintable():
                    yield f".{at}: {quote(each)} has unprintable characters"
