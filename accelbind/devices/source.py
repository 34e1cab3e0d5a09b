"""The devices of this node: of its running plugin, or found in files."""

import asyncio
import contextlib
import http.client
import os
import socket
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self

import msgspec

from accelbind.flags import require_folder
from plugin.dra.book import FOLDER as CLAIMS
from plugin.dra.book import ClaimBook
from plugin.settings import PluginSettings
from services.containers.holder_source import HolderSnapshot
from services.devices.dra import DRIVER
from services.devices.hardware.scan import Scanner
from services.devices.hardware.sysfs import Sysfs
from services.devices.model import Inventory
from services.devices.reasons import advised
from services.devices.types.discover import SysTree
from services.devices.types.load import load_types
from services.devices.types.misses import find_misses
from services.kubelet.sockets import MAX_SOCKET_PATH, PLUGIN_SOCKET, dra_socket, plugins_folder
from services.node.ledger import Ledger, step
from services.node.reading import WorldReader, holder_source, rules_of
from services.node.table import Table, rows
from services.process.blocking import BlockingCalls
from services.process.errors import ExternalFailure, HardwareError
from services.process.json import UNREADABLE
from services.process.settings import dashed
from services.process.text import plain

MAX_ANSWER: Final = 32 * 1024 * 1024
ANSWER_SECONDS: Final = 4.0
"""Time-out of each step; the plugin itself asks the kubelet for at most two seconds."""
CONNECT_SECONDS: Final = 2.0

FILES: Final = "files"
"""The source of a table that was read without a plugin."""
_COMPARED: Final = ("root", "kubelet_dir", "mode")
"""Settings that a running plugin may have with other values than were given."""
_ALL: Final = frozenset({"::", "0.0.0.0"})  # noqa: S104 - a process that listens on all addresses


class NoAnswer(ExternalFailure):
    """Nothing answers on a plain port, or not what should."""


@dataclass(frozen=True, slots=True)
class PlainPort:
    """Where a running plugin answers."""

    host: str
    port: int

    @classmethod
    def of(cls, settings: PluginSettings) -> Self:
        """The port of a plugin with these settings."""
        host = settings.metrics_host
        return cls("localhost" if host in _ALL else host, settings.metrics_port)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of the answer to a GET.

        Raises:
            NoAnswer: There is none, or it is too long.
        """
        # http.client knows no proxies: one of the environment would not reach this node's ports.
        connection = http.client.HTTPConnection(self.host, self.port, timeout=ANSWER_SECONDS)
        with contextlib.closing(connection):
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                text = answer.read(MAX_ANSWER + 1)
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                raise NoAnswer(plain(reason)) from error
        if len(text) > MAX_ANSWER:
            raise NoAnswer(f"the answer is longer than {MAX_ANSWER} bytes")
        return answer.status, text

    def devices(self) -> tuple[int, Table]:
        """Status and devices of the plugin."""
        status, text = self.get("/devices")
        try:
            return status, msgspec.json.decode(text, type=Table)
        except UNREADABLE as error:
            raise NoAnswer(f"what answers on {self} is not a plugin ({status})") from error


def served_folder(kubelet_dir: Path) -> Path | None:
    """The folder in which a plugin or DRA driver serves the kubelet; None if none does."""
    sockets = [*plugins_folder(kubelet_dir).glob("*.sock"), dra_socket(kubelet_dir, DRIVER)]
    ours = (each for each in sockets if PLUGIN_SOCKET.fullmatch(each.name) or each is sockets[-1])
    return next((each.parent for each in ours if _is_served(each)), None)


def _is_served(path: Path) -> bool:
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:  # nobody can serve there
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(CONNECT_SECONDS)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError, NotADirectoryError):
            return False  # a plugin that was killed leaves its sockets behind
        except OSError:  # this user may not ask it, or it is too busy to accept
            return True
    return True


@dataclass(frozen=True, slots=True)
class FoundDevices:
    """The cards and devices of a node at one moment."""

    holders: HolderSnapshot
    ledger: Ledger

    @property
    def inventory(self) -> Inventory:
        """The cards, and what is wrong with the node."""
        return self.ledger.inventory or Inventory()


class NodeDevices:
    """Finds the devices of a node, as often as it is asked."""

    def __init__(self, settings: PluginSettings) -> None:
        calls = BlockingCalls()
        self._holders = holder_source(settings, calls)
        self._reader = WorldReader(
            settings,
            settings.mode,
            calls,
            scanner=Scanner(settings.root, calls),
            holders=self._holders,
        )
        rules = rules_of(settings, settings.mode, settings.units)
        self._ledger = Ledger(replace(rules, good_scans=1))  # the health of now

    def find(self) -> FoundDevices:
        """The devices now.

        Raises:
            HardwareError: Nothing can be found out about the cards.
        """
        return asyncio.run(self._find())

    async def _find(self) -> FoundDevices:
        holders, world = await self._holders.snapshot(), await self._reader.read()
        if world.cards is None:
            raise HardwareError(world.error)
        self._ledger = step(self._ledger, world, time.monotonic())
        return FoundDevices(holders, self._ledger)


class DeviceSource:
    """Reads a node's devices, from the running plugin or, always with `files`, from files."""

    def __init__(self, settings: PluginSettings, given: Collection[str], *, files: bool) -> None:
        self._settings = settings
        self._given = given
        self._files = files
        self._node = NodeDevices(settings)

    def read(self) -> Table:
        """The devices now."""
        # The running plugin knows best: its mode, what it sent to the kubelet, and what devices
        # were before they broke.
        try:
            table = self._from_files("") if self._files else self.from_plugin()
        except NoAnswer as error:
            table = self._from_files(f"{error}; so this is from the files, with the health of now")
        if (types := self._settings.device_types) is not None:
            misses = find_misses(SysTree(Sysfs(self._settings.root)), load_types(types).types)
            problems = (*table.problems, *misses)
            table = msgspec.structs.replace(table, problems=problems)
        return table

    def from_plugin(self) -> Table:
        """The devices of the running plugin. Raises NoAnswer if it has none for us."""
        port = PlainPort.of(self._settings)
        try:
            status, table = port.devices()
        except NoAnswer as error:
            raise NoAnswer(f"no plugin answers on {port} ({error})") from error
        if status != HTTPStatus.OK:
            why = "; ".join(plain(each, 300) for each in table.problems) or str(status)
            raise NoAnswer(f"the plugin on {port} has no devices yet: {why}")
        for name in _COMPARED:
            value = str(getattr(table, name))
            if name in self._given and str(getattr(self._settings, name)) != value:
                raise NoAnswer(f"the plugin on {port} has --{dashed(name)} {plain(value)}")
        return table

    def _from_files(self, note: str) -> Table:
        settings = self._settings
        if settings.mode.has_cards or settings.device_types is not None:
            require_folder(settings.root)
        if settings.device_types is not None:
            require_folder(settings.device_types, "--device-types")
        now = self._node.find()
        held, claims = now.holders.holders, ClaimBook(settings.state_dir / CLAIMS)
        return settings.table(
            settings.mode,
            FILES,
            rows(now.ledger.offer, claims.holders(held)),
            (
                *filter(None, [note, now.ledger.error]),
                *map(advised, now.inventory.problems),
                *now.holders.problems,
                *claims.unreadable(),
            ),
        )
