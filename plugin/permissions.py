"""Finds the permissions that this process lacks on its node, and what doesn't work without them.

A plugin that is not root works where the permissions of the folders allow it. Where they don't,
each part of it fails in its own words, again for each card or resource: here all is said once.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import structlog

from plugin.settings import PluginSettings, Programming
from services.devices.hardware.scan import DRIVERS
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

_WORDS: Final = ((READ, "read"), (WRITE, "write"), (SEARCH, "search"))
_NO_PROGRAMMING: Final = (
    "no region is programmed, containers only start on functions that are already there"
)
_NO_AFU: Final = "the function behind it is unknown, and not offered"
_UNKNOWN: Final = "some containers with devices are unknown, and in mode region none starts"
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

    def __str__(self) -> str:
        who = f"user {os.geteuid()}, group {os.getegid()}"
        return f"{self.path}: no permission to {self.permission} ({who}): {self.loss}"


def missing(
    settings: PluginSettings, mode: PluginMode, inventory: Inventory
) -> tuple[Missing, ...]:
    """Every permission that is missing in a mode; reads the system, so it is for a thread."""
    return (
        *_of_kubelet(settings),
        *_of_folders(settings, mode),
        *(_of_cards(settings, mode, inventory.cards) if mode.has_cards else ()),
    )


def _of_kubelet(settings: PluginSettings) -> Iterator[Missing]:
    folder = settings.kubelet_dir
    offered = "no resource is offered to the kubelet"
    yield from _lacks(plugins_folder(folder), READ | WRITE | SEARCH, offered)
    registered = "no resource is registered with the kubelet"
    yield from _lacks(registration_socket(folder), WRITE, registered)
    yield from _lacks(checkpoint_file(folder), READ, _UNKNOWN)
    yield from _lacks(settings.pod_logs_dir, READ | SEARCH, _UNKNOWN)
    yield from _lacks(pod_resources_socket(folder), WRITE, _UNKNOWN)


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
    settings: PluginSettings, mode: PluginMode, cards: tuple[Card, ...]
) -> Iterator[Missing]:
    root, dev = settings.root, settings.root / "dev"
    yield from _lacks(root / "sys", READ | SEARCH, "no card is found")
    for driver in DRIVERS:
        yield from _lacks(root / driver.folder.lstrip("/"), READ | SEARCH, "its cards aren't found")
    if cards:
        yield from _lacks(dev, SEARCH, "no device node can be looked at, all are unhealthy")
    if _programs(settings, mode):
        nodes = (each for card in cards for each in (card.fme, *card.ports) if each is not None)
        yield from _first((dev / each.name for each in nodes), READ | WRITE, _NO_PROGRAMMING)
    if mode is PluginMode.AF:
        bars = (function.bar for card in cards for function in card.functions or ())
        yield from _first((root / bar.lstrip("/") for bar in bars), READ, _NO_AFU)
    if settings.clear_errors:
        files = Sysfs(root)
        names = (clearing_file(files, card, card.ports[0]) for card in cards if card.ports)
        paths = (root / path.lstrip("/") for path in names if path)
        yield from _first(paths, WRITE, _ERRORS_STAY)


def _first(paths: Iterable[Path], mode: int, loss: str) -> Iterator[Missing]:
    """The first of many paths of one kind that lacks a permission."""
    yield from islice((each for path in paths for each in _lacks(path, mode, loss)), 1)


def _lacks(path: Path, mode: int, loss: str) -> Iterator[Missing]:
    try:
        os.stat(path)  # noqa: PTH116 - as os.access below, which has no better name
    except PermissionError:
        pass  # a folder above it is closed, and os.access finds that all is lacking
    except OSError:
        return  # a file that is missing is no missing permission
    # Nothing is opened: a container can't open a port that we have open, and a close resets it.
    lacking = [
        word for bit, word in _WORDS if mode & bit and not os.access(path, bit, effective_ids=True)
    ]
    if lacking:
        yield Missing(str(path), " and ".join(lacking), loss)


def _nearest(path: Path) -> Path:
    """A path, or the nearest folder above it that exists."""
    return next(each for each in (path, *path.parents) if os.path.lexists(each))


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
        await state.scanned.wait()  # which finds the cards
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
                uid=os.geteuid(),
                gid=os.getegid(),
            )
