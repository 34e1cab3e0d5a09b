"""Remembering across restarts what was offered: a small file near the plugin's sockets.

It is about what this kubelet was told, and lies where the plugin may write in any case. Read once
before the first look at the cards, written when what it says has changed. Without it (it can't be
written, it is no memory) a device that is broken at the start isn't offered until it is well; that
is said once and holds up nothing.
"""

import asyncio
import contextlib
import os
import stat
from pathlib import Path
from typing import Final

import structlog

from services.devices.model import PluginMode
from services.devices.resources import AdvertisedResources, OfferMemory
from services.node.offer import MAX_BYTES, decode, encode, offered
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError
from services.process.files import replace_file

FILE: Final = "accelbind/offered.json"
"""In the kubelet's folder of device plugins, in one of our own: a kubelet that starts deletes every
file there but its checkpoint, and leaves folders alone (`pkg/kubelet/cm/devicemanager/manager.go`).
"""

SECONDS: Final = 2.0
"""For reading or writing it; a disk that hangs holds up the first look for no longer."""

_MODE: Final = 0o600

log = structlog.get_logger(room="plugin")


class Recall:
    """What is remembered of what is offered in one mode.

    Args:
        folder: The kubelet's folder of device plugins.
        mode: The mode.
        calls: Makes the calls that may hang.
    """

    def __init__(self, folder: Path, mode: PluginMode, calls: BlockingCalls) -> None:
        self.former: frozenset[str] = frozenset()
        """The resources that a predecessor offered, in whatever mode; known once loaded."""
        self._path = folder / FILE
        self._mode = mode
        self._calls = calls
        self._kept = b""
        self._memory: OfferMemory | None = None
        self._content = b""
        self._due = asyncio.Event()
        self._trouble = ""

    async def load(self) -> OfferMemory:
        """What a predecessor offered, in whatever mode; nothing where nobody can tell."""
        try:
            content = await self._calls.run(
                "state files", self._read, timeout=SECONDS, what=f"reading {self._path}"
            )
        except (OSError, HardwareError) as error:
            self._say(f"{self._path} can't be read: {_reason(error)}")
            return OfferMemory(self._mode)
        if not content:
            return OfferMemory(self._mode)
        memory = decode(content)
        if memory is None:
            self._say(f"{self._path} is no memory of what was offered, and will be replaced")
            return OfferMemory(self._mode)
        self._kept, self.former = content, offered(memory)
        return memory

    def take(self, tree: AdvertisedResources) -> None:
        """Takes what the node offers now."""
        if tree.memory != self._memory:
            self._memory, self._content = tree.memory, encode(tree.memory)
        if self._content != self._kept or not os.path.lexists(self._path):
            self._due.set()

    async def run(self) -> None:
        """Writes whenever something is due, until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            await self._keep(self._content)

    async def _keep(self, content: bytes) -> None:
        try:
            await self._calls.run(
                "state files",
                lambda: self._write(content),
                timeout=SECONDS,
                what=f"writing {self._path}",
            )
        except FileNotFoundError:
            return  # there is no kubelet yet, and so no folder
        except (OSError, HardwareError) as error:
            self._say(f"{self._path} can't be written: {_reason(error)}")
            return
        self._kept, self._trouble = content, ""

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.warning(
                "what is offered is remembered no longer than this process lasts", reason=trouble
            )
        self._trouble = trouble

    def _read(self) -> bytes:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags)
        except FileNotFoundError:
            return b""
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError("it is no file")
            return file.read(MAX_BYTES + 1)

    def _write(self, content: bytes) -> None:
        with contextlib.suppress(FileExistsError):
            self._path.parent.mkdir(mode=0o755)
        replace_file(self._path, content, mode=_MODE)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
