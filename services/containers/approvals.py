"""What containers were allowed to have, so that they can start again without the API server.

A container that was approved once may start again with the same devices and the same functions
while its pod exists (same UID) and the API server can't be reached. Nothing else follows from an
approval, and while the API server answers, its answer counts.

One resource name stands for a region in two modes. In mode region a container may have functions,
in mode regiondevel it may program. An approval of one mode does not count in the other one.

A file keeps them after the plugin's process. Only its owner may write it, since containers that are
listed in it may start. A file that can't be read is ignored. One that can't be written is logged
once; approvals then last as long as the process. If reading hangs, the file is read again later,
and not overwritten before.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import msgspec
import structlog

from services.containers.identity import ContainerIdentity
from services.devices.model import PluginMode
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError, InvalidInput
from services.process.files import open_regular, replace_file

MAX_APPROVALS: Final = 4096
"""A node has 110 pods by default; the oldest approvals go first."""

MAX_BYTES: Final = 8 * 1024 * 1024

SECONDS: Final = 5.0
"""For reading or writing the file; what takes longer is given up."""

T = TypeVar("T")

log = structlog.get_logger(component="plugin")


class StartApproval(msgspec.Struct, frozen=True, rename="camel"):
    """What a container may have of a resource."""

    pod_uid: str
    container: str
    resource: str
    devices: tuple[str, ...]
    """The devices' ids, sorted."""
    who: str
    """The container and its pod, for messages."""
    functions: tuple[str, ...] = ()
    """What it wants in regions; empty where it brings its own."""

    def is_for(self, mode: PluginMode) -> bool:
        """Whether it counts in a mode: it has functions in mode region, and only there."""
        return bool(self.functions) == (mode is PluginMode.REGION)


Approvals: TypeAlias = Mapping[tuple[str, str, str], StartApproval]
"""Approvals by UID of the pod, container and resource, the newest last."""


class BrokenApprovals(InvalidInput):
    """A file that has no approvals, or none that can be trusted."""


class ApprovalFile:
    """The approvals of this node's containers."""

    def __init__(self, path: Path, calls: BlockingCalls) -> None:
        self._path = path
        self._calls = calls
        self._approvals: Approvals = {}
        self._written: Approvals | None = None
        """The file's content; None before it was read."""
        self._reading = asyncio.Lock()
        self._error = ""

    async def find(
        self, container: ContainerIdentity, resource: str, devices: Collection[str]
    ) -> StartApproval | None:
        """The approval of a container for exactly these devices, None if there is none."""
        known = await self._known()
        found = known.get((container.pod_uid, container.container, resource))
        return found if found and found.devices == tuple(sorted(set(devices))) else None

    async def pods(self) -> frozenset[str]:
        """UIDs of the pods that have approvals now."""
        return frozenset(uid for uid, _, _ in await self._known())

    async def add(self, approvals: Iterable[StartApproval], *, gone: Collection[str]) -> None:
        """Keep approvals, which replace those of the same container and resource.

        `gone` are UIDs of pods that have ended. Such a pod had an approval first, and was missing
        from the kubelet's checkpoint afterwards. A pod that was only missing from an earlier
        checkpoint may have started meanwhile.
        """
        before = await self._known()
        left = {key: each for key, each in before.items() if key[0] not in gone}
        now = self._approvals = _merged(left, approvals)
        if self._written is None or now == self._written:
            return
        content = msgspec.json.encode(list(now.values()))
        try:
            await self._run(lambda: self._replace(content))
        except (OSError, HardwareError) as error:
            self._log_error("written", error)
            return
        self._error = ""
        self._written = now

    async def _known(self) -> Approvals:
        async with self._reading:  # several may start at once
            if self._written is None:
                self._written = await self._read_file()
                self._approvals = _merged(self._written or {}, self._approvals.values())
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
            return {}
        self._error = ""
        return found

    async def _run(self, call: Callable[[], T]) -> T:
        return await self._calls.run(
            "state files", call, timeout=SECONDS, what=f"approvals in {self._path}"
        )

    def _log_error(self, action: str, error: Exception) -> None:
        """Log an error once for as long as it stays the same."""
        reason = f"{self._path} can't be {action}: {getattr(error, 'strerror', None) or error}"
        if reason != self._error:
            log.warning(
                "approvals are lost when this process ends: after a restart while the API server"
                " can't be reached, containers can't start again",
                reason=reason,
                do="let the plugin write to --state-dir, and no other user",
            )
        self._error = reason

    def _read(self) -> Approvals:
        try:
            file = open_regular(self._path)
        except FileNotFoundError:
            return {}
        with file:
            found = os.fstat(file.fileno())
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise BrokenApprovals("another user may write to it")
            content = file.read(MAX_BYTES)
        try:
            return _merged({}, msgspec.json.decode(content, type=list[StartApproval]))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise BrokenApprovals(f"no approvals can be read: {error}") from error

    def _replace(self, content: bytes) -> None:
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace_file(self._path, content, mode=0o600)


def _merged(known: Approvals, approvals: Iterable[StartApproval]) -> Approvals:
    every = dict(known)
    for each in approvals:
        key = (each.pod_uid, each.container, each.resource)
        every.pop(key, None)  # so that the newest is last
        every[key] = each
    for key in list(every)[: max(0, len(every) - MAX_APPROVALS)]:
        del every[key]
    return every
