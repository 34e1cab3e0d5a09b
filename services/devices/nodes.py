"""Which device nodes a container may get: what sysfs says of them, and those that are refused.

Nodes through which a container would reach the whole machine, its disks or another's card are
denied by their subsystem, their number and their name, since a node can stand under any name. Of
class `misc`, which has devices of all kinds, only those in a list are handed out.
"""

import re
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from services.devices.model import Device, DeviceNode
from services.process.problem import Problem
from services.process.text import quote, words

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


@dataclass(frozen=True, slots=True)
class DeniedNodes:
    """Nodes that are not handed out, and why."""

    why: str
    classes: frozenset[str]
    """Subsystems of sysfs."""
    names: str
    """A pattern of their names."""
    examples: frozenset[str]
    """Names that a pattern of a type must not match."""
    numbers: Mapping[int, Container[int]] = field(default_factory=dict)
    """Majors, each with its minors."""
    setting: str = ""
    """The word by which `--allow-nodes` allows them; empty if nothing does."""


_ALL: Final = range(1 << 20)
_MISC, _MISC_CLASS = 10, "misc"
_TTY, _CONSOLE = 4, 5
VFIO: Final = (_MISC, 196)
"""The number of `vfio/vfio`, which every container with a group has."""

# Numbers: linux/major.h, linux/miscdevice.h, Documentation/admin-guide/devices.txt.
DENIED: Final = (
    DeniedNodes(
        "they reach the memory of the machine, or its log",
        words("mem dax nd"),
        r"k?mem|kmsg|port|nmem\d+|ndctl\d+|dax\d.*|cxl/mem\d+|snapshot",
        words("mem kmem kmsg port nmem0 ndctl0 dax0.0 cxl/mem0 snapshot"),
        {1: _ALL, _MISC: (231,)},
    ),
    DeniedNodes(
        "they reach registers, also for DMA that no IOMMU checks",
        words("msr cpuid uio"),
        r"cpu/.*|uio\d+",
        words("cpu/0/msr uio0"),
        {202: _ALL, 203: _ALL},
    ),
    DeniedNodes(
        "they are disks, tapes or flash memory, control them, or make some",
        words("""
            block bsg scsi_generic scsi_tape scsi_changer onstream_tape nvme nvme-generic
            nvme-subsystem mtd ubi mmc_rpmb
        """),
        r"sd[a-z]+\d*|vd[a-z]+\d*|xvd[a-z]+\d*|hd[a-z]+\d*|sr\d+|disk/.*|raw/.*|sg\d+|bsg/.*"
        r"|n?st\d+[alm]?|n?osst\d+.*|sch\d+|tape/.*|nvme.*|ng\d.*|mtd.*|md\d.*|dm-\d+|mapper/.*"
        r"|loop.*|zram.*|ubi.*|mmcblk.*|mpt\dctl|megaraid_.*|btrfs-control|zfs|ublk.*",
        words("""
            sda sda1 vda xvda hda sr0 sg0 bsg/0:0:0:0 st0 nst0 sch0 nvme0 nvme0n1 ng0n1 mtd0 md0
            dm-0 mapper/control loop0 loop-control mmcblk0rpmb zfs ublk-control ublkc0
        """),
        # SCSI tapes and changers, generic SCSI, flash memory, raw disks, OnStream tapes; SCSI
        # controllers, btrfs, the device mapper, loop devices.
        {
            **dict.fromkeys((9, 21, 86, 90, 162, 206), _ALL),
            _MISC: (220, 221, 222, 234, 236, 237),
        },
    ),
    DeniedNodes(
        "they are consoles and terminals of the machine",
        words("vc vtconsole"),
        r"console|tty\d*|vcs.*|fd/.*|std(?:in|out|err)|pts/.*|ptmx",
        words("console tty tty0 vcs ptmx"),
        {7: _ALL, _TTY: range(64), _CONSOLE: range(4), **dict.fromkeys(range(136, 144), _ALL)},
    ),
    DeniedNodes(
        "they make devices of the machine, or a program made them",
        words("vduse cuse"),
        r"uinput|uhid|userio|cuse|vhci|vduse/.*|raw-gadget|vtpmx",
        words("uinput uhid userio cuse vhci vduse/control raw-gadget vtpmx"),
        {_MISC: (137, 203, 223, 239, 240)},
    ),
    DeniedNodes(
        "they manage the machine, its firmware, or processors and networks that others use",
        words("watchdog ipmi mei remoteproc switchtec infiniband_mad iLO"),
        r"watchdog\d*|ipmi.*|nvram|mei\d+|remoteproc\d+|switchtec\d+|hpilo/.*|teepriv\d+"
        r"|infiniband/(?:umad|issm)\d+",
        words("""
            watchdog watchdog0 ipmi0 nvram mei0 remoteproc0 switchtec0 hpilo/d0ccb0 teepriv0
            infiniband/umad0 infiniband/issm0
        """),
        {_MISC: (130, 144)},
    ),
    DeniedNodes(
        "they show the traffic of all USB devices",
        words("usbmon"),
        r"usbmon\d+",
        words("usbmon0"),
    ),
    DeniedNodes(
        "nodes of a device's own IOMMU group come by nodes: [{vfio: true}]",
        words("vfio vfio-dev iommu"),
        r"vfio/.*|iommu",
        words("vfio/vfio vfio/1 iommu"),
        {_MISC: (VFIO[1],)},
    ),
    DeniedNodes(
        "FPGAs are served in modes of the plugin, and management reaches all who use a card",
        words("fpga_manager fpga_region fpga_bridge dfl xclmgmt xrt_mgmt xrt_user_mgmt"),
        r"xclmgmt.*|xrt_mgmt.*|dfl-.*|intel-fpga-.*|fpga.*|dfl_.*",
        words("""
            xclmgmt0 dfl-fme.0 dfl-port.0 intel-fpga-fme.0 intel-fpga-port.0 fpga0
        """),
    ),
    DeniedNodes(
        "they show what people type, on every keyboard",
        words("input"),
        r"input/.*|psaux",
        words("input/event0 psaux"),
        {13: _ALL, _MISC: (1,)},
        setting="input",
    ),
    DeniedNodes(
        "keyboards and security keys are among them",
        words("hidraw"),
        r"hidraw\d+|usb/hiddev\d+",
        words("hidraw0 usb/hiddev0"),
        setting="hidraw",
    ),
    DeniedNodes(
        "the machine's keys and its proof of what it booted are in it",
        words("tpm tpmrm"),
        r"tpm(?:rm)?\d+",
        words("tpm0 tpmrm0"),
        {_MISC: (224,)},
        setting="tpm",
    ),
)

