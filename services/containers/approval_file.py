"""Approvals in a file, so that they outlive the plugin's process.

They only count while the API server can't be reached: see `services.containers.approvals`. Only the
owner may write the file, since containers that are listed in it may start. A file that can't be
read is ignored. One that can't be written is logged once; approvals then last as long as the
process. If reading hangs, the file is read again later, and not overwritten before.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final, TypeVar

import structlog

from services.containers.approvals import (
    MAX_BYTES,
    Approvals,
    BrokenApprovals,
    StartApproval,
    decode,
)
from services.containers.identity import ContainerIdentity
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError
from services.process.files import replace_file

SECONDS: Final = 5.0
"""For reading or writing the file; what takes longer is given up."""

_MODE: Final = 0o600

T = TypeVar("T")

log = structlog.get_logger(room="plugin")


class ApprovalFile:
    """The approvals of this node's containers.

    Args:
        path: Where they are kept.
        calls: Makes the calls that may hang.
    """

    def __init__(self, path: Path, calls: BlockingCalls) -> None:
        self._path = path
        self._calls = calls
        self._approvals = Approvals()
        self._written: Approvals | None = None
        """The file's content; None before it was read."""
        self._reading = asyncio.Lock()
        self._error = ""

    async def find(
        self, container: ContainerIdentity, resource: str, devices: Collection[str]
    ) -> StartApproval | None:
        """The approval of a container for exactly these devices, None if there is none."""
        return (await self._known()).find(container, resource, devices)

    async def pods(self) -> frozenset[str]:
        """UIDs of the pods that have approvals now."""
        return (await self._known()).pods

    async def add(self, approvals: Iterable[StartApproval], *, gone: Collection[str]) -> None:
        """Keeps approvals.

        Args:
            approvals: The new ones.
            gone: UIDs of pods that have ended; their approvals are dropped. Such a pod had an
                approval first, and was missing from the kubelet's checkpoint afterwards. A pod that
                was only missing from an earlier checkpoint may have started meanwhile.
        """
        before = await self._known()
        now = self._approvals = before.without_pods(gone).with_(approvals)
        if self._written is not None and now != self._written:
            await self._write(now)

    async def _known(self) -> Approvals:
        async with self._reading:  # several may start at once
            if self._written is None:
                self._written = await self._read_file()
                self._approvals = (self._written or Approvals()).with_(self._approvals)
            return self._approvals

    async def _read_file(self) -> Approvals | None:
        """The file's content; None if reading hangs, so that it isn't overwritten unread."""
        try:
            found = await self._run(self._read)
        except HardwareError as error:
            self._log_error("read", error)
            return None
        except (OSError, BrokenApprovals) as error:
            self._log_error("read", error)
            return Approvals()
        self._error = ""
        return found

    async def _write(self, approvals: Approvals) -> None:
        content = approvals.encode()
        try:
            await self._run(lambda: self._replace(content))
        except (OSError, HardwareError) as error:
            self._log_error("written", error)
            return
        self._error = ""
        self._written = approvals

    async def _run(self, call: Callable[[], T]) -> T:
        return await self._calls.run(
            "state files", call, timeout=SECONDS, what=f"approvals in {self._path}"
        )

    def _log_error(self, done: str, error: Exception) -> None:
        """Logs an error once for as long as it stays the same."""
        reason = f"{self._path} can't be {done}: {getattr(error, 'strerror', None) or error}"
        if reason != self._error:
            log.warning(
                "approvals are lost when this process ends: after a restart while the API server"
                " can't be reached, containers can't start again",
                reason=reason,
                do="let the plugin write to --state-dir, and no other user",
            )
        self._error = reason

    def _read(self) -> Approvals:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags)
        except FileNotFoundError:
            return Approvals()
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise BrokenApprovals("another user may write to it")
            return decode(file.read(MAX_BYTES))

    def _replace(self, content: bytes) -> None:
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace_file(self._path, content, mode=_MODE)
