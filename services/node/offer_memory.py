"""Remembers across restarts what was offered and in which mode: a file near the plugin's sockets.

It belongs to this kubelet, and is in a folder that the plugin may write in any case. It is read
once before the first scan, and written when its content has changed. Without it (it can't be
written or parsed) a device that is broken at the start isn't offered until it is healthy; this is
logged once and delays nothing.
"""

import asyncio
import contextlib
import os
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from services.devices.model import PluginMode
from services.devices.resources import AdvertisedResources, OfferMemory
from services.node.offer import MAX_BYTES, decode, encode, offered
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError
from services.process.files import open_regular, replace_file

FILE: Final = "accelbind/offer.json"
"""In a folder of our own in the kubelet's folder of device plugins: a kubelet that starts deletes
every file there but its checkpoint, and leaves folders alone
(`pkg/kubelet/cm/devicemanager/manager.go`)."""

SECONDS: Final = 2.0
"""For reading or writing it; a disk that hangs delays the first scan by no more."""

log = structlog.get_logger(component="plugin")


class OfferMemoryFile:
    """Remembers what is offered in one mode."""

    def __init__(self, folder: Path, mode: PluginMode, calls: BlockingCalls) -> None:
        self.former: frozenset[str] = frozenset()
        """The resources that the process before offered, in any mode; known once loaded."""
        self._path = folder / FILE
        self._mode = mode
        self._calls = calls
        self._kept = b""
        self._content = b""
        self._due = asyncio.Event()
        self._error = ""

    async def load(self) -> OfferMemory:
        """What the process before offered, in any mode; empty if it is unknown."""
        try:
            content = await self._calls.run(
                "state files",
                lambda: _read(self._path),
                timeout=SECONDS,
                what=f"reading {self._path}",
            )
        except FileNotFoundError:
            return OfferMemory(self._mode)
        except (OSError, HardwareError) as error:
            self._log_error("read", error)
            return OfferMemory(self._mode)
        memory = decode(content)
        if memory is None:
            self._log_error("parsed", ValueError("it will be replaced"))
            return OfferMemory(self._mode)
        self._kept, self.former = content, offered(memory)
        return memory

    def on_scan(self, advertised: AdvertisedResources) -> None:
        """Remember what the node offers now."""
        self._content = encode(advertised.memory)
        if self._content != self._kept or not os.path.lexists(self._path):
            self._due.set()

    async def write_forever(self) -> None:
        """Write whenever the content has changed, until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            content = self._content
            try:
                await self._calls.run(
                    "state files",
                    partial(self._write, content),
                    timeout=SECONDS,
                    what=f"writing {self._path}",
                )
            except FileNotFoundError:
                continue  # there is no kubelet yet, so there is no folder
            except (OSError, HardwareError) as error:
                self._log_error("written", error)
            else:
                self._kept, self._error = content, ""

    def _log_error(self, done: str, error: Exception) -> None:
        reason = f"{self._path} can't be {done}: {getattr(error, 'strerror', None) or error}"
        if reason != self._error:
            log.warning("list of offered resources is kept in memory only", reason=reason)
        self._error = reason

    def _write(self, content: bytes) -> None:
        with contextlib.suppress(FileExistsError):
            self._path.parent.mkdir(mode=0o755)
        replace_file(self._path, content, mode=0o600)


def _read(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read(MAX_BYTES + 1)
