"""Functions of OFS cards, which are behind virtual functions of the card.

The port of such a card is connected to no AFU (`Next_AFU` in its header is NULL), so it has no
`afu_id`. Instead each virtual function has one AFU, with its header at the start of BAR0
("multiple VFs per PR slot", the series for OFS on linux-fpga, 2022; OPAE's `opae_vfio.c`).
Whoever sets up the node makes them and binds them to vfio-pci, never this process.
"""

from typing import Final

from services.devices.hardware.drivers import DFL, Numbered
from services.devices.hardware.pci import (
    address_in,
    group_nodes,
    read_function,
    read_group,
    read_ids,
)
from services.devices.hardware.sysfs import Sysfs
from services.devices.model import DeviceNode, VirtualFunction
from services.devices.nodes import check_node
from services.devices.ofs import PHYSICAL, SHELLS, VIRTUAL
from services.devices.vfio import group_problem, shared_problem
from services.process.problem import Problem

_VIRTUAL_FUNCTIONS: Final = Numbered("virtfn")


def read_functions(files: Sysfs, folder: str) -> tuple[VirtualFunction, ...] | None:
    """The virtual functions of a card, by number; None if it is no OFS card.

    `folder` is that of its physical function.
    """
    shell = read_ids(files, folder, "subsystem_")
    if read_ids(files, folder) != PHYSICAL or shell not in SHELLS:
        return None
    names = _VIRTUAL_FUNCTIONS.among(files.names_if_listable(folder))
    functions = (_read_function(files, files.resolve(f"{folder}/{name}") or "") for name in names)
    return tuple(each for each in functions if each is not None)


def engine_of(files: Sysfs, function: str) -> str:
    """The name of the management engine of a virtual function's card; empty if it has none."""
    regions = f"{files.resolve(f'{function}/physfn')}/fpga_region"
    for region in files.names_if_listable(regions):
        engine = next(iter(DFL.fme.among(files.names_if_listable(f"{regions}/{region}"))), "")
        if engine:
            return engine
    return ""


def _read_function(files: Sysfs, folder: str) -> VirtualFunction | None:
    """Read a virtual function; None if it is none of such a card, or gone by now."""
    address, last = address_in(folder)
    if last != folder or read_ids(files, folder) != VIRTUAL:
        return None
    inode, group = files.inode(folder), read_group(files, folder)
    problem = group_problem(group, (address,)) or shared_problem(group, address)
    members = [] if problem else group_nodes(files, group.number)
    nodes = [problem, *(check_node(each, is_vfio=True) for each in members)]
    return VirtualFunction(
        read_function(files, address, folder),
        f"{folder}/resource0",
        inode,
        nodes=tuple(each for each in nodes if isinstance(each, DeviceNode)),
        problems=tuple(each for each in nodes if isinstance(each, Problem)),
    )
