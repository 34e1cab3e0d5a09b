"""Keeping the CDI file of this node's devices current, beside discovery.

What is offered doesn't wait for the file: `Allocate` names a device by CDI only once the file has
it, and gives its nodes in any case. Where the file brings the hook, `Allocate` names devices by CDI
alone, at once, since a container without the hook would run whatever function is there. Then
`PreStartContainer` refuses until the file has the devices (`require`). Whatever keeps the file from
being written (a full disk, a missing permission) is said once and tried again with each scan.
"""

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Final

import structlog

from services.devices.cdi import FILE_NAME, CdiFile, Hook, describe
from services.devices.cdi_files import CdiFolder, CdiWrite
from services.devices.model import Device, DeviceNode, PluginMode
from services.devices.resources import AdvertisedResources
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError, HookMissing
from services.process.text import listing

WRITE_SECONDS: Final = 5.0

log = structlog.get_logger(room="plugin")

_Content = tuple[tuple[str, tuple[DeviceNode, ...]], ...]


class CdiPublisher:
    """Writes the file whenever devices have changed, and checks it with each scan.

    Args:
        folder: The folder of CDI files.
        mode: The node's mode.
        host_root: Folder below which the host's `dev/` is, as the host sees it.
        calls: Makes the calls that may hang.
        hook: What runtimes start for each device, if anything.
    """

    def __init__(
        self,
        folder: Path,
        *,
        mode: PluginMode,
        host_root: str,
        calls: BlockingCalls,
        hook: Hook | None = None,
    ) -> None:
        self.published: frozenset[str] = frozenset()
        """Ids of the devices that the file names."""
        self._folder = CdiFolder(folder)
        self._where = str(folder)
        self._mode = mode
        self._host_root = host_root
        self._hook = hook
        self._calls = calls
        self._devices: tuple[Device, ...] = ()
        self._due = asyncio.Event()
        self._described: tuple[_Content, CdiFile] = ((), CdiFile())
        self._troubles: frozenset[str] = frozenset()

    def take(self, tree: AdvertisedResources) -> None:
        """Takes what the node offers now."""
        self._devices = tuple(tree.devices())
        self.published &= {device.id for device in self._devices}
        self._due.set()

    async def run(self) -> None:
        """Writes whenever something is due, until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            await self.run_once()

    async def require(self, ids: Collection[str]) -> None:
        """Make sure that the file on the disk describes devices; write it if it doesn't.

        Args:
            ids: The devices' ids.

        Raises:
            HookMissing: It doesn't, and can't be written.
        """
        done = await self.run_once()
        missing = sorted(set(ids) - self.published) if done else sorted(set(ids))
        if missing:
            why = "; ".join(sorted(self._troubles)) or "the plugin doesn't offer it any more"
            raise HookMissing(
                f"the CDI file {self._where}/{FILE_NAME} doesn't describe {listing(missing[:8])},"
                " so the container runtime would find neither the device nor the OCI hook that"
                f" programs it: {why}"
            )

    async def run_once(self) -> bool:
        """Makes the folder hold what it should, and returns whether its content is known."""
        file = self._describe()
        try:
            done: CdiWrite = await self._calls.run(
                "cdi",
                lambda: self._folder.write(file.content),
                timeout=WRITE_SECONDS,
                what=f"writing CDI files below {self._where}",
            )
        except HardwareError as error:
            self._say(frozenset({str(error)}))
            return False
        if not done.failed:
            self.published = frozenset(file.devices)
        elif done.lost:  # a runtime fails a container for a name that it can't find
            self.published = frozenset()
        if done.written or done.removed:
            log.info(
                "CDI files changed",
                folder=self._where,
                written=[FILE_NAME] if done.written else [],
                removed=list(done.removed),
                devices=len(file.devices),
            )
        self._say(frozenset(done.problems) | {problem.message for problem in file.problems})
        return True

    def _describe(self) -> CdiFile:
        """The file for the devices as they are now; made anew only if they differ."""
        content = tuple((device.id, device.nodes) for device in self._devices)
        if content != self._described[0]:
            file = describe(
                self._devices, mode=self._mode, host_root=self._host_root, hook=self._hook
            )
            self._described = content, file
        return self._described[1]

    def _say(self, troubles: frozenset[str]) -> None:
        for trouble in sorted(troubles - self._troubles):
            log.warning("CDI files are not as they should be", reason=trouble)
        if self._troubles and not troubles:
            log.info("CDI files are as they should be again")
        self._troubles = troubles
