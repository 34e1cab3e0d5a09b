"""Reads from the kubelet which containers have which device; see `services.containers.holders`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from services.containers.holders import Holders, find_holders
from services.containers.identity import PodRef, pods_of_devices, pods_of_folders
from services.kubelet.checkpoint import pod_folders, read_checkpoint
from services.kubelet.pod_resources import active_pods
from services.kubelet.sockets import checkpoint_file, pod_resources_socket
from services.kubelet.values import ActivePod, Entry
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError, KubeletError

FILES_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class HolderSnapshot:
    """The containers that have devices, as far as they are known."""

    holders: Holders = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """What is unknown, and what that means for the holders."""


class HolderSource:
    """Reads which containers have devices, and remembers the pod of each UID that it has found."""

    def __init__(self, *, kubelet_dir: Path, pod_logs_dir: Path, calls: BlockingCalls) -> None:
        self._checkpoint = checkpoint_file(kubelet_dir)
        self._socket = pod_resources_socket(kubelet_dir)
        self._pod_logs_dir = pod_logs_dir
        self._calls = calls
        self._pods: Mapping[str, PodRef] = {}

    async def read(self) -> Holders:
        """Which containers have devices now; an error if a container may be missing.

        The kubelet writes an allocation to its checkpoint before the container starts, so the
        checkpoint alone is enough, if more cautious: what only says which pods have ended may be
        missing. If there is no checkpoint yet, PodResources must answer.
        """
        return (await self._query(cautious=True)).holders

    async def snapshot(self) -> HolderSnapshot:
        """Which containers have devices now, as far as is known; raises nothing."""
        return await self._query(cautious=False)

    async def _query(self, *, cautious: bool) -> HolderSnapshot:
        """Read in the order that `services.containers.holders` asks for."""
        problems: list[str] = []
        entries: tuple[Entry, ...] = ()
        pods: tuple[ActivePod, ...] | None = None
        no_checkpoint = False
        try:
            entries = await self._entries()
        except (KubeletError, HardwareError) as error:
            no_checkpoint = isinstance(error.__cause__, FileNotFoundError)
            if not no_checkpoint:
                if cautious:
                    raise
                problems.append(f"init containers that have devices are unknown: {error}")
        folders, problem = await self._folders(entries)
        if problem:
            problems.append(f"pods of init containers are unknown: {problem}")
        if not cautious or no_checkpoint or self._has_socket:
            try:
                pods = await active_pods(self._socket, seconds=ANSWER_SECONDS)
            except KubeletError as error:
                if cautious:
                    raise
                if no_checkpoint:
                    what = "cannot tell which pods hold devices, since there is no checkpoint"
                else:
                    what = "pods that have ended may be among the holders"
                problems.append(f"{what}: {error}")
        holders = find_holders(entries, folders, pods, known=self._pods, cautious=cautious)
        here = {entry.pod_uid for entry in entries}
        now = {**self._pods, **pods_of_devices(entries, pods or ()), **pods_of_folders(folders)}
        self._pods = {uid: pod for uid, pod in now.items() if uid in here}
        return HolderSnapshot(holders, tuple(problems))

    @property
    def _has_socket(self) -> bool:
        return os.path.lexists(self._socket)

    async def _entries(self) -> tuple[Entry, ...]:
        return await self._calls.run(
            "kubelet files",
            lambda: read_checkpoint(self._checkpoint),
            timeout=FILES_SECONDS,
            what="reading the kubelet's checkpoint",
        )

    async def _folders(self, entries: tuple[Entry, ...]) -> tuple[list[str], str]:
        """Names of log folders, if there are entries to find pods for, and why they are unknown.

        A missing folder is no problem: it need not be mounted.
        """
        if not entries:
            return [], ""
        try:
            return await self._calls.run(
                "kubelet files",
                lambda: pod_folders(self._pod_logs_dir),
                timeout=FILES_SECONDS,
                what=f"listing {self._pod_logs_dir}",
            ), ""
        except (KubeletError, HardwareError) as error:
            missing = isinstance(error.__cause__, FileNotFoundError)
            return [], "" if missing else str(error)
