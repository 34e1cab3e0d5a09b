"""Sources of a device's nodes, as device types name them."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal

from msgspec import Meta, field

from services.devices.nodes import SETTINGS, denied_class, is_name
from services.devices.types.values import Glob, Strict, VariableName, Word
from services.mappings.accelerator import is_reserved_variable
from services.process.text import quote

_OF_RUNTIMES: Final = frozenset(
    (
        *("null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts", "shm"),
        *("mqueue", "fd", "stdin", "stdout", "stderr", "core"),
    )
)
"""What container runtimes have in `/dev` (opencontainers/runtime-spec, `config-linux.md`)."""


class NodeSource(Strict, frozen=True):
    """Where a device's nodes come from: exactly one of class, own and vfio."""

    class_: Word | None = field(default=None, name="class")
    """Nodes of this class that the device has."""
    kind: Word | None = None
    """How their names start, before a number: `render`."""
    entry: Annotated[tuple[Glob, ...], Meta(max_length=16)] = ()
    """The names of their entries in the class: `xdma*_h2c_*`."""
    own: bool = False
    """The node of the matched class entry, USB device or path itself."""
    vfio: bool = False
    """The nodes of the device's IOMMU group."""
    optional: bool = False
    """Whether a device without it is healthy."""
    permissions: Literal["r", "w", "rw"] = "rw"
    """The rights of a container."""
    as_: str = field(default="", name="as")
    """The path in the container, where it is to be another than on the host: `/dev/modem0`."""
    env: VariableName | None = None
    """A variable for the container with the path that the node has there."""

    def names(self, entry: str) -> bool:
        """Whether it is about a class entry: `renderD128` is of kind render."""
        is_kind = self.kind is None or re.fullmatch(rf"{re.escape(self.kind)}[A-Z]*\d*", entry)
        return bool(is_kind) and (
            not self.entry or any(fnmatchcase(entry, each) for each in self.entry)
        )

    def _problems(self) -> Iterator[str]:
        if [self.class_ is not None, self.own, self.vfio].count(True) != 1:
            yield " needs exactly one of class, own and vfio"
        if not self.class_:
            yield from (
                f".{each}: it needs class" for each in ("kind", "entry") if getattr(self, each)
            )
        if self.as_ and (why := _place_problem(self.as_)):
            yield f".as: {quote(self.as_)} {why}"
        if self.as_ and self.vfio:
            yield ".as: VFIO finds its nodes by their names only"
        if self.env and is_reserved_variable(self.env):
            yield f".env: {self.env} is reserved"
        if self.vfio and self.optional:
            yield ".optional: a group is nothing without its node"
        if why := denied_class(self.class_ or "", SETTINGS):
            yield f".class: {why}"


def _place_problem(path: str) -> str:
    """Why a node can't have a path in a container; empty if it can."""
    name = path.removeprefix("/dev/")
    if name == path or not is_name(name):
        return "is not /dev/ and the name of a device node"
    if name.partition("/")[0] in _OF_RUNTIMES:
        return "has a meaning of its own in every container"
    return ""


def shares_path(one: str, other: str) -> bool:
    """Whether no container can have nodes at both paths: one is the other, or below it."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
