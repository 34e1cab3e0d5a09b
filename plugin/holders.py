"""Asking the kubelet whose the devices are; see `services.domain.holders` for how it is told."""

from pathlib import Path
from typing import Final

from plugin.worker import Worker
from services.domain.holders import Holders, find_holders
from services.kubelet.active_pods import active_pods
from services.kubelet.channel import checkpoint_file, pod_resources_socket
from services.kubelet.checkpoint import pod_folders, read_checkpoint

FILES_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0


class HolderSource:
    """Reads whose the devices are.

    Args:
        kubelet_dir: Holds `device-plugins/` and `pod-resources/`.
        pod_logs_dir: Where the folders of pods' logs are.
        worker: Where to read files.
    """

    def __init__(self, *, kubelet_dir: Path, pod_logs_dir: Path, worker: Worker) -> None:
        self._checkpoint = checkpoint_file(kubelet_dir)
        self._socket = pod_resources_socket(kubelet_dir)
        self._pod_logs_dir = pod_logs_dir
        self._worker = worker

    async def read(self) -> Holders:
        """Who has which device now.

        Raises:
            KubeletError: The checkpoint or the log folders can't be read, or the kubelet doesn't
                answer.
            HardwareError: Reading hangs.
        """
        entries, folders = await self._worker.run(
            lambda: (read_checkpoint(self._checkpoint), pod_folders(self._pod_logs_dir)),
            seconds=FILES_SECONDS,
            what="reading the kubelet's checkpoint",
        )
        pods = await active_pods(self._socket, seconds=ANSWER_SECONDS)
        return find_holders(entries, folders, pods)
