"""The faults of a synthetic card: each known failure of real ones, by name.

A fault is a place (a file, link or node of a card) and what replaces it.
"""

import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Self

Ruin = Callable[[Path], None]
"""Makes what stands in a file's place, at a path where nothing is."""


def text(content: str | bytes) -> Ruin:
    data = content.encode() if isinstance(content, str) else content

    def write(path: Path) -> None:
        path.write_bytes(data)

    return write


def link(target: str) -> Ruin:
    return lambda path: path.symlink_to(target)


def _gone(path: Path) -> None:
    """Nothing at all."""


_AFU_ID = "{entry}/{port}/afu_id"
_INTERFACE_ID = "{entry}/{interface_file}"
_PORT_ERRORS = "{entry}/{port}/errors/errors"

_BLANKS = text(" " * 4096)
_ALL_F = text("f" * 32 + "\n")
_SHORT = text("d8424dc4\n")
_BINARY = text(b"\xff\xfe\x80" + bytes(range(1, 30)))
_NOWHERE = link("../nowhere/at/all")


class Fault(StrEnum):
    """A failure that can be switched on and off; the first word says where it is."""

    path: str
    """Its place below the root, with the names of `Function.places` in braces."""
    ruin: Ruin
    """What stands there instead."""

    def __new__(cls, value: str, path: str = "", ruin: Ruin = _gone) -> Self:
        fault = str.__new__(cls, value)
        fault._value_, fault.path, fault.ruin = value, path, ruin
        return fault

    AFU_MISSING = "afu-missing", _AFU_ID, _gone
    AFU_EMPTY = "afu-empty", _AFU_ID, text("")
    AFU_BLANKS = "afu-blanks", _AFU_ID, _BLANKS
    AFU_NULS = "afu-nuls", _AFU_ID, text(b"\0" * 4096)
    AFU_ALL_F = "afu-all-f", _AFU_ID, _ALL_F
    AFU_SHORT = "afu-short", _AFU_ID, _SHORT
    AFU_BINARY = "afu-binary", _AFU_ID, _BINARY
    AFU_ENDLESS = "afu-endless", _AFU_ID, text("d" * (8 << 20))
    AFU_FOLDER = "afu-folder", _AFU_ID, Path.mkdir
    AFU_FIFO = "afu-fifo", _AFU_ID, os.mkfifo
    AFU_LOOP = "afu-loop", _AFU_ID, link("afu_id")
    INTERFACE_MISSING = "interface-missing", _INTERFACE_ID, _gone
    INTERFACE_EMPTY = "interface-empty", _INTERFACE_ID, text("")
    INTERFACE_BLANKS = "interface-blanks", _INTERFACE_ID, _BLANKS
    INTERFACE_ALL_F = "interface-all-f", _INTERFACE_ID, _ALL_F
    INTERFACE_SHORT = "interface-short", _INTERFACE_ID, _SHORT
    INTERFACE_BINARY = "interface-binary", _INTERFACE_ID, _BINARY
    INTERFACE_FOLDER = "interface-folder", _INTERFACE_ID, Path.mkdir
    FME_MISSING = "fme-missing", "{entry}/{fme}", _gone
    FME_NODE_MISSING = "fme-node-missing", "dev/{fme}", _gone
    FME_NODE_FOLDER = "fme-node-folder", "dev/{fme}", Path.mkdir
    PORT_NODE_MISSING = "port-node-missing", "dev/{port}", _gone
    PORT_NODE_FOLDER = "port-node-folder", "dev/{port}", Path.mkdir
    PORT_NODE_DANGLING = "port-node-dangling", "dev/{port}", _NOWHERE
    PORT_ERRORS = "port-errors", _PORT_ERRORS, text("0x40\n")
    PORT_ERRORS_GARBAGE = "port-errors-garbage", _PORT_ERRORS, text("many\n")
    PORT_ERRORS_MISSING = "port-errors-missing", _PORT_ERRORS, _gone
    PORT_ID_GARBAGE = "port-id-garbage", "{entry}/{port}/id", text("first\n")
    AP1_EVENT = "ap1-event", "{entry}/{port}/ap1_event", text("1\n")
    AP2_EVENT = "ap2-event", "{entry}/{port}/ap2_event", text("0x1\n")
    FME_ERRORS = "fme-errors", "{entry}/{fme}/{errors_file}", text("0x2\n")
    CATFATAL_ERRORS = "catfatal-errors", "{entry}/{fme}/errors/catfatal_errors", text("0x800\n")
    NONFATAL_ERRORS = "nonfatal-errors", "{entry}/{fme}/errors/nonfatal_errors", text("0x10\n")
    OVERHEATED = "overheated", "{entry}/{fme}/{heat_file}", text("1\n")
    ENTRY_DANGLING = "entry-dangling", "{link}", _NOWHERE
    ENTRY_LOOP = "entry-loop", "{link}", link("loop")
    ENTRY_FILE = "entry-file", "{link}", text("")
    DEVICE_LINK_MISSING = "device-link-missing", "{entry}/device", _gone
    DEVICE_LINK_DANGLING = "device-link-dangling", "{entry}/device", _NOWHERE
    NUMA_MISSING = "numa-missing", "{function}/numa_node", _gone
    NUMA_UNKNOWN = "numa-unknown", "{function}/numa_node", text("-1\n")
