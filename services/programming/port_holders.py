"""Which processes have a device node open, to say who keeps a port busy.

A driver knows whether somebody has a port open: it refuses an opener that wants to be alone
(O_EXCL). `/proc` says who that is, among the processes that can be seen from here: all of them on
the host, its own in a pod without `hostPID`. `/proc` is also read where the driver allows the
opening, so that a port that another process has is never reprogrammed.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
MAX_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has a node open."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})" if self.name else f"process {self.pid}"


def holders_of(descriptor: int, node: Path, proc: Path = PROC) -> tuple[Holder, ...]:
    """The processes, beside this one, that have open what this one has.

    Args:
        descriptor: This process' descriptor of the node.
        node: Path of the node.
        proc: Where processes are.
    """
    wanted = {_identity(os.stat(f"/proc/self/fd/{descriptor}"))}  # noqa: PTH116 - as others' below
    with contextlib.suppress(OSError):
        wanted.add(_identity(node.stat()))
    return tuple(_search(wanted, proc))


def who_has(node: Path, proc: Path = PROC) -> tuple[Holder, ...]:
    """The processes, beside this one, that have a node open which this one has not opened."""
    try:
        return tuple(_search({_identity(node.stat())}, proc))
    except OSError:
        return ()


def named(holders: tuple[Holder, ...]) -> str:
    """Processes, for a sentence; empty if there are none."""
    shown = ", ".join(map(str, holders[:MAX_NAMED]))
    return shown if len(holders) <= MAX_NAMED else f"{shown} and {len(holders) - MAX_NAMED} more"


_Identity = tuple[str, int, int]


def _identity(found: os.stat_result) -> _Identity:
    """What two paths of one device have in common: its number; of another file, its inode."""
    if stat.S_ISCHR(found.st_mode):
        return "device", found.st_rdev, 0
    return "file", found.st_dev, found.st_ino


def _search(wanted: set[_Identity], proc: Path) -> Iterator[Holder]:
    own = os.getpid()
    try:
        names = os.listdir(proc)  # noqa: PTH208 - names are all that is needed, fast
    except OSError:
        return
    for name in sorted(filter(str.isdigit, names), key=int):
        if int(name) != own and _has_open(f"{proc}/{name}/fd", wanted):
            yield Holder(int(name), _command(proc / name / "comm"))


def _has_open(folder: str, wanted: set[_Identity]) -> bool:
    """Whether a process has it open; False if the process is gone or may not be inspected."""
    try:
        descriptors = os.listdir(folder)  # noqa: PTH208 - the same
    except OSError:
        return False
    for each in descriptors:
        try:
            if _identity(os.stat(f"{folder}/{each}")) in wanted:  # noqa: PTH116 - plain paths, fast
                return True
        except OSError:
            continue
    return False


def _command(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()[:32]
    except OSError:
        return ""
