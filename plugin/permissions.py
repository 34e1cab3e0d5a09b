"""Finds the permissions that this process lacks on its node, with consequence and remedy.

A plugin that is not root works if the permissions of the folders allow it. If they don't, each part
of it fails in its own words, again for each card or resource. This module checks all of them in one
place, as the system would for this user: the path, the missing permission, what doesn't work, and
what helps. It writes and opens nothing, and a missing file is no missing permission.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from plugin.settings import PluginSettings, Programming
from services.devices.hardware.scan import CLASSES
from services.devices.hardware.sysfs import Sysfs
from services.devices.model import Card, Inventory, PluginMode
from services.kubelet.sockets import (
    checkpoint_file,
    plugins_folder,
    pod_resources_socket,
    registration_socket,
)
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError
from services.programming.error_registers import clearing_file

DEADLINE_SECONDS: Final = 10.0

READ: Final = os.R_OK
WRITE: Final = os.W_OK
SEARCH: Final = os.X_OK

_WORDS: Final = ((READ, "read", "r"), (WRITE, "write", "w"), (SEARCH, "search", "x"))
_NO_PROGRAMMING: Final = (
    "no region is programmed, containers only start on functions that are already there"
)
_NO_AFU: Final = "the function behind it is unknown, and not offered"
_ERRORS_STAY: Final = "errors that a container leaves in a port stay, and the port unhealthy"

log = structlog.get_logger(component="plugin")


@dataclass(frozen=True, slots=True)
class Missing:
    """A permission that is missing."""

    path: str
    permission: str
    """What is missing: `write`, `read and search`, …."""
    loss: str
    """What doesn't work without it."""
    remedy: str

    def __str__(self) -> str:
        who = f"user {os.geteuid()}, group {os.getegid()}"
        return (
            f"{self.path}: no permission to {self.permission} ({who}): {self.loss}; {self.remedy}"
        )


def missing(
    settings: PluginSettings, mode: PluginMode, inventory: Inventory, *, serves: bool = True
) -> tuple[Missing, ...]:
    """Every permission that is missing, each path once; reads the system, so it is for a thread.

    `mode` is the node's. Without `serves`, the node is only looked at.
    """
    by_path: dict[str, Missing] = {}
    for each in (
        *_of_kubelet(settings, mode, serves=serves),
        *(_of_folders(settings, mode) if serves else ()),
        *(_of_cards(settings, mode, inventory.cards, serves=serves) if mode.has_cards else ()),
    ):
        known = by_path.get(each.path, each)
        loss = known.loss if each.loss in known.loss else f"{known.loss}; {each.loss}"
        by_path[each.path] = replace(known, loss=loss)
    return tuple(by_path.values())


def _of_kubelet(settings: PluginSettings, mode: PluginMode, *, serves: bool) -> Iterator[Missing]:
    folder = settings.kubelet_dir
    if serves:
        offered = "no resource is offered to the kubelet"
        yield from _lacks(plugins_folder(folder), READ | WRITE | SEARCH, offered)
        registered = "no resource is registered with the kubelet"
        yield from _lacks(registration_socket(folder), WRITE, registered)
    starts = "no container starts in mode region, " if mode is PluginMode.REGION else ""
    has_ports = serves and settings.clear_errors and mode.has_cards
    clears = "errors of ports aren't cleared, " if has_ports else ""
    unknown = f"{starts}{clears}init containers that have devices are unknown"
    yield from _lacks(checkpoint_file(folder), READ, unknown)
    unknown = f"{starts}pods in which only an init container has devices are unknown"
    yield from _lacks(settings.pod_logs_dir, READ | SEARCH, unknown)
    unknown = f"{starts}{clears}it is unknown which containers have devices"
    yield from _lacks(pod_resources_socket(folder), WRITE, unknown)


def _of_folders(settings: PluginSettings, mode: PluginMode) -> Iterator[Missing]:
    if settings.cdi_dir is not None:
        loss = f"no CDI file is written to {settings.cdi_dir}"
        yield from _lacks(_nearest(settings.cdi_dir), WRITE | SEARCH, loss)
    if _programs(settings, mode):
        yield from _lacks(_nearest(settings.state_dir), READ | WRITE | SEARCH, _NO_PROGRAMMING)
        yield from _lacks(settings.bitstreams, READ | SEARCH, _NO_PROGRAMMING)


def _programs(settings: PluginSettings, mode: PluginMode) -> bool:
    return mode is PluginMode.REGION and settings.programming is not Programming.NONE


