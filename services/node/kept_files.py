"""The files and sockets that a process keeps on its node: what was restored, and what is missing.

Whoever keeps one compares it with what it should be after each scan, and reports here. A mounted
folder that is deleted on the host stays the deleted one until the container ends: nothing can be
written there, and only another container gets the new folder, so that ends the process.
"""

import asyncio
import contextlib
from collections.abc import Collection
from enum import StrEnum
from pathlib import Path
from typing import Final, NoReturn

import structlog
from prometheus_client import Counter

from services.process.errors import HardwareError
from services.process.outage import Outage

log = structlog.get_logger(component="node")


class Kept(StrEnum):
    """A kind of files; the values are labels of a metric."""

    CDI_FPGA = "cdi-fpga"
    """The CDI file of the node's FPGAs."""
    CDI_DEVICE = "cdi-device"
    """The CDI file of the devices of device types."""
    CDI_CLAIM = "cdi-claim"
    """The CDI files of claims."""
    CLAIM = "claim"
    """The entries of claims."""
    MODE = "mode"
    """The mode that is served."""
    SOCKET = "socket"
    """The sockets for the kubelet."""
    HOOK_SOCKET = "hook-socket"
    """The socket for the OCI hook."""


class KeptFiles:
    """Which files of a process are missing; `counter` counts those `restored` and `failed`."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._expected: set[Kept] = set()
        self._outages = {
            kind: Outage(
                log,
                "files are not as they should be",
                "files are as they should be again",
                count=counter.labels(kind, "failed").inc,
                kind=kind.value,
            )
            for kind in Kept
        }

    @property
    def errors(self) -> list[str]:
        """Why files are not as they should be, a reason for each kind."""
        return [*filter(None, map(self.error, Kept))]

    def error(self, kind: Kept) -> str:
        """Why files of a kind are not as they should be; empty if they are."""
        if kind in self._expected:
            return f"files are not checked yet: {kind}"
        return self._outages[kind].reason

    def expect(self, kind: Kept) -> None:
        """Count files of a kind as missing until `update` says otherwise."""
        self._expected.add(kind)

    def restored(self, kind: Kept, path: Path, found: str) -> None:
        """Note that a file, found as the text says, is as it was again."""
        self._counter.labels(kind, "restored").inc()
        log.warning("a lost file is restored", kind=kind.value, file=str(path), found=found)

    def update(self, kind: Kept, error: str) -> None:
        """Note why files of a kind are not as they should be; empty if they are."""
        self._expected.discard(kind)
        self._outages[kind].update(error)


CHECK_SECONDS: Final = 1.0


class RemovedFolder:
    """A folder that is mounted, or not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._had_links = False
        self.check()

    def check(self) -> bool:
        """Whether the folder is mounted here and was deleted on the host."""
        # It has no links then. One that is just being deleted here is gone at the second look.
        # Some file systems never count any.
        with contextlib.suppress(OSError):
            links = [self.path.stat().st_nlink for _ in range(2)]
            self._had_links |= links[0] > 0
            return self._had_links and not any(links)
        return False


async def end_if_removed(folders: Collection[RemovedFolder]) -> NoReturn:
    """Check folders until cancelled.

    Raises:
        HardwareError: One was removed.
    """
    while True:
        for folder in folders:
            if folder.check():
                raise HardwareError(
                    f"{folder.path} was removed on the host, and this container still has the"
                    " removed folder mounted: only a restarted container gets the new one"
                )
        await asyncio.sleep(CHECK_SECONDS)
