"""What a plugin process has on its node in every mode, created in the order of need.

Sensors are watched beside discovery, which goes on without them.
"""

from collections.abc import Callable
from typing import Final

from plugin.metrics import NodeCollector, PluginMetrics
from plugin.node_events import NodeEvents
from plugin.node_mode import NodeMode
from plugin.settings import PluginSettings, Programming
from services.containers.claims import PodSource
from services.containers.holder_source import HolderSource
from services.devices.hardware.scan import Scanner
from services.devices.hardware.sensor_reader import SensorReader
from services.devices.limits import Limits, parse_ignored
from services.kube.connection import Connection
from services.kube.events import EventRecord, EventRecorder
from services.mappings.index import NamespaceMappings
from services.mappings.namespace import read_namespace
from services.node.discovery import CardReader, NodeState
from services.node.permissions import Needs, PermissionCheck
from services.node.sensing import Sensing
from services.process import http
from services.process.blocking import BlockingCalls
from services.programming.ioctls import KERNEL, DriverCalls
from services.programming.records import FOLDER, PortRecords

COMPONENT: Final = "accelbind-plugin"
"""The source of Events."""


class NodeParts:
    """What a plugin process has in every mode.

    Pods, mappings and Events go through the connection, if an API server is configured; else
    through `pods` and `record_event`. An empty version is looked up.
    """

    def __init__(
        self,
        settings: PluginSettings,
        connection: Connection | None = None,
        *,
        pods: PodSource | None = None,
        record_event: Callable[[EventRecord], None] = lambda _: None,
        driver_calls: DriverCalls = KERNEL,
        version: str = "",
    ) -> None:
        self.settings = settings
        self.connection = connection
        self.driver_calls = driver_calls
        self.calls = BlockingCalls()
        self.records = PortRecords(settings.state_dir / FOLDER)
        self.state = NodeState(settings.mode)
        self.registry = http.new_registry()
        http.build_info(self.registry, "plugin", version)
        self.metrics = PluginMetrics(self.registry)
        self.recorder = self._recorder(connection) if connection else None
        self.record_event = self.recorder.record if self.recorder else record_event
        self.pods = ApiServerPods(connection) if connection else pods
        self.events = NodeEvents(settings.node_name, self.record_event)
        self.mode = NodeMode(settings.mode, on_change=self.events.mode_changed)
        self._watch_cards()
        self.registry.register(
            NodeCollector(
                self.state,
                self.mode,
                self.scanner,
                self.holders,
                self.sensing,
                self.permissions,
            )
        )

    def _recorder(self, connection: Connection) -> EventRecorder:
        return EventRecorder(
            connection,
            component=COMPONENT,
            host=self.settings.node_name,
            on_result=lambda outcome: self.metrics.events.labels(outcome).inc(),
        )

    def _watch_cards(self) -> None:
        settings = self.settings
        self.holders = HolderSource(
            kubelet_dir=settings.kubelet_dir, pod_logs_dir=settings.pod_logs_dir, calls=self.calls
        )
        limits = Limits(
            settings.max_temperature, settings.max_power, parse_ignored(settings.ignore_errors)
        )
        self.sensing = Sensing(
            SensorReader(settings.root, self.calls),
            limits=limits,
            interval=settings.sensor_interval,
            request_rescan=self.state.request_rescan,
        )
        self.permissions = PermissionCheck(_needs(settings), self.calls)
        self.scanner = Scanner(settings.root, self.calls)
        self.cards = CardReader(
            self.scanner.scan,
            self.calls,
            limits,
            problems=(self.sensing.problems,),
        )


def _needs(settings: PluginSettings) -> Needs:
    programs = settings.programming is not Programming.NONE
    return Needs(
        mode=settings.mode,
        root=settings.root,
        kubelet_dir=settings.kubelet_dir,
        pod_logs_dir=settings.pod_logs_dir,
        cdi_dir=settings.cdi_dir,
        clear_errors=settings.clear_errors,
        state_dir=settings.state_dir if programs else None,
        bitstreams=settings.bitstreams,
    )


class ApiServerPods:
    """Pods and mappings from the API server; a `ClusterError` passes through."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def get_pod(self, namespace: str, name: str) -> bytes | None:
        """A pod as JSON; None if there is none."""
        async with self._connection.client() as client:
            return await client.get_pod(namespace, name)

    async def mappings(self, namespace: str) -> NamespaceMappings:
        """What a namespace maps now."""
        async with self._connection.client() as client:
            return await read_namespace(client, namespace)