def _of_cards(
    settings: PluginSettings, mode: PluginMode, cards: tuple[Card, ...], *, serves: bool
) -> Iterator[Missing]:
    root, dev = settings.root, settings.root / "dev"
    yield from _lacks(root / "sys", READ | SEARCH, "no card is found")
    for folder in CLASSES.values():
        yield from _lacks(root / folder.lstrip("/"), READ | SEARCH, "its cards aren't found")
    if cards:
        yield from _lacks(dev, SEARCH, "no device node can be looked at, all are unhealthy")
    if serves and _programs(settings, mode):
        nodes = [dev / name for card in cards for name in _nodes(card)]
        yield from _first(nodes, READ | WRITE, _NO_PROGRAMMING)
    if mode is PluginMode.AF:
        bars = [function.bar for card in cards for function in card.functions or ()]
        yield from _first([root / bar.lstrip("/") for bar in bars], READ, _NO_AFU)
    if serves and settings.clear_errors:
        files = Sysfs(root)
        firsts = [(card.driver, card.name, card.ports[0].name) for card in cards if card.ports]
        names = (clearing_file(files, *first) for first in firsts)
        paths = [root / path.lstrip("/") for path in names if path]
        yield from _first(paths, WRITE, _ERRORS_STAY)


def _nodes(card: Card) -> Iterator[str]:
    """The device nodes that programming opens."""
    if card.fme is not None:
        yield card.fme.name
    yield from (port.name for port in card.ports)


def _first(paths: list[Path], mode: int, loss: str) -> Iterator[Missing]:
    """The first of many paths of one kind that lacks a permission, and how many others do."""
    lacking = [each for path in paths for each in _lacks(path, mode, loss)]
    if lacking:
        more = f"; the same for {len(lacking) - 1} more" if len(lacking) > 1 else ""
        yield replace(lacking[0], loss=f"{lacking[0].loss}{more}")


def _lacks(path: Path, mode: int, loss: str) -> Iterator[Missing]:
    """What this process lacks of a permission: of the path, or of a folder on the way there."""
    try:
        status = os.stat(path)  # noqa: PTH116 - as os.access below, which has no better name
    except PermissionError:
        closed = next((each for each in reversed(path.parents) if not _may(each, SEARCH)), None)
        if closed is not None:
            loss = f"{path} can't be reached: {loss}"
            yield Missing(str(closed), "search", loss, _remedy(closed, "x"))
        return
    except OSError:
        return
    lacking = [(word, letter) for bit, word, letter in _WORDS if mode & bit and not _may(path, bit)]
    if not lacking:
        return
    permission = " and ".join(word for word, _ in lacking)
    if stat.S_ISSOCK(status.st_mode):
        permission = "connect (which takes write)"
    yield Missing(str(path), permission, loss, _remedy(path, "".join(each for _, each in lacking)))


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=True)


def _nearest(path: Path) -> Path:
    """A path, or the nearest folder above it that exists."""
    try:
        return next(each for each in (path, *path.parents) if each.exists())
    except OSError:
        return path


def _remedy(path: Path, letters: str) -> str:
    """What gives a permission. Access lists don't outlive a socket, and sysfs has none."""
    try:
        status, flags = os.stat(path), os.statvfs(path).f_flag  # noqa: PTH116 - as above
    except OSError:
        return "run as a user that may"
    if "w" in letters and flags & os.ST_RDONLY and not stat.S_ISSOCK(status.st_mode):
        return "mount it rw: its file system is read-only"
    owner = f"run as its owner, user {status.st_uid}"
    if stat.S_ISSOCK(status.st_mode) or stat.S_ISREG(status.st_mode):
        return owner
    return f"{owner}, or let user {os.geteuid()}: setfacl -m u:{os.geteuid()}:{letters} {path}"


class PermissionCheck:
    """Checks what this process may not do, once the cards are known, and logs it."""

    def __init__(self, settings: PluginSettings, state: NodeState, calls: BlockingCalls) -> None:
        self.missing: tuple[Missing, ...] = ()
        """What was missing; nothing before the check."""
        self._settings = settings
        self._state = state
        self._calls = calls

    async def check_once(self) -> None:
        """Check, after the first scan."""
        state = self._state
        await state.scanned.wait()
        try:
            self.missing = await self._calls.run(
                "permissions",
                partial(missing, self._settings, state.mode, state.inventory or Inventory()),
                timeout=DEADLINE_SECONDS,
                what="checking which permissions are missing",
            )
        except HardwareError as error:
            log.warning("permissions not checked", reason=str(error))
        for each in self.missing:
            log.warning(
                "permission missing",
                path=each.path,
                permission=each.permission,
                loss=each.loss,
                remedy=each.remedy,
                uid=os.geteuid(),
                gid=os.getegid(),
            )
