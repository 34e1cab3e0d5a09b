"""Every reason code of a `Problem`: what it means, its effect, and what to do about it.

To add a reason, add it here and make a `Problem` with its code where the fault is found. The
reference and the help of `--ignore-errors` are generated from these tables: after a change run
`make docs` and `make golden`. Codes are labels of metrics, so they never change.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from services.process.problem import Problem

OTHERWISE: Final = (
    "a rule under health of its device type has this reason: see which value it wants"
)
"""The advice for a code that is not in the table: types can't have others' reasons."""


class Effect(StrEnum):
    """The effect of a problem."""

    NODE = "no cards"
    """The node shows no cards, or not those of one driver or device type."""
    CARD = "card unhealthy"
    """The card can't be read: the devices that it had stay, unhealthy."""
    DEVICE = "unhealthy"
    """The device is unhealthy; if it never had a resource, it isn't offered at all."""
    LEFT_OUT = "not in CDI"
    """The device isn't described in the CDI file; it is offered all the same."""
    REMARK = "none"
    """It is reported, and makes nothing unhealthy."""


@dataclass(frozen=True, slots=True)
class Reason:
    """The meaning of a code."""

    meaning: str
    todo: str
    effect: Effect = Effect.DEVICE


_DEAD: Final = "check dmesg, then reset or reseat the card"
_ENTRY: Final = "check its entry under /sys/class and dmesg; unbind and bind its driver"
_STATIC: Final = "the static image isn't one with partial reconfiguration: flash another"
_PROGRAM: Final = (
    "program the port: accelbind fpga program PORT FILE; if that does not help, reset or reseat the"
    " card"
)
_NODE: Final = (
    "udev makes it when the driver loads: udevadm trigger; in a pod, mount the host's /dev"
)
_RENAME: Final = "a bug in the driver or in accelbind: the message says what can't be written"
_IDS: Final = {
    "afu-id": ("the port's afu_id", _PROGRAM),
    "interface-id": ("the engine's interface id", _STATIC),
}
_STATES: Final = {
    "missing": "has no file",
    "unreadable": "can't be read, or isn't a file",
    "empty": "is nothing but blanks or NULs",
    "all-f": "is all f, the driver's word for crashed firmware",
    "invalid": "is not 32 hex digits",
}
_CLEAR_PORT: Final = "accelbind fpga clear-errors PORT once it is unused; see what the workload did"
_CLEAR_ENGINE: Final = (
    "accelbind fpga info FME shows the bits; accelbind fpga clear-errors FME, and if they come"
    " back the card is broken"
)
_READ_ONLY: Final = (
    "accelbind fpga info FME shows the bits; they can't be cleared: see dmesg, then reset or reseat"
    " the card"
)
REGISTERS: Final = {
    "port-errors": ("the port's error register isn't 0", _CLEAR_PORT),
    "fme-errors": ("the engine's error register isn't 0", _CLEAR_ENGINE),
    "fme-catfatal-errors": (
        "the engine's register of catastrophic and fatal errors isn't 0",
        _READ_ONLY,
    ),
    "fme-nonfatal-errors": ("the engine's register of nonfatal errors isn't 0", _READ_ONLY),
}
"""Error registers that the drivers name, one bit per error: meaning and advice."""

FLAGS: Final = {
    "ap1-event": (
        "the port was in AFU power state 1 (AP1), which throttles it",
        "check the cooling and the load: accelbind fpga info PORT shows both",
    ),
    "ap2-event": (
        "the port was in AFU power state 2 (AP2), which throttles it further",
        "check the cooling and the load: accelbind fpga info PORT shows both",
    ),
    "overheated": ("the card reports that it is too hot", "check the cooling"),
}
"""Flags that the drivers name: meaning and advice."""


def _of_ids() -> Iterator[tuple[str, Reason]]:
    for stem, (what, todo) in _IDS.items():
        for state, clause in _STATES.items():
            yield f"{stem}-{state}", Reason(f"{what} {clause}", todo)


def _of_registers() -> Iterator[tuple[str, Reason]]:
    for stem, (meaning, todo) in (REGISTERS | FLAGS).items():
        yield stem, Reason(meaning, todo)
        yield (
            f"{stem}-unreadable",
            Reason(
                f"`{stem}` is unknown: its file can't be read; after an I/O error the device is"
                " unhealthy, since its card doesn't answer",
                "run it as root, or see dmesg after an I/O error",
                Effect.REMARK,
            ),
        )


