"""Names of FPGA resources, from interface and AFU ids and back; ids of devices as DNS labels.

A resource of the domain ``fpga.intel.com`` is a whole region, ``region-<interface id>``, or an
accelerator function, ``af-<3>.<3>.<base64>``: the first three hex digits of the interface ID and of
the AFU ID for readers, then the bytes of both IDs in base64url without padding. Node labels, quotas
and pods of existing clusters hold these names, so they never change.
Kubernetes allows 63 characters of ``[A-Za-z0-9._-]``, alphanumeric at both ends, after the domain:
https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
"""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Final

from services.process.errors import InvalidName
from services.process.text import quote

DOMAIN = "fpga.intel.com"
"""The domain of every FPGA resource, and the group of the custom resources."""

ACCELERATOR_DOMAIN = "accelbind.dev"
"""The domain of names for any accelerator, and the group of their custom resource."""

DEVICE_DOMAIN = "device.accelbind.dev"
"""The domain of resources of device types, unless others are allowed."""

FUNCTION_PREFIX = f"{DOMAIN}/af-"
REGION_PREFIX = f"{DOMAIN}/region-"
"""How the full names of all resources of functions and of regions begin."""

UNIT_RESOURCE = "b-com.com/accelerator"
"""The full resource name in the modes that count identical units."""

UNIT_VARIABLES = ("ACCELERATOR_UNITS", "ACCELERATOR_DEVICES")
"""The variables of units. The b<>com plugin's README says the first, its code sets the second;
workloads read either."""

ADDRESS_VARIABLE = "ACCELBIND_{RESOURCE}"
"""The PCI addresses of the devices that a container has of a resource, in their order; that one's
name, without its domain, is in capitals, with `_` for what no variable's name can have."""

_NOT_IN_A_VARIABLE = re.compile(r"[^A-Z0-9]")

INTERFACE_LENGTHS = range(8, 33)
"""How many hex digits an interface id may have; hardware reports 32."""

AFU_LENGTHS = range(8, 41)
"""How many hex digits an AFU id may have: 32 from hardware, 40 for an OpenCL image's hash."""

ID_DIGITS = 32
"""Hex digits of an interface ID or AFU ID that hardware reports."""

CRASHED = "f" * ID_DIGITS
"""What crashed firmware reports as an ID."""

OPENCL_AFU = "18b79ffa2ee54aa096ef4230dafacb5f"
"""AFU ID that all OpenCL board packages share; it doesn't identify the program in the port."""

_HEX = re.compile(r"[0-9a-f]*")
_NAME_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_REGION = re.compile(r"region-([0-9a-f]{8,32})")
_FUNCTION = re.compile(r"af-([0-9a-f]{3})\.([0-9a-f]{3})\.([A-Za-z0-9_-]{11,48})")


@dataclass(frozen=True, slots=True)
class RegionName:
    """A name ``region-…``: a region with this interface ID, whatever function it has."""

    interface_id: str


@dataclass(frozen=True, slots=True)
class FunctionName:
    """A name ``af-…``: a function in a region with this interface ID."""

    interface_id: str
    afu_id: str


def canonical_id(text: str) -> str:
    """Return the form in which IDs are compared: trimmed, lower case, without ``-``; unchecked."""
    return text.strip().lower().replace("-", "")


def check_id(text: str, *, what: str, lengths: range) -> str:
    """Return the canonical form of an ID, which `what` names in messages.

    Raises:
        InvalidName: It isn't hex, or doesn't have as many digits.
    """
    text_id = canonical_id(text)
    if len(text_id) in lengths and _HEX.fullmatch(text_id):
        return text_id
    raise InvalidName(
        f"{what} {quote(text)} is not {lengths.start} to {lengths.stop - 1} hex digits"
    )


def region_name(interface_id: str) -> str:
    """Return the resource name, without its domain, of regions with this interface ID."""
    return f"region-{check_id(interface_id, what='interface id', lengths=INTERFACE_LENGTHS)}"


