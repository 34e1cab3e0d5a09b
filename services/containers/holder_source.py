"""Asks the kubelet whose the devices are; see `services.containers.holders` for how."""

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from services.containers.holders import Holders, find_holders
from services.kubelet.checkpoint import pod_folders, read_checkpoint
from services.kubelet.pod_resources import active_pods
from services.kubelet.sockets import checkpoint_file, pod_resources_socket
from services.kubelet.values import ActivePod, Entry
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError, KubeletError

FILES_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Look:
    """Whose the devices are, as far as can be told.

    Args:
        holders: Who has which device.
        problems: What couldn't be found out, and what that means for the holders.
    """

    holders: Holders = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class HolderSource:
    """Reads whose the devices are.

    Args:
        kubelet_dir: Holds `device-plugins/` and `pod-resources/`.
        pod_logs_dir: Where the folders of pods' logs are.
        calls: Makes the calls that may hang.
    """

    def __init__(self, *, kubelet_dir: Path, pod_logs_dir: Path, calls: BlockingCalls) -> None:
        self._checkpoint = checkpoint_file(kubelet_dir)
        self._socket = pod_resources_socket(kubelet_dir)
        self._pod_logs_dir = pod_logs_dir
        self._calls = calls

    async def read(self) -> Holders:
        """Who has which device now, with nobody left out.

        The kubelet notes in its checkpoint what it gives before a container starts, so the
        checkpoint alone tells that, if more cautiously: what only says which pods have ended may
        be missing. Where there is no checkpoint yet, PodResources has to answer.

        Raises:
            KubeletError: The checkpoint can't be read; the kubelet doesn't answer, though it has a
                socket to ask it on, or there is nothing else to ask.
            HardwareError: Reading hangs.
        """
        entries: tuple[Entry, ...] = ()
        folders: list[str] = []
        noted = True
        try:
            entries = await self._entries()
        except KubeletError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            noted = False
        if entries:
            with contextlib.suppress(KubeletError, HardwareError):
                folders = await self._folders()
        pods = None
        if not noted or self._can_be_asked:
            pods = await active_pods(self._socket, seconds=ANSWER_SECONDS)
        return find_holders(entries, folders, pods, cautious=True)

    @property
    def _can_be_asked(self) -> bool:
        return os.path.lexists(self._socket)

    async def look(self) -> Look:
        """Who has which device now, as far as can be told; raises nothing."""
        problems: list[str] = []
        entries: tuple[Entry, ...] = ()
        folders: list[str] = []
        pods: tuple[ActivePod, ...] | None = None
        unwritten = False
        try:
            entries = await self._entries()
        except (KubeletError, HardwareError) as error:
            unwritten = isinstance(error.__cause__, FileNotFoundError)
            if not unwritten:
                problems.append(f"init containers that have devices aren't known: {error}")
        if entries:
            try:
                folders = await self._folders()
            except (KubeletError, HardwareError) as error:
                problems.append(f"pods of init containers aren't known: {error}")
        try:
            pods = await active_pods(self._socket, seconds=ANSWER_SECONDS)
        except KubeletError as error:
            if unwritten:
                what = "whose the devices are isn't known, there is no checkpoint either"
            else:
                what = "pods that have ended may be among the holders"
            problems.append(f"{what}: {error}")
        return Look(find_holders(entries, folders, pods), tuple(problems))

    async def _entries(self) -> tuple[Entry, ...]:
        return await self._calls.run(
            "kubelet files",
            lambda: read_checkpoint(self._checkpoint),
            timeout=FILES_SECONDS,
            what="reading the kubelet's checkpoint",
        )

    async def _folders(self) -> list[str]:
        return await self._calls.run(
            "kubelet files",
            lambda: pod_folders(self._pod_logs_dir),
            timeout=FILES_SECONDS,
            what=f"listing {self._pod_logs_dir}",
        )
