"""OFS cards (N6000, N6001, C6100) as devices: what their virtual functions are in each mode.

In mode `af` a device is a virtual function, its resource named for the AFU behind it. In mode
`regiondevel` it is the engine with all virtual functions.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from services.devices.model import NO_AFU, Card, Device, DeviceNode, PluginMode, VirtualFunction
from services.names import CRASHED, DOMAIN, function_name, region_name
from services.process.problem import Problem

PHYSICAL: Final = "8086:bcce"
VIRTUAL: Final = "8086:bccf"
SHELLS: Final = frozenset(
    {
        "8086:1770",  # N6000
        "8086:1771",  # N6001
        "8086:17d4",  # C6100
        "8086:138d",  # D5005 with an OFS shell
        *("8086:0000", "8086:0001"),  # reference shells
    }
)
"""Subsystem ids (`vendor:device`) of OFS cards (opae-sdk, `opae.cfg`)."""

_AFU: Final = 1
"""The type of a feature header, its bits 63 to 60 (Documentation/fpga/dfl.rst)."""
_ZEROS: Final = "0" * 32
IN_USE: Final = "function-in-use"


def is_ofs(ids: str, subsystem: str) -> bool:
    """Whether a PCI function may have an AFU's header in BAR0."""
    return ids in (PHYSICAL, VIRTUAL) and subsystem in SHELLS


def afu_id(address: str, words: Sequence[int]) -> str | Problem:
    """The AFU behind a function, from the first three words of its BAR0: header and GUID."""
    header, low, high = words
    guid = f"{high:016x}{low:016x}"
    if header >> 60 == _AFU and guid not in (_ZEROS, CRASHED):
        return guid
    shown = " ".join(f"{word:016x}" for word in words)
    text = f"BAR0 of {address} doesn't start with the header and GUID of an AFU: {shown}"
    return Problem("function-invalid", text)


def in_use(address: str) -> Problem:
    """Why the AFU behind a function is unknown after a restart."""
    text = f"which AFU is behind {address} can't be read while a container has it"
    return Problem(IN_USE, text)


def is_in_use(function: VirtualFunction) -> bool:
    """Whether the AFU behind a function is unknown because a container has it."""
    return any(each.code == IN_USE for each in function.problems)


def ofs_devices(
    card: Card, functions: tuple[VirtualFunction, ...], mode: PluginMode
) -> Iterator[Device]:
    """Yield the devices of a card in a mode for regions or functions."""
    if mode.programs:
        # What was programmed through the engine shows only behind the virtual functions.
        text = f"the functions of {card.address} are behind its virtual functions"
        yield card.unoffered(_engine(card), Problem("programming-not-supported", text))
    elif not functions:
        text = (
            f"{card.address} has no virtual functions: write their number to"
            f" /sys/bus/pci/devices/{card.address}/sriov_numvfs and bind them to vfio-pci"
        )
        yield card.unoffered(_engine(card), Problem("no-virtual-functions", text))
    elif mode.hands_out_engines:
        yield _region(card, functions)
    else:
        yield from (_function(card, each) for each in functions)


def _function(card: Card, function: VirtualFunction) -> Device:
    interface = card.fme.interface_id if card.fme else ""
    is_known = interface and function.afu_id
    return Device(
        id=function.id,
        resource=f"{DOMAIN}/{function_name(interface, function.afu_id)}" if is_known else "",
        reasons=(*_card_problems(card), *function.problems),
        nodes=function.nodes,
        numa_node=function.pci.numa_node,
        pci_addresses=(function.pci.address,),
        card=card.name,
        interface_id=interface,
        afu_ids=(function.afu_id,),
        claims=frozenset({_engine(card)}),
    )


def _region(card: Card, functions: Sequence[VirtualFunction]) -> Device:
    interface = card.fme.interface_id if card.fme else ""
    of_functions = [problem for each in functions for problem in each.problems]
    reasons = (*_card_problems(card), *of_functions)
    nodes = [node for each in functions for node in each.nodes]
    nodes += [DeviceNode(card.fme.name)] if card.fme else []
    return Device(
        id=_engine(card),
        resource="" if of_functions or not interface else f"{DOMAIN}/{region_name(interface)}",
        reasons=reasons,
        nodes=tuple(dict.fromkeys(nodes)),
        numa_node=card.pci.numa_node if card.pci else None,
        pci_addresses=(*(each.pci.address for each in functions), card.address),
        card=card.name,
        interface_id=interface,
        afu_ids=tuple(each.afu_id for each in functions),
    )


def _engine(card: Card) -> str:
    return card.fme.name if card.fme else card.name


def _card_problems(card: Card) -> Iterator[Problem]:
    """Yield what counts for all functions; that a port reaches no AFU is as it should be."""
    yield from card.fme.problems if card.fme else ()
    for port in card.ports:
        yield from (each for each in port.problems if each.code != NO_AFU)