def function_name(interface_id: str, afu_id: str) -> str:
    """Return the resource name, without its domain, of a function in such a region.

    Raises:
        InvalidName: An ID isn't one, or Kubernetes has no name for the two: together they must be
            whole bytes, and the name must end in a letter or digit.
    """
    interface = check_id(interface_id, what="interface id", lengths=INTERFACE_LENGTHS)
    afu = check_id(afu_id, what="AFU id", lengths=AFU_LENGTHS)
    digits = interface + afu
    if len(digits) % 2:
        raise InvalidName(
            f"interface id {interface} and AFU id {afu} have {len(digits)} hex digits together, "
            "which are no whole bytes: there is no resource name for them"
        )
    name = f"af-{interface[:3]}.{afu[:3]}.{_encode(bytes.fromhex(digits))}"
    if not is_name_part(name):
        raise InvalidName(
            f"the resource name of interface id {interface} and AFU id {afu} would be {name}, "
            "and Kubernetes allows none that ends in '-' or '_'"
        )
    return name


def decode(resource: str) -> RegionName | FunctionName:
    """Return the IDs that a physical resource name, with or without the domain, stands for.

    Raises:
        InvalidName: The text is no physical name, or its interface ID isn't as long as hardware's.
    """
    name = resource.removeprefix(f"{DOMAIN}/")
    if match := _REGION.fullmatch(name):
        return RegionName(match[1])
    match = _FUNCTION.fullmatch(name)
    if not match or not is_name_part(name):
        raise InvalidName(
            f"{quote(resource)} is not a physical resource name: those are "
            "region-<interface id> and af-<3 hex digits>.<3 hex digits>.<base64url>"
        )
    digits = _digits(name, match[3])
    ids = FunctionName(digits[:ID_DIGITS], digits[ID_DIGITS:])
    if len(ids.afu_id) not in AFU_LENGTHS or function_name(ids.interface_id, ids.afu_id) != name:
        raise InvalidName(f"{name} spells no interface id of {ID_DIGITS} digits and AFU id")
    return ids


def is_physical(name_part: str) -> bool:
    """Whether a name, without its domain, has the form of a physical name."""
    return bool(_REGION.fullmatch(name_part) or _FUNCTION.fullmatch(name_part))


def is_name_part(text: str) -> bool:
    """Whether Kubernetes accepts `text` as a resource name after the domain."""
    return bool(_NAME_PART.fullmatch(text))


def _encode(data: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _digits(name: str, encoded: str) -> str:
    """Return the hex digits behind the base64 of a function's name."""
    try:
        data = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except binascii.Error as error:
        raise InvalidName(f"the end of {name} is not base64url: {error}") from error
    return data.hex()


MAX_ID: Final = 56
"""Characters of an id: a DNS label has 63, and replicas add some."""

_NUMBERS: Final = re.compile(r"[0-9]+")
_NOT_IN_LABEL: Final = re.compile(r"[^a-z0-9]+")


def by_number(text: str) -> tuple[str, str]:
    """A key that sorts `ve10` behind `ve2`."""
    return _NUMBERS.sub(lambda number: number[0].zfill(20), text), text


def dns_label(text: str) -> str:
    """A text as a DNS label: `0000:b1:00.5` is `0000-b1-00-5`."""
    plain = _NOT_IN_LABEL.sub("-", text.lower()).strip("-")
    if plain and len(plain) <= MAX_ID:
        return plain
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{plain[: MAX_ID - 9].rstrip('-')}-{digest}".lstrip("-")


def dra_name(of: str, device_id: str) -> str:
    """The name of a type's device in DRA."""
    return dns_label(f"{of}-{device_id}")


def resource_variable(resource: str) -> str:
    """The variable that gives a container the PCI addresses behind a resource."""
    # A container can have several resources, and the kubelet keeps one variable of a name.
    name = resource.rpartition("/")[2].upper()
    return ADDRESS_VARIABLE.format(RESOURCE=_NOT_IN_A_VARIABLE.sub("_", name))
