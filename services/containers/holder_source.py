"""Reads from the kubelet which containers have which device; see `services.containers.holders`."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from services.containers.holders import (
    Given,
    Holders,
    PodRef,
    given_to_containers,
    holders_of_entries,
    holders_of_pods,
    may_have_ended,
    of_present_pods,
    pod_of_folder,
    pods_of_devices,
    pods_of_folders,
    served,
)
from services.kubelet.checkpoint import KubeletFiles
from services.kubelet.pod_resources import held_devices
from services.kubelet.sockets import pod_resources_socket
from services.kubelet.values import CheckpointEntry, Held
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError, KubeletError
from services.process.outage import Outage
from services.process.waits import Due

FILES_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 2.0

FRESH_SECONDS: Final = 1.0
"""A younger answer of PodResources is not asked for again, unless the checkpoint has changed."""

POLL_SECONDS: Final = 3.0
"""Between two polls of the checkpoint's time: several containers of a pod are one query."""

RENEW_SECONDS: Final = 20.0
"""Between two questions whether pods have ended: that changes no file. While only an init container
of a pod has devices, the kubelet writes its checkpoint as often."""

log = structlog.get_logger(component="node")


@dataclass(frozen=True, slots=True)
class HolderSnapshot:
    """The containers that have devices, as far as they are known."""

    holders: Holders = field(default_factory=dict)
    given: frozenset[Given] = frozenset()
    """The nodes of our devices that containers were given."""
    problems: tuple[str, ...] = ()
    """What is unknown, and what that means for the holders."""
    may_have_ended: bool = False
    """Whether the pods of some holders may have ended."""
    is_known: bool = True
    """Whether the kubelet or its checkpoint has said who has devices."""
    is_complete: bool = True
    """Whether the checkpoint has said it, or there is none."""


