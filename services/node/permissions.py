"""Finds the permissions that this process lacks on its node, with consequence and remedy.

A plugin that is not root works if the permissions of the folders allow it. If they don't, each part
of it fails in its own words, again for each card or resource. This module checks all of them in one
place, as the system would for this user: the path, the missing permission, what doesn't work, and
what helps. It writes and opens nothing, and a missing file is no missing permission.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from services.devices.hardware.scan import CLASSES
from services.devices.hardware.sysfs import Sysfs
from services.devices.model import Card, Inventory, PluginMode, Problem
from services.kubelet.sockets import (
    checkpoint_file,
    plugins_folder,
    pod_resources_socket,
    registration_socket,
)
from services.programming.error_registers import clearing_file

READ: Final = os.R_OK
WRITE: Final = os.W_OK
SEARCH: Final = os.X_OK

_WORDS: Final = ((READ, "read", "r"), (WRITE, "write", "w"), (SEARCH, "search", "x"))
_UNREADABLE: Final = re.compile(r"(?P<file>\S+) of (?P<part>\S+) can't be read: Permission denied")
_NO_PROGRAMMING: Final = (
    "no region is programmed, containers only start on functions that are already there"
)

_LISTED: Final = 3
"""Paths of one kind that are named; the others are counted."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A permission that is missing.

    Args:
        path: The path.
        permission: What is missing: `write`, `read and search`, ….
        loss: What doesn't work without it.
        remedy: What helps.
        uid: The user of this process.
        gid: The group of this process.
    """

    path: str
    permission: str
    loss: str
    remedy: str
    uid: int = field(default_factory=os.geteuid)
    gid: int = field(default_factory=os.getegid)

    def __str__(self) -> str:
        who = f"user {self.uid}, group {self.gid}"
        return (
            f"{self.path}: no permission to {self.permission} ({who}): {self.loss}; {self.remedy}"
        )


@dataclass(frozen=True, slots=True)
class Needs:
    """What a plugin needs of its node.

    Args:
        mode: The node's mode.
        root: Folder below which `sys/` and `dev/` are.
        kubelet_dir: Holds `device-plugins/` and `pod-resources/`.
        pod_logs_dir: Where the folders of pods' logs are.
        cdi_dir: The folder of CDI files, if any is written.
        clear_errors: Whether errors of ports are cleared.
        serve: Whether the kubelet is served, or only looked at.
        state_dir: Where locks, records and approvals are, if regions are programmed.
        bitstreams: Where bitstreams are, if regions are programmed.
    """

    mode: PluginMode
    root: Path
    kubelet_dir: Path
    pod_logs_dir: Path
    cdi_dir: Path | None = None
    clear_errors: bool = True
    serve: bool = True
    state_dir: Path | None = None
    bitstreams: Path | None = None

    @property
    def programs(self) -> bool:
        """Whether regions are programmed, in this mode."""
        return self.mode is PluginMode.REGION and self.state_dir is not None


def missing(needs: Needs, inventory: Inventory) -> tuple[Missing, ...]:
    """Every permission that is missing, each path once; reads the system, so it is for a thread.

    Args:
        needs: What is needed.
        inventory: What the last scan found.
    """
    found: dict[str, Missing] = {}
    cards = () if needs.mode is PluginMode.UNITS else inventory.cards
    for each in (*_of_kubelet(needs), *_of_cards(needs, inventory, cards)):
        known = found.get(each.path)
        found[each.path] = _merged(known, each) if known else each
    return tuple(found.values())


def _merged(one: Missing, other: Missing) -> Missing:
    """What two uses of a path lack: a use that lacks nothing more adds what is lost."""
    more = other.permission not in one.permission
    wider = other if more and one.permission in other.permission else one
    loss = one.loss if other.loss in one.loss else f"{one.loss}; {other.loss}"
    return replace(wider, loss=loss)


def _of_kubelet(needs: Needs) -> Iterator[Missing]:
    wanted: list[tuple[Path, int, str]] = []
    if needs.serve:
        folder = plugins_folder(needs.kubelet_dir)
        wanted += [
            (folder, READ | WRITE | SEARCH, "no resource is offered to the kubelet"),
            (
                registration_socket(needs.kubelet_dir),
                WRITE,
                "no resource is registered with the kubelet",
            ),
        ]
    starts = "no container starts in mode region, " if needs.mode is PluginMode.REGION else ""
    clears = "errors of ports aren't cleared, " if needs.clear_errors else ""
    unknown = "init containers that have devices are unknown"
    wanted += [
        (checkpoint_file(needs.kubelet_dir), READ, f"{starts}{clears}{unknown}"),
        (
            needs.pod_logs_dir,
            READ | SEARCH,
            "pods in which only an init container has devices are unknown",
        ),
        (
            pod_resources_socket(needs.kubelet_dir),
            WRITE,
            f"{starts}{clears}it is unknown which containers have devices",
        ),
    ]
    if needs.cdi_dir is not None:
        folder = _nearest(needs.cdi_dir)
        wanted.append((folder, WRITE | SEARCH, f"no CDI file is written to {needs.cdi_dir}"))
    if needs.programs and needs.state_dir is not None:
        wanted.append((_nearest(needs.state_dir), READ | WRITE | SEARCH, _NO_PROGRAMMING))
    if needs.programs and needs.bitstreams is not None:
        wanted.append((needs.bitstreams, READ | SEARCH, _NO_PROGRAMMING))
    for path, mode, loss in wanted:
        yield from _lacks(path, mode, loss)


def _of_cards(needs: Needs, inventory: Inventory, cards: Iterable[Card]) -> Iterator[Missing]:
    if needs.mode is not PluginMode.UNITS:
        yield from _lacks(needs.root / "sys", READ | SEARCH, "no card is found")
    dev = needs.root / "dev"
    if cards:
        yield from _lacks(dev, SEARCH, "no device node can be looked at, all are unhealthy")
    if any(problem.reason == "class-unreadable" for problem in inventory.problems):
        for folder in CLASSES.values():
            path = needs.root / folder.lstrip("/")
            yield from _lacks(path, READ | SEARCH, "its cards aren't found")
    yield from _unreadable(needs, cards)
    if needs.programs:
        nodes = [dev / name for card in cards for name in _nodes(card)]
        yield from _few(
            [each for node in nodes for each in _lacks(node, READ | WRITE, _NO_PROGRAMMING)]
        )
    if needs.clear_errors and needs.serve:
        files = Sysfs(needs.root)
        firsts = [(card.driver, card.name, card.ports[0].name) for card in cards if card.ports]
        found = (clearing_file(files, *first) for first in firsts)
        paths = [needs.root / path.lstrip("/") for path in found if path]
        loss = "errors that a container leaves in a port stay, and the port unhealthy"
        yield from _few([each for path in paths for each in _lacks(path, WRITE, loss)])


def _unreadable(needs: Needs, cards: Iterable[Card]) -> Iterator[Missing]:
    """What the scan was not allowed to read, according to its problems."""
    found: list[Missing] = []
    for card in cards:
        folder = needs.root / CLASSES[card.driver].lstrip("/") / card.name
        for problem in _problems(card):
            if match := _UNREADABLE.fullmatch(problem.message):
                path = folder / match["part"] / match["file"]
                loss = f"the health of {match['part']} is unknown ({problem.reason})"
                found.append(Missing(str(path), "read", loss, _remedy(path, "r")))
    yield from _few(found)


def _nodes(card: Card) -> Iterator[str]:
    """The device nodes that programming opens."""
    if card.fme is not None:
        yield card.fme.node
    yield from (port.node for port in card.ports)


def _problems(card: Card) -> Iterator[Problem]:
    yield from card.problems
    if card.fme is not None:
        yield from card.fme.problems
    for port in card.ports:
        yield from port.problems


def _few(found: list[Missing]) -> Iterator[Missing]:
    """The first of many; the last one says how many more there are."""
    yield from found[: _LISTED - 1]
    rest = found[_LISTED - 1 :]
    if rest:
        last, more = rest[0], len(rest) - 1
        loss = f"{last.loss}; the same for {more} more" if more else last.loss
        yield Missing(last.path, last.permission, loss, last.remedy)


def _lacks(path: Path, mode: int, loss: str) -> Iterator[Missing]:
    """What this process lacks of a permission: of the path, or of a folder on the way there."""
    try:
        found = os.stat(path)  # noqa: PTH116 - as os.access below, which has no better name
    except PermissionError:
        closed = _closed(path)
        if closed is not None:
            remedy = _remedy(closed, "x")
            yield Missing(str(closed), "search", f"{path} can't be reached: {loss}", remedy)
        return
    except OSError:
        return
    lacking = [(word, letter) for bit, word, letter in _WORDS if mode & bit and not _may(path, bit)]
    if not lacking:
        return
    permission = " and ".join(word for word, _ in lacking)
    if stat.S_ISSOCK(found.st_mode):
        permission = "connect (which takes write)"
    elif "write" in permission and _read_only(path):
        yield Missing(str(path), f"{permission}, on a read-only file system", loss, "mount it rw")
        return
    yield Missing(str(path), permission, loss, _remedy(path, "".join(each for _, each in lacking)))


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=True)


def _read_only(path: Path) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _closed(path: Path) -> Path | None:
    """The first folder on the way to a path that may not be searched."""
    return next((each for each in reversed(path.parents) if not _may(each, SEARCH)), None)


def _nearest(path: Path) -> Path:
    """A path, or the nearest folder above it that exists."""
    for each in (path, *path.parents):
        try:
            os.lstat(each)
        except FileNotFoundError:
            continue
        except OSError:
            return path
        return each
    return path


def _remedy(path: Path, letters: str) -> str:
    """What gives a permission. Access lists don't outlive a socket, and sysfs has none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return "run as a user that may"
    owner = f"run as its owner, user {found.st_uid}"
    if stat.S_ISSOCK(found.st_mode) or stat.S_ISREG(found.st_mode):
        return owner
    return f"{owner}, or let user {os.geteuid()}: setfacl -m u:{os.geteuid()}:{letters} {path}"