REASONS: Final[Mapping[str, Reason]] = {
    "no-sysfs": Reason(
        "there is no /sys below --root", "name the host's root with --root", Effect.NODE
    ),
    "no-driver": Reason(
        "neither driver's class folder is there, and no device type serves the node",
        "modprobe dfl-pci (in the kernel) or intel-fpga-pci (OPAE), then look again",
        Effect.NODE,
    ),
    "no-cards": Reason(
        "a driver is loaded and lists no card with a port",
        "lspci -d ::1200 shows whether the card is there, dmesg whether the driver took it",
        Effect.NODE,
    ),
    "class-hung": Reason(
        "listing a driver's class folder hangs",
        "a driver hangs: dmesg; it may take a restart of the node",
        Effect.NODE,
    ),
    "class-unreadable": Reason(
        "a driver's class folder can't be listed", "run it as root", Effect.NODE
    ),
    "card-hung": Reason("reading the card hangs", _DEAD, Effect.CARD),
    "card-hung-in-driver": Reason(
        "a call into the driver, to program or reset a port, was given up and still hangs",
        _DEAD,
        Effect.CARD,
    ),
    "card-busy": Reason(
        "accelbind works on the card, as while its driver is rebound, and has not read it before",
        "none: it is read once the work has ended",
        Effect.CARD,
    ),
    "card-leaving": Reason(
        "accelbind fpga rebind is about to rebind the card's driver",
        "none: it is back once the driver is bound",
        Effect.CARD,
    ),
    "card-unbound": Reason(
        "accelbind has worked on the card, and no driver serves it now: rebinding its driver"
        " failed or was interrupted",
        "accelbind fpga rebind ADDRESS",
        Effect.NODE,
    ),
    "card-unread": Reason(
        "so many other reads hang that this card isn't read", "fix those that hang", Effect.CARD
    ),
    "card-unreadable": Reason("its folder can't be listed", _ENTRY, Effect.CARD),
    "card-dangling": Reason("its entry leads nowhere", _ENTRY, Effect.CARD),
    **dict(_of_ids()),
    "afu-id-missing": Reason(
        "the port has no afu_id: it reaches no AFU, so it isn't offered",
        "on an OFS card the AFUs are behind virtual functions: serve it in mode af or"
        " regiondevel (docs/cards.md)",
    ),
    "port-disabled": Reason(
        "the driver keeps the port disabled (its afu_id gives EBUSY): after a failed programming"
        " or reset it does so for ever",
        "accelbind fpga rebind PORT, once nobody has a part of its card; a plugin in mode region"
        " that may write /sys does it by itself",
    ),
    "port-without-driver": Reason(
        "no driver serves the port: Linux (seen with 6.1 and 6.12) gives it none when it is"
        " assigned after a release",
        "accelbind fpga rebind PORT, once nobody has a part of its card; a plugin in mode region"
        " that may write /sys does it by itself",
    ),
    **dict(_of_registers()),
    "node-missing": Reason("its device node does not exist", _NODE),
    "node-unreadable": Reason("its device node can't be read", _NODE),
    "node-not-a-device": Reason("something else stands where its device node should", _NODE),
    "no-fme": Reason(
        "no engine, neither on its card nor on the physical function",
        "give the port back to the physical function: accelbind fpga assign",
    ),
    "no-port": Reason(
        "the card has an engine and no port",
        "enable the port, or take back released ones: accelbind fpga assign",
    ),
    "programming-not-supported": Reason(
        "mode region, and an OFS card, whose functions are behind virtual functions",
        "serve the card in mode af or regiondevel",
    ),
    "no-virtual-functions": Reason(
        "an OFS card has no virtual functions, and its functions are behind them",
        "write their number to the card's sriov_numvfs, and bind them to vfio-pci",
    ),
    "function-unreadable": Reason(
        "BAR0 of a virtual function, which says what is behind it, can't be read",
        "run it as root; with Secure Boot the kernel forbids it (lockdown); else see dmesg",
    ),
    "function-invalid": Reason(
        "BAR0 of a virtual function doesn't start with an AFU's header and GUID",
        "program the card; all f means that the function is off or disabled",
    ),
    "function-in-use": Reason(
        "a container had the virtual function when accelbind started, so it isn't read",
        "none: it is healthy again when that container has ended",
    ),
    "port-released": Reason(
        "mode region, and the port is released to a virtual function: the in-tree driver can't"
        " program it",
        "set sriov_numvfs to 0, then give the port back: accelbind fpga assign",
    ),
    "programming-unfinished": Reason(
        "mode af or bdf, and programming of the port has begun and has not succeeded",
        "program it: accelbind fpga program PORT FILE",
    ),
    "no-pci-address": Reason(
        "mode bdf, and the port is on no PCI function", "serve such a card in another mode"
    ),
    "duplicate-name": Reason(
        "another device has the same id, or the same name in DRA: `<type>-<id>`",
        "rename one of the two device types; two drivers that use the same names: unload one",
    ),
    "claimed-by-fpga": Reason(
        "a device type matches a device that an FPGA driver serves",
        "narrow the type's match, or serve no FPGAs there",
    ),
    "claimed-twice": Reason(
        "two device types match the device, or a part of it",
        "narrow the match of one of the types that the message names",
    ),
    "recovering": Reason(
        "it reads well again, but not often enough yet (--healthy-after)",
        "wait: after some good scans in a row it is healthy",
    ),
    "held-as-other-resource": Reason(
        "a container has it, or a part of it, under another resource or id, or was given its"
        " device node with another device: a port was reprogrammed, the node's mode or device types"
        " changed, or devices came back in another order, meanwhile",
        "end that pod (the message or accelbind devices names it); it is healthy again within a"
        " minute",
    ),
    "gone": Reason(
        "a container or a claim has it, and the node no longer has it: its card or its driver has"
        " gone, or another mode or device type offered it",
        "bring the device back, or end that pod (accelbind devices names it)",
    ),
    "leftover-claim": Reason(
        "a DRA claim has it that the kubelet does not know, as after the loss of its state",
        "none: it is given back 5 minutes after nothing on the node and in the API server uses that"
        " claim any more (docs/dra.md); sooner: accelbind dra release UID",
    ),
    "interface-ids-differ": Reason(
        "the engine's regions name different interface ids; the first counts",
        "flash an image whose regions agree",
        Effect.REMARK,
    ),
    "device-types-unreadable": Reason(
        "the folder of device types can't be read; those that were read stay in use",
        "see --device-types",
        Effect.NODE,
    ),
    "device-type-invalid": Reason(
        "a device type can't be used; the message names file, line and field",
        "accelbind check device-types DIR shows the same before it is deployed",
        Effect.NODE,
    ),
    "not-matched": Reason(
        "a device type names the device, but its driver or its attributes don't fit",
        "bind the driver that the message names, or change the type",
    ),
    "device-hung": Reason("reading a device of a device type hangs", _DEAD),
    "attribute-unreadable": Reason(
        "a health rule needs a file that is missing or can't be read",
        "see whether the driver has it: ls below the device's folder in /sys",
    ),
    "attribute-invalid": Reason(
        "a health rule needs a file that doesn't hold what the device type says",
        "correct the attribute's type",
    ),
    "node-denied": Reason(
        "a device type leads to a node that is not handed out; the message says why",
        "allow it with --allow-nodes if the message says so; else name another class",
    ),
    "node-path-twice": Reason(
        "a device has several nodes, and its type makes them one path in the container",
        "name a kind or an entry beside as, or use each: node",
    ),
    "node-other-number": Reason(
        "what stands at the place of its device node is another device", _NODE
    ),
    "vfio-no-group": Reason(
        "the function has no IOMMU group, or one that isolates nothing",
        "enable the IOMMU in the firmware and for the kernel (intel_iommu=on, amd_iommu=on)",
    ),
    "vfio-not-bound": Reason(
        "a function of the group isn't bound to vfio-pci", "driverctl set-override ADDRESS vfio-pci"
    ),
    "vfio-group-shared": Reason(
        "other functions are in the IOMMU group, and a container would get them too",
        "put the card into a slot with ACS",
    ),
    "vfio-not-viable": Reason(
        "another function of the IOMMU group has a driver of the host",
        "bind it to vfio-pci too, or unbind it",
    ),
    "cdi-duplicate": Reason("two devices have one name", _RENAME, Effect.LEFT_OUT),
    "cdi-name": Reason("its id is not a valid CDI name", _RENAME, Effect.LEFT_OUT),
    "cdi-node": Reason("a container can't have one of its nodes", _RENAME, Effect.LEFT_OUT),
}
"""All codes, in the order of the reference."""


def remedy(reason: str) -> str:
    """The advice for a problem with this code."""
    known = REASONS.get(reason)
    return known.todo if known else OTHERWISE


def advised(problem: Problem) -> str:
    """A problem of a node, and the advice for it, as one text."""
    return f"{problem.text}: {remedy(problem.code)}"
