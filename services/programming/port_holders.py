"""Who has a device node open: for the sentence that says why a port is refused.

Whether somebody has a port open, its driver knows best: it refuses a second opener that wants to be
alone (O_EXCL). Who that is, `/proc` tells, of the processes that can be seen from here: all of
them on the host, those of its own in a pod without `hostPID`. It is also asked where the driver
allows the opening: a process that sees another one with the port open doesn't reconfigure it.
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
    """The processes, beside this one, that have what a descriptor has open.

    Args:
        descriptor: Open on the node.
        node: Its path.
        proc: Where processes are.
    """
    wanted = {_identity(os.stat(f"/proc/self/fd/{descriptor}"))}  # noqa: PTH116 - as others' below
    with contextlib.suppress(OSError):
        wanted.add(_identity(node.stat()))
    return tuple(_search(wanted, proc))


def who_has(node: Path, proc: Path = PROC) -> tuple[Holder, ...]:
    """As `holders_of`, of a node that can't be opened."""
    try:
        return tuple(_search({_identity(node.stat())}, proc))
    except OSError:
        return ()


def named(holders: tuple[Holder, ...]) -> str:
    """Processes, for a sentence; empty if there is none."""
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
        if int(name) != own and _has(f"{proc}/{name}/fd", wanted):
            yield Holder(int(name), _command(proc / name / "comm"))


def _has(folder: str, wanted: set[_Identity]) -> bool:
    """Whether a process has it open; of one that is gone or not ours to look at, no."""
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