SETTINGS: Final = tuple(each.setting for each in DENIED if each.setting)
"""What the plugin's setting can allow, besides nodes of class `misc`."""

ALLOWED_MISC: Final = words("""
    fuse net/tun kvm hwrng vhost-net vhost-vsock udmabuf ntsync sgx_enclave sgx_provision sgx_vepc
    sev-guest tdx_guest nitro_enclaves infiniband/rdma_cm mali* rga rknpu
""")
"""Nodes of class `misc` that are handed out."""

_NAME: Final = re.compile(r"(?!\.)[A-Za-z0-9_.:@+-]+(?:/(?!\.)[A-Za-z0-9_.:@+-]+){0,4}")
_FIELD: Final = re.compile(r"^(MAJOR|MINOR|DEVNAME)=(.*)$", re.MULTILINE)


def is_name(text: str) -> bool:
    """Whether a text can be the name of a node below `/dev`."""
    return bool(_NAME.fullmatch(text)) and len(text) <= 128


def denied_examples() -> Iterator[str]:
    """Yield names of nodes that are not handed out."""
    for each in DENIED:
        yield from sorted(each.examples)


def check_allowed(word: str) -> str:
    """Why the plugin's setting can't allow a class or a node of class `misc`; empty if it can."""
    if word in SETTINGS:
        return ""
    if word.lower() in SETTINGS or not is_name(word):
        return f"{word!r:.60} is no name of a node: write {', '.join(SETTINGS)}, or such as rfkill"
    return denied_class(word) or denied_name(word)


