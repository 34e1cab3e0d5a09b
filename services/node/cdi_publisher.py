"""Keeps a CDI file of this node's devices up to date, beside discovery."""

from collections.abc import Collection
from pathlib import Path
from typing import Final, NoReturn

import structlog

from services.devices.cdi import DEVICE_KIND, FILES, KIND, CdiFile, CdiHook, describe
from services.devices.cdi_files import CdiFolder, CdiWrite
from services.node.kept_files import Kept, KeptFiles
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError, HookMissing
from services.process.outage import Outage
from services.process.text import listing

WRITE_SECONDS: Final = 5.0

KEPT: Final = {KIND: Kept.CDI_FPGA, DEVICE_KIND: Kept.CDI_DEVICE}

log = structlog.get_logger(component="node")


class CdiPublisher:
    """Has the file of a kind describe the devices in the ledger, and checks it after each step."""

    def __init__(
        self,
        folder: Path,
        state: NodeState,
        *,
        kind: str = KIND,
        host_root: str,
        calls: BlockingCalls,
        kept: KeptFiles,
        hook: CdiHook | None = None,
    ) -> None:
        self._state = state
        self._kind = kind
        self._folder = CdiFolder(folder, FILES[kind])
        self._host_root = host_root
        self._hook = hook
        self._calls = calls
        self._kept = kept
        kept.expect(KEPT[kind])
        self._written = CdiFile()
        """The file as it was written last."""
        self._is_there = False
        """Whether it was on the disk when that was checked last."""
        self._due = state.steps.follow()
        self._outage = Outage(
            log, "devices are not in the CDI file", "all devices are in the CDI file again"
        )

    @property
    def published(self) -> frozenset[str]:
        """Ids of the devices that the file names."""
        # `Allocate` names these by CDI and returns nodes in any case: no device waits for the file.
        devices = self._written.devices if self._is_there else ()
        return frozenset(devices) & {device.id for device in self._state.ledger.offer.devices()}

    async def write_forever(self) -> NoReturn:
        """Write after each step, until cancelled."""
        await self._due.run_forever(self.run_once)

    async def require(self, ids: Collection[str]) -> None:
        """Make sure that the file on the disk describes devices; write it if it doesn't.

        Raises:
            HookMissing: It doesn't, and can't be written.
        """
        # In hook mode `Allocate` has named the devices by CDI only: a container without the hook
        # would run whatever function is in the port.
        done = await self.run_once()
        missing = sorted(set(ids) - self.published) if done else sorted(set(ids))
        if missing:
            why = self._kept.error(KEPT[self._kind]) or "the plugin no longer offers it"
            raise HookMissing(
                f"the CDI file {self._folder.path} doesn't describe"
                f" {listing(missing, most=8)}, so the container runtime would find neither the"
                f" device nor the OCI hook that programs it: {why}"
            )

    async def run_once(self) -> bool:
        """Write the file if needed; return whether its content is known."""
        devices, last = self._state.ledger.offer.devices(), self._written
        file = describe(devices, kind=self._kind, host_root=self._host_root, hook=self._hook)
        where = self._folder.path.parent
        try:
            done: CdiWrite = await self._calls.run(
                f"cdi {self._folder.path.name}",
                lambda: self._folder.write(file.content, last.content),
                timeout=WRITE_SECONDS,
                what=f"writing CDI files below {where}",
            )
        except HardwareError as error:
            self._kept.update(KEPT[self._kind], str(error))
            return False
        self._kept.update(KEPT[self._kind], done.error)
        if not done.error:
            self._written, self._is_there = file, True
        elif done.lost:  # a runtime fails a container for a name that it can't find
            self._is_there = False
        if done.changed and file.content and file.content == last.content:
            self._kept.restored(KEPT[self._kind], self._folder.path, done.found)
        elif done.changed:
            log.info(
                "CDI files changed",
                folder=str(where),
                written=[self._folder.path.name] if file.content else [],
                removed=[] if file.content else [self._folder.path.name],
                devices=len(file.devices),
            )
        self._outage.update("; ".join(each.text for each in file.problems))
        return True
