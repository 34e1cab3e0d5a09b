"""Which device nodes a container may get: what sysfs says of them, and those denied to all.

Nodes through which a container would reach the whole machine, its disks or another's card are
denied by their subsystem, their number and their name, since a node can stand under any name.
"""

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from services.devices.model import DeviceNode
from services.process.problem import Problem

Number: TypeAlias = tuple[int, int]
"""Major and minor."""


@dataclass(frozen=True, slots=True)
class FoundNode:
    """A device node, as sysfs and `/dev` have it."""

    name: str
    number: Number | None
    subsystem: str
    problem: Problem | None = None
    """Why what stands at its place can't be handed out."""
    actual: Number | None = None
    """The number of what stands there."""
    target: str = ""
    """The path below `/dev` of the node that links lead to from its name, whole if elsewhere."""


DENIED_SUBSYSTEMS: Final = frozenset(
    (
        *("mem", "block", "bsg", "scsi_generic", "mtd", "msr", "cpuid", "watchdog", "input", "vc"),
        *("nvme", "nvme-generic", "nvme-subsystem", "tpm", "tpmrm", "vtconsole", "hidraw"),
        *("vfio", "vfio-dev", "iommu", "fpga_manager", "fpga_region", "fpga_bridge", "dfl"),
        *("xclmgmt", "xrt_mgmt", "xrt_user_mgmt", "ipmi", "nd", "vduse"),
    )
)
"""Classes of sysfs, none of whose nodes is ever handed out; VFIO has a node source of its own."""

_DENIED_MAJORS: Final = frozenset(
    # Memory, consoles, input, SCSI devices, flash memory, raw disks, registers, terminals.
    {1, 7, 13, 21, 90, 162, 202, 203, *range(136, 144)}
)
_MISC: Final = 10
VFIO: Final = (_MISC, 196)
"""The number of `vfio/vfio`, which every container with a group has."""
_DENIED_MISC: Final = frozenset(
    # A mouse, the watchdog, Bluetooth devices made by programs, NVRAM, VFIO, CUSE, disks, uinput,
    # the TPM, hibernation, btrfs, the device mapper, loop devices, uhid, userio
    # (linux/miscdevice.h).
    {1, 130, 137, 144, 196, 203, 220, 221, 222, 223, 224, 231, 234, 236, 237, 239, 240}
)
_TTY, _CONSOLES = 4, 64
_CONSOLE_MAJOR: Final = 5

_DENIED_NAMES: Final = re.compile(
    r"k?mem|kmsg|port|console|tty\d*|vcs.*|sd[a-z]+\d*|vd[a-z]+\d*|xvd[a-z]+\d*|hd[a-z]+\d*|sr\d+"
    r"|disk/.*|raw/.*|fd/.*|std(?:in|out|err)|pts/.*|ptmx"
    r"|sg\d+|bsg/.*|nvme.*|ng\d.*|mtd.*|md\d.*|dm-\d+|mapper/.*|loop.*|zram.*|cpu/.*|tpm.*"
    r"|ubi.*|vtpmx|mpt\dctl|megaraid_.*|usbmon\d+|psaux|userio|ipmi.*|ndctl\d+|nmem\d+"
    r"|watchdog\d*|input/.*|uinput|uhid|cuse|vhci|vduse/.*|raw-gadget|hidraw\d+|iommu"
    r"|vfio/.*|snapshot|nvram|btrfs-control"
    r"|xclmgmt.*|xrt_mgmt.*|dfl-.*|intel-fpga-.*|fpga.*|dfl_.*"
)
DENIED_EXAMPLES: Final = (
    *("mem", "kmem", "kmsg", "port", "console", "tty", "tty0", "vcs", "sda", "sda1", "vda", "xvda"),
    *("hda", "sr0", "sg0", "bsg/0:0:0:0", "nvme0", "nvme0n1", "ng0n1", "mtd0", "md0", "dm-0"),
    *("mapper/control", "loop0", "loop-control", "cpu/0/msr", "tpm0", "tpmrm0", "watchdog"),
    *("watchdog0", "input/event0", "uinput", "hidraw0", "iommu", "vfio/vfio", "vfio/1", "snapshot"),
    *("xclmgmt0", "dfl-fme.0", "dfl-port.0", "intel-fpga-fme.0", "intel-fpga-port.0", "fpga0"),
    *("ipmi0", "ndctl0", "nmem0", "cuse", "vhci", "vduse/control", "raw-gadget"),
)
"""What a pattern must not match."""

_NAME: Final = re.compile(r"(?!\.)[A-Za-z0-9_.:@+-]+(?:/(?!\.)[A-Za-z0-9_.:@+-]+){0,4}")
_FIELD: Final = re.compile(r"^(MAJOR|MINOR|DEVNAME)=(.*)$", re.MULTILINE)


def is_name(text: str) -> bool:
    """Whether a text can be the name of a node below `/dev`."""
    return bool(_NAME.fullmatch(text)) and len(text) <= 128


def denied_name(name: str) -> bool:
    """Whether no node of such a name is ever handed out."""
    return bool(_DENIED_NAMES.fullmatch(name))


def denial(subsystem: str, number: Number | None, name: str) -> str:
    """Why a node is never handed out; empty if it may be. The subsystem is empty if unknown."""
    if subsystem in DENIED_SUBSYSTEMS:
        return f"nodes of {subsystem} are never handed out"
    major, minor = number or (0, 0)
    if (
        major in _DENIED_MAJORS
        or (major == _MISC and minor in _DENIED_MISC)
        or (major == _TTY and minor < _CONSOLES)
        or (major == _CONSOLE_MAJOR and minor < _TTY)
    ):
        return f"nodes {major}:{minor} are never handed out"
    return "nodes of this name are never handed out" if denied_name(name) else ""


def described_node(uevent: str) -> tuple[str, Number | None]:
    """The node's name below `/dev` and its number, as a device's `uevent` has them."""
    fields: dict[str, str] = dict(_FIELD.findall(uevent))
    major, minor = fields.get("MAJOR", ""), fields.get("MINOR", "")
    number = (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None
    return fields.get("DEVNAME", "").removeprefix("/dev/"), number


def check_node(
    found: FoundNode, *, permissions: str = "rw", is_vfio: bool = False
) -> DeviceNode | Problem:
    """The node that a container gets, or why it can't have it.

    `is_vfio` is for nodes of the device's own IOMMU group.
    """
    name, number, actual = found.name, found.number, found.actual
    if number is None or not is_name(name):
        return Problem("node-missing", f"sysfs and /dev have no device node of it: {name!r:.80}")
    if found.target and not is_name(found.target):
        return Problem(
            "node-missing", f"/dev/{name} leads to no node below /dev: {found.target!r:.80}"
        )
    why = "" if is_vfio else denial(found.subsystem, number, name)
    if not (why or is_vfio) and denied_name(found.target):
        why = f"it leads to /dev/{found.target}, and nodes of this name are never handed out"
    if why:
        return Problem("node-denied", f"/dev/{name}: {why}")
    problem = found.problem
    if problem is None and actual is not None and actual != number:
        text = f"/dev/{name} is {actual[0]}:{actual[1]}, and the device is {number[0]}:{number[1]}"
        problem = Problem("node-other-number", text)
    return problem or DeviceNode(name, permissions, number, found.target)
