"""The faults of a synthetic card: each known failure of real ones, by name.

A fault is a place (a file, link or node of a card) and what replaces it.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Fault(StrEnum):
    """A failure that can be switched on and off; the first word says where it is."""

    AFU_MISSING = "afu-missing"
    AFU_EMPTY = "afu-empty"
    AFU_BLANKS = "afu-blanks"
    AFU_NULS = "afu-nuls"
    AFU_ALL_F = "afu-all-f"
    AFU_SHORT = "afu-short"
    AFU_BINARY = "afu-binary"
    AFU_ENDLESS = "afu-endless"
    AFU_FOLDER = "afu-folder"
    AFU_FIFO = "afu-fifo"
    AFU_LOOP = "afu-loop"
    INTERFACE_MISSING = "interface-missing"
    INTERFACE_EMPTY = "interface-empty"
    INTERFACE_BLANKS = "interface-blanks"
    INTERFACE_ALL_F = "interface-all-f"
    INTERFACE_SHORT = "interface-short"
    INTERFACE_BINARY = "interface-binary"
    INTERFACE_FOLDER = "interface-folder"
    FME_MISSING = "fme-missing"
    FME_NODE_MISSING = "fme-node-missing"
    FME_NODE_FOLDER = "fme-node-folder"
    PORT_NODE_MISSING = "port-node-missing"
    PORT_NODE_FOLDER = "port-node-folder"
    PORT_NODE_DANGLING = "port-node-dangling"
    PORT_ERRORS = "port-errors"
    PORT_ERRORS_GARBAGE = "port-errors-garbage"
    PORT_ERRORS_MISSING = "port-errors-missing"
    PORT_ID_GARBAGE = "port-id-garbage"
    AP1_EVENT = "ap1-event"
    AP2_EVENT = "ap2-event"
    FME_ERRORS = "fme-errors"
    CATFATAL_ERRORS = "catfatal-errors"
    NONFATAL_ERRORS = "nonfatal-errors"
    OVERHEATED = "overheated"
    ENTRY_DANGLING = "entry-dangling"
    ENTRY_LOOP = "entry-loop"
    ENTRY_FILE = "entry-file"
    DEVICE_LINK_MISSING = "device-link-missing"
    DEVICE_LINK_DANGLING = "device-link-dangling"
    NUMA_MISSING = "numa-missing"
    NUMA_UNKNOWN = "numa-unknown"


Ruin = Callable[[Path], None]
"""Makes what stands in a file's place, at a path where nothing is."""


def text(content: str | bytes) -> Ruin:
    """A file with this content."""
    data = content.encode() if isinstance(content, str) else content
    return lambda path: _write(path, data)


def link(target: str) -> Ruin:
    """A link to somewhere."""
    return lambda path: path.symlink_to(target)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _folder(path: Path) -> None:
    path.mkdir()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _gone(path: Path) -> None:
    """Nothing at all."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What a fault does.

    Args:
        path: What it is about, below the root, with the names of `Rack` in braces.
        ruin: What stands there instead.
    """

    path: str
    ruin: Ruin


_AFU_ID = "{entry}/{port}/afu_id"
_INTERFACE_ID = "{entry}/{interface_file}"
_PORT_ERRORS = "{entry}/{port}/errors/errors"

_BLANKS = text(" " * 4096)
_ALL_F = text("f" * 32 + "\n")
_SHORT = text("d8424dc4\n")
_BINARY = text(b"\xff\xfe\x80" + bytes(range(1, 30)))
_NOWHERE = link("../nowhere/at/all")

DAMAGE: Mapping[Fault, Damage] = {
    Fault.AFU_MISSING: Damage(_AFU_ID, _gone),
    Fault.AFU_EMPTY: Damage(_AFU_ID, text("")),
    Fault.AFU_BLANKS: Damage(_AFU_ID, _BLANKS),
    Fault.AFU_NULS: Damage(_AFU_ID, text(b"\0" * 4096)),
    Fault.AFU_ALL_F: Damage(_AFU_ID, _ALL_F),
    Fault.AFU_SHORT: Damage(_AFU_ID, _SHORT),
    Fault.AFU_BINARY: Damage(_AFU_ID, _BINARY),
    Fault.AFU_ENDLESS: Damage(_AFU_ID, text("d" * (8 << 20))),
    Fault.AFU_FOLDER: Damage(_AFU_ID, _folder),
    Fault.AFU_FIFO: Damage(_AFU_ID, _fifo),
    Fault.AFU_LOOP: Damage(_AFU_ID, link("afu_id")),
    Fault.INTERFACE_MISSING: Damage(_INTERFACE_ID, _gone),
    Fault.INTERFACE_EMPTY: Damage(_INTERFACE_ID, text("")),
    Fault.INTERFACE_BLANKS: Damage(_INTERFACE_ID, _BLANKS),
    Fault.INTERFACE_ALL_F: Damage(_INTERFACE_ID, _ALL_F),
    Fault.INTERFACE_SHORT: Damage(_INTERFACE_ID, _SHORT),
    Fault.INTERFACE_BINARY: Damage(_INTERFACE_ID, _BINARY),
    Fault.INTERFACE_FOLDER: Damage(_INTERFACE_ID, _folder),
    Fault.FME_MISSING: Damage("{entry}/{fme}", _gone),
    Fault.FME_NODE_MISSING: Damage("dev/{fme}", _gone),
    Fault.FME_NODE_FOLDER: Damage("dev/{fme}", _folder),
    Fault.PORT_NODE_MISSING: Damage("dev/{port}", _gone),
    Fault.PORT_NODE_FOLDER: Damage("dev/{port}", _folder),
    Fault.PORT_NODE_DANGLING: Damage("dev/{port}", _NOWHERE),
    Fault.PORT_ERRORS: Damage(_PORT_ERRORS, text("0x40\n")),
    Fault.PORT_ERRORS_GARBAGE: Damage(_PORT_ERRORS, text("many\n")),
    Fault.PORT_ERRORS_MISSING: Damage(_PORT_ERRORS, _gone),
    Fault.PORT_ID_GARBAGE: Damage("{entry}/{port}/id", text("first\n")),
    Fault.AP1_EVENT: Damage("{entry}/{port}/ap1_event", text("1\n")),
    Fault.AP2_EVENT: Damage("{entry}/{port}/ap2_event", text("0x1\n")),
    Fault.FME_ERRORS: Damage("{entry}/{fme}/{errors_file}", text("0x2\n")),
    Fault.CATFATAL_ERRORS: Damage("{entry}/{fme}/errors/catfatal_errors", text("0x800\n")),
    Fault.NONFATAL_ERRORS: Damage("{entry}/{fme}/errors/nonfatal_errors", text("0x10\n")),
    Fault.OVERHEATED: Damage("{entry}/{fme}/{heat_file}", text("1\n")),
    Fault.ENTRY_DANGLING: Damage("{link}", _NOWHERE),
    Fault.ENTRY_LOOP: Damage("{link}", lambda path: path.symlink_to("loop")),
    Fault.ENTRY_FILE: Damage("{link}", text("")),
    Fault.DEVICE_LINK_MISSING: Damage("{entry}/device", _gone),
    Fault.DEVICE_LINK_DANGLING: Damage("{entry}/device", _NOWHERE),
    Fault.NUMA_MISSING: Damage("{function}/numa_node", _gone),
    Fault.NUMA_UNKNOWN: Damage("{function}/numa_node", text("-1\n")),
}
"""What each fault does."""