def denied_class(name: str, allowed: Collection[str] = ()) -> str:
    """Why nodes of a class are not handed out; empty if they may be."""
    found = (each for each in DENIED if name in each.classes and each.setting not in allowed)
    return next((_refusal(f"of {name}", each) for each in found), "")


def denied_name(name: str, allowed: Collection[str] = ()) -> str:
    """Why no node of such a name is handed out; empty if it may be."""
    found = (each for each in DENIED if re.fullmatch(each.names, name))
    return next((_refusal("of this name", x) for x in found if x.setting not in allowed), "")


def denial(subsystem: str, number: Number | None, name: str, allowed: Collection[str] = ()) -> str:
    """Why a node is not handed out; empty if it may be. The subsystem is empty if unknown.

    `allowed` are words of the plugin's setting.
    """
    major, minor = number or (0, 0)
    of_number = [each for each in DENIED if minor in each.numbers.get(major, ())]
    denied = (each for each in of_number if each.setting not in allowed)
    return (
        denied_class(subsystem, allowed)
        or next((_refusal(f"{major}:{minor}", each) for each in denied), "")
        or denied_name(name, allowed)
        or ("" if of_number or _is_listed(subsystem, major, name, allowed) else _unlisted(name))
    )


def _refusal(what: str, of: DeniedNodes) -> str:
    if of.setting:
        return f"nodes {what} are handed out with --allow-nodes={of.setting} only: {of.why}"
    return f"nodes {what} are never handed out: {of.why}"


def _is_listed(subsystem: str, major: int, name: str, allowed: Collection[str]) -> bool:
    """Whether a node is none of class `misc`, or one that is handed out."""
    if subsystem != _MISC_CLASS and (subsystem or major != _MISC):
        return True
    return name in allowed or any(fnmatchcase(name, each) for each in ALLOWED_MISC)


def _unlisted(name: str) -> str:
    return (
        f"class misc has devices of all kinds, and this is none of those that are handed out:"
        f" --allow-nodes={name} allows it"
    )


def described_node(uevent: str) -> tuple[str, Number | None]:
    """The node's name below `/dev` and its number, as a device's `uevent` has them."""
    fields: dict[str, str] = dict(_FIELD.findall(uevent))
    major, minor = fields.get("MAJOR", ""), fields.get("MINOR", "")
    number = (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None
    return fields.get("DEVNAME", "").removeprefix("/dev/"), number


def exclusive_nodes(device: Device) -> tuple[DeviceNode, ...]:
    """The nodes that no container without the device may have."""
    # A region is called after its engine, and who has that can program it.
    engine = () if device.type else (DeviceNode(device.id),)
    return *(each for each in device.nodes if each.number != VFIO), *engine


def exclusive_paths(device: Device, host_root: str) -> frozenset[str]:
    """The paths of these on the host."""
    return frozenset[str]().union(*(each.host_paths(host_root) for each in exclusive_nodes(device)))


def check_node(
    found: FoundNode,
    *,
    permissions: str = "rw",
    is_vfio: bool = False,
    allowed: Collection[str] = (),
) -> DeviceNode | Problem:
    """The node that a container gets, or why it can't have it.

    `is_vfio` is for nodes of the device's own IOMMU group, `allowed` as for `denial`.
    """
    name, number, actual = found.name, found.number, found.actual
    if number is None or not is_name(name):
        shown = f": {quote(f'/dev/{name}')}" if name else ""
        return Problem("node-missing", f"sysfs and /dev have no device node of it{shown}")
    if found.target and not is_name(found.target):
        return Problem(
            "node-missing", f"/dev/{name} leads to no node below /dev: {found.target!r:.80}"
        )
    why = "" if is_vfio else denial(found.subsystem, number, name, allowed)
    of_target = "" if why or is_vfio else denied_name(found.target, allowed)
    if of_target:
        why = f"it leads to /dev/{found.target}, and {of_target}"
    if why:
        return Problem("node-denied", f"/dev/{name}: {why}")
    problem = found.problem
    if problem is None and actual is not None and actual != number:
        text = f"/dev/{name} is {actual[0]}:{actual[1]}, and the device is {number[0]}:{number[1]}"
        problem = Problem("node-other-number", text)
    return problem or DeviceNode(name, permissions, number, found.target)
