"""The parts of a process on a node that outlive what it serves, and the face that serves it.

A face serves the node's devices to the kubelet by one of its two APIs.
"""

from collections.abc import Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from services.containers.holders import Holders
from services.containers.pod_source import ApiServerPods
from services.kube.client import ClusterClient
from services.kube.events import EventRecorder
from services.kubelet.sockets import plugins_folder
from services.node.kept_files import KeptFiles, RemovedFolder, end_if_removed
from services.node.kubelet_folder import KubeletFolder
from services.node.metrics import NodeMetrics
from services.node.service import NodeService
from services.node.settings import NodeSettings
from services.process import http
from services.process.blocking import BlockingCalls
from services.programming.ioctls import KERNEL, DriverCalls


class Face(Protocol):
    """Serves a node's devices, which `node` looks after."""

    node: NodeService

    async def run(self) -> None:
        """Serve until cancelled."""

    async def unresponsive(self) -> list[str]:
        """Why our sockets don't answer, one sentence each."""

    def unready(self) -> Iterable[str]:
        """Why the kubelet doesn't have all devices as it should."""

    def status_lines(self) -> Iterable[str]:
        """Lines for people about what serves."""

    async def holders(self) -> tuple[Holders, Iterable[str]]:
        """Who has devices, and what is unknown or wrong about that."""


class NodeProcess:
    """A process on a node.

    Events are written through `connection`; without one they are dropped. `name` is `plugin` or
    `dra`, an empty `version` is looked up. It writes to `folders`, besides those of the kubelet and
    of its state.

    Raises:
        KubeletError: The path of the kubelet's folder is too long for sockets in it.
    """

    def __init__(
        self,
        name: str,
        settings: NodeSettings,
        connection: ClusterClient | None,
        *,
        folders: Iterable[Path | None],
        driver_calls: DriverCalls = KERNEL,
        version: str = "",
    ) -> None:
        self.driver_calls = driver_calls
        self.pods = ApiServerPods(connection) if connection else None
        self.folder = KubeletFolder(plugins_folder(settings.kubelet_dir))
        self.calls = BlockingCalls()
        written = (self.folder.path, settings.state_dir, *folders)
        self._folders = [RemovedFolder(each) for each in written if each is not None]
        self.registry = http.new_registry()
        http.build_info(self.registry, name, version)
        self.node_metrics = NodeMetrics(self.registry)
        self.files = KeptFiles(self.node_metrics.files)
        self.events = EventRecorder(
            connection,
            component=f"accelbind-{name}",
            host=settings.node_name,
            results=self.node_metrics.events,
        )

    def loops(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """The loops that run as long as the process, by name."""
        yield "folders", end_if_removed(self._folders)
        yield "events", self.events.write_forever()