class HolderSource:
    """Knows which containers have devices, and reads again what has changed.

    `domains` are those of device types. A process that gives devices to others than the kubelet's
    pods `forgets_gone` pods: those that PodResources does not list and that have no log folder.
    Containers of a pod that was deleted by force may still run.
    """

    def __init__(
        self,
        *,
        kubelet_dir: Path,
        pod_logs_dir: Path,
        calls: BlockingCalls,
        domains: Sequence[str] = (),
        forgets_gone: bool = False,
    ) -> None:
        self._ours = served(domains)
        self._forgets_gone = forgets_gone
        self._files = KubeletFiles(kubelet_dir, pod_logs_dir, calls, seconds=FILES_SECONDS)
        self._socket = pod_resources_socket(kubelet_dir)
        self._pods: Mapping[str, PodRef] = {}
        self._snapshot = HolderSnapshot(is_known=False, is_complete=False)
        self._version: tuple[int, int] | None = None
        """Of the checkpoint that was read last."""
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    @property
    def holders(self) -> Holders:
        """The holders as last read; they stay while nothing can be read."""
        return self._snapshot.holders

    @property
    def given(self) -> frozenset[Given]:
        """The nodes of our devices that containers were given, as last read."""
        return self._snapshot.given

    async def read(self) -> Holders:
        """Which containers have devices now.

        Raises:
            KubeletError: That is unknown: the checkpoint can't be read, or it is missing and
                PodResources does not answer.
            HardwareError: Reading hangs.
        """
        given = frozenset[Given]()
        try:
            entries = await self._of_present(await self._files.entries())
            holders = holders_of_entries(entries, self._pods, self._ours)
            given = given_to_containers(entries, self._pods, self._ours)
        except KubeletError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            holders = holders_of_pods(await self._active(), self._ours)
        self._snapshot = replace(self._snapshot, holders=holders, given=given)
        return holders

    async def current(self) -> Holders:
        """The same; if that is unknown, the holders as last read.

        Raises:
            HardwareError: None were read yet.
        """
        if not self._snapshot.is_known:
            snapshot = await self.snapshot()
            if not snapshot.is_known:  # a device that counts as free might be allocated twice
                raise HardwareError(
                    f"which containers have devices is unknown: {'; '.join(snapshot.problems)}"
                )
        elif self._version_now() != self._version:
            with contextlib.suppress(KubeletError, HardwareError):  # the next round logs it
                await self.read()
        return self.holders

    async def snapshot(self) -> HolderSnapshot:
        """Which containers of which pods have devices now, as far as is known."""
        async with self._asking:
            version, now = self._version_now(), time.monotonic()
            if version != self._version or now - self._asked_at >= FRESH_SECONDS:
                self._snapshot = await self._query()
                self._asked_at = now
                if self._snapshot.is_complete:
                    self._version = version
        return self._snapshot

    async def follow_forever(self, rescan: Due, resend: Callable[[], None] = lambda: None) -> None:
        """Follow the checkpoint until cancelled.

        Args:
            rescan: Requested when other containers have devices than before, or other nodes.
            resend: Called to send the kubelet a list of devices again, which makes it write its
                checkpoint; only a device plugin can.
        """
        known, renewed_at = (self.holders, self.given), float("-inf")
        outage = Outage(
            log,
            "the holders of devices are not fully known",
            "the holders of devices are known again",
            level="info",
        )
        while True:
            is_due = time.monotonic() - renewed_at >= RENEW_SECONDS
            if is_due or self._version_now() != self._version:
                snapshot = await self.snapshot()
                outage.update("; ".join(snapshot.problems))
                if (snapshot.holders, snapshot.given) != known:
                    known = snapshot.holders, snapshot.given
                    rescan.request()
                if is_due:
                    renewed_at = time.monotonic()
                    # PodResources forgets ended pods at once, but the kubelet writes that to its
                    # checkpoint only when something else changes, such as a plugin's devices.
                    if snapshot.may_have_ended:
                        resend()
            await asyncio.sleep(POLL_SECONDS)

    async def _query(self) -> HolderSnapshot:
        problems: list[str] = []
        active, unanswered = None, ""
        try:
            active = await self._active()
        except KubeletError as error:
            unanswered = str(error)
            problems.append(f"pods that have ended may be among the holders: {unanswered}")
        try:
            stored = await self._files.entries()
            entries = await self._of_present(stored)
        except (KubeletError, HardwareError) as error:
            is_missing = isinstance(error.__cause__, FileNotFoundError)
            if not is_missing:
                problems.append(f"init containers that have devices are unknown: {error}")
            elif active is None:
                what = "cannot tell which pods hold devices, since there is no checkpoint"
                problems = [f"{what}: {unanswered}"]
            return HolderSnapshot(
                self.holders if active is None else holders_of_pods(active, self._ours),
                frozenset() if is_missing else self.given,
                tuple(problems),
                is_known=self._snapshot.is_known or is_missing or active is not None,
                is_complete=is_missing,
            )
        folders: list[str] = []
        try:
            folders = await self._files.folders() if entries else []
        except (KubeletError, HardwareError) as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # it need not be mounted
                problems.append(f"pods of init containers are unknown: {error}")
        self._pods = pods_of_devices(entries, active or ()) | pods_of_folders(folders)
        return HolderSnapshot(
            holders_of_entries(entries, self._pods, self._ours),
            given_to_containers(entries, self._pods, self._ours),
            tuple(problems),
            entries != stored
            if self._forgets_gone
            else active is not None and may_have_ended(entries, active, self._ours),
        )

    async def _of_present(
        self, entries: tuple[CheckpointEntry, ...]
    ) -> tuple[CheckpointEntry, ...]:
        if not self._forgets_gone or not entries:
            return entries
        try:
            pods = filter(None, map(pod_of_folder, await self._files.folders()))
            present = {pod.uid for pod in pods}
            return of_present_pods(entries, await self._active(), present)
        except (KubeletError, HardwareError):
            return entries  # in doubt held

    async def _active(self) -> tuple[Held, ...]:
        return await held_devices(self._socket, seconds=ANSWER_SECONDS)

    def _version_now(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._files.checkpoint)  # noqa: PTH116 - a few microseconds
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino
