"""Approvals in a file, so that a plugin that was replaced knows what its predecessor allowed.

Only for the time in which the API server is away: see `services.domain.approvals`. The file is for
its owner alone, since what stands in it may start. A file that can't be read counts for nothing,
one that can't be written is said once; approvals then last as long as the process.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

import structlog

from plugin.worker import Worker
from services.atomic import replace_file
from services.domain.approvals import (
    MAX_BYTES,
    Approval,
    Approvals,
    BrokenApprovals,
    decode,
)
from services.domain.errors import HardwareError
from services.domain.startup import Candidate

SECONDS: Final = 5.0
"""For reading or writing the file; what takes longer is given up."""

_MODE: Final = 0o600

log = structlog.get_logger(room="plugin")


class ApprovalFile:
    """The approvals of this node's containers.

    Args:
        path: Where they are kept.
        worker: Where to read and write.
    """

    def __init__(self, path: Path, worker: Worker) -> None:
        self._path = path
        self._worker = worker
        self._approvals: Approvals | None = None
        self._reading = asyncio.Lock()
        self._trouble = ""

    async def find(
        self, candidate: Candidate, resource: str, devices: Collection[str]
    ) -> Approval | None:
        """The approval of a container for exactly these devices, None if there is none."""
        return (await self._known()).find(candidate, resource, devices)

    async def add(self, approvals: Iterable[Approval], *, living: Collection[str]) -> None:
        """Keeps approvals.

        Args:
            approvals: The new ones.
            living: UIDs of the pods that the kubelet has; those of others go.
        """
        before = await self._known()
        now = before.of_pods(living).with_(approvals)
        if now == before:
            return
        self._approvals = now
        await self._do(lambda: self._write(now.encode()), "written")

    async def _known(self) -> Approvals:
        async with self._reading:  # several may start at once
            if self._approvals is None:
                self._approvals = await self._do(self._read, "read") or Approvals()
            return self._approvals

    async def _do(self, call: Callable[[], Approvals | None], what: str) -> Approvals | None:
        try:
            found = await self._worker.run(call, seconds=SECONDS, what=f"approvals in {self._path}")
        except (OSError, HardwareError, BrokenApprovals) as error:
            reason = f"{self._path} can't be {what}: {getattr(error, 'strerror', None) or error}"
            if reason != self._trouble:
                log.warning(
                    "approvals last no longer than this process: after a restart while the API"
                    " server is away, containers can't start again",
                    reason=reason,
                    do="let the plugin write to --state-dir, and nobody else",
                )
            self._trouble = reason
            return None
        self._trouble = ""
        return found

    def _read(self) -> Approvals | None:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise BrokenApprovals("somebody else may write to it")
            return decode(file.read(MAX_BYTES))

    def _write(self, content: bytes) -> None:
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace_file(self._path, content, mode=_MODE)
