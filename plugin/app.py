"""The plugin process: what it is made of, how it starts, how it ends.

One event loop. Tasks: the look at the kubelet's folder and at whoever else serves there, what the
API server has to say of this node, and what serves in the node's mode (`plugin.mode_serving`),
which is replaced as a whole when the mode changes; beside them the HTTP server for probes and
metrics. Daemon threads read files that may hang. SIGTERM or SIGINT ends discovery, then every
endpoint (streams first, then sockets), then the rest; a scan that hangs holds nobody up.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from plugin import probes
from plugin.endpoint import first_of
from plugin.events import NodeEvents
from plugin.gates import Gates
from plugin.insight import Insight
from plugin.kubelet import KubeletWatch
from plugin.metrics import PluginMetrics
from plugin.mode import KNOWN_SECONDS, NodeMode
from plugin.mode_memory import last_mode
from plugin.mode_metrics import ModeMetrics
from plugin.mode_serving import Lasting, ModeServing
from plugin.precedence import Precedence
from plugin.settings import PluginSettings
from plugin.sockets import SocketNames
from services.containers.claims import PodSource
from services.containers.holder_source import HolderSource
from services.devices.hardware.scan import Scanner
from services.devices.model import Inventory, PluginMode
from services.devices.resources import AdvertisedResources
from services.kube.config import may_reach
from services.kube.events import EventRecord
from services.kubelet.sockets import plugins_folder
from services.node.busy_cards import BusyCardFilter
from services.node.discovery import Discovery
from services.process import http as process_http
from services.process.blocking import BlockingCalls, DaemonExecutor
from services.process.errors import AccelbindError, HardwareError, KubeletError, WorldError
from services.process.listening import write_ports
from services.process.signals import stop_signals
from services.programming.ioctls import KERNEL, DriverCalls

if TYPE_CHECKING:
    from plugin.mode_cluster import ClusterSide
    from services.kube.connection import Connection
    from services.kube.list_watch import WatchTimeouts

STOPPED: Final = "stopped"
ANOTHER_MODE: Final = "another mode"
ANOTHER_PLUGIN: Final = "another plugin"
REMOVED: Final = "the kubelet's folder was removed"
PORT_SECONDS: Final = 1.0
"""Before a second plugin tries to have its port."""
PORT_TRIES: Final = 5
"""Tries of one that was the second: the port and the lock of another aren't free in one instant."""
ENDS: Final = (STOPPED, REMOVED)
"""What ends the plugin, rather than what it serves."""

log = structlog.get_logger(room="plugin")


async def run(
    options: PluginSettings, *, version: str = "", driver_calls: DriverCalls | None = None
) -> None:
    """Serves this node's cards to its kubelet until SIGTERM or SIGINT.

    Args:
        options: What it has to know.
        version: Its version for `/metrics`, which is looked up unless it is given.
        driver_calls: Makes the ioctls of the cards' drivers, if not the kernel.

    Raises:
        AccelbindError: It can't start: a port that is taken, a path that is too long, a
            kubeconfig that can't be used.
    """
    asyncio.get_running_loop().set_default_executor(DaemonExecutor())
    with stop_signals() as stop:
        async with _connection(options) as connection:
            plugin = Plugin(
                options,
                connection=connection,
                version=version,
                driver_calls=driver_calls or KERNEL,
            )
            await plugin.run(stop)


@contextlib.asynccontextmanager
async def _connection(options: PluginSettings) -> "AsyncIterator[Connection | None]":
    """Access to the API server, where something says how to reach it."""
    if not may_reach(options.kubeconfig):
        _say_alone(options.mode)
        yield None
        return
    # Only who has an API server pays for a client's memory.
    from services.kube.connection import Connection, connector  # noqa: PLC0415

    connection = Connection(connector(options.kubeconfig))
    try:
        yield connection
    finally:
        await connection.aclose()


def _say_alone(mode: PluginMode) -> None:
    if mode is PluginMode.REGION:
        log.warning(
            "no access to the API server: in region mode no container will start; run with a"
            " service account that may get pods, or set --kubeconfig or KUBECONFIG"
        )
    else:
        log.info(
            "no access to the API server: --mode counts whatever the node's annotation says, and"
            " no Events are written"
        )


class Plugin:
    """The parts of a plugin process, wired.

    Args:
        options: What it has to know.
        pods: Where pods and mappings come from, instead of the connection.
        connection: The API server, if it can be reached.
        version: Its version, if it is known.
        driver_calls: Makes the ioctls of the cards' drivers.
        timeouts: How often the API server is asked, if not as usual.
    """

    def __init__(
        self,
        options: PluginSettings,
        pods: PodSource | None = None,
        *,
        connection: "Connection | None" = None,
        version: str = "",
        driver_calls: DriverCalls = KERNEL,
        timeouts: "WatchTimeouts | None" = None,
    ) -> None:
        self._options = options
        self._timeouts = timeouts
        self._registry = process_http.new_registry()
        process_http.build_info(self._registry, "plugin", version)
        self._metrics = PluginMetrics(self._registry)
        folder = plugins_folder(options.kubelet_dir)
        self._names = SocketNames(folder)
        self._kubelet = KubeletWatch(folder)
        self._calls = BlockingCalls()
        self._events = NodeEvents(options.node_name, self._tell)
        self._precedence = Precedence(folder, self._calls, waiting=self._events.waits)
        self._mode = NodeMode(options.mode, told=self._events.mode)
        mode_metrics = ModeMetrics(self._registry, lambda: self._mode.choice)
        self._cluster = self._cluster_side(connection, mode_metrics) if connection else None
        self._scanner = Scanner(options.root)
        self._steady = BusyCardFilter(self._scanner.scan, self._calls)
        holders = HolderSource(
            kubelet_dir=options.kubelet_dir,
            pod_logs_dir=options.pod_logs_dir,
            calls=self._calls,
        )
        self._insight = Insight(
            options,
            discovery=lambda: self._discovery,
            metrics=self._metrics,
            reads=lambda: len(self._scanner.hanging),
            calls=self._calls,
            source=holders,
        )
        self._lasting = Lasting(
            options=options,
            metrics=self._metrics,
            kubelet=self._kubelet,
            next_path=self._next_path,
            scan=self._scan,
            calls=self._calls,
            gates=Gates(
                options,
                pods=self._cluster.pods if self._cluster else pods,
                scan=self._scanner.scan,
                counts=self._metrics,
                calls=self._calls,
                tell=self._tell,
                driver_calls=driver_calls,
            ),
            events=self._events,
            beside=self._insight.tasks,
            seen=self._seen,
            holders=holders,
            driver_calls=driver_calls,
        )
        self._serving = ModeServing(self._mode.choice.mode, self._lasting)

    @property
    def _discovery(self) -> Discovery:
        return self._serving.discovery

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set.

        Raises:
            AccelbindError: It can't start, or can't go on in this container.
        """
        options = self._options
        self._names.next()  # a folder whose path is too long is an error before anything starts
        server, why = None, STOPPED
        try:
            server = await self._listen(stop)
            if server is not None:
                write_ports(options.ports_file, {"metrics": server.port})
                log.info("plugin starts", **_announced(options, server.port))
                why = await self._work(stop)
        except ExceptionGroup as group:
            error = _innermost(group)
            if not isinstance(error, AccelbindError):
                log.exception("mistake of ours")
            raise error from group
        finally:
            if server is not None:
                await server.close()
            self._precedence.close()
        if why == REMOVED:
            raise KubeletError(
                f"{self._kubelet.folder} was removed on the host, and what is mounted here is still"
                " that one: only a container that is started anew gets the new one"
            )
        log.info("plugin ended")

    async def _listen(self, stop: asyncio.Event) -> process_http.MetricsServer | None:
        """The server for probes and metrics, whose port a second plugin may have to wait for.

        Returns:
            None where it was stopped before.

        Raises:
            WorldError: Somebody else has the port.
        """
        options, tries = self._options, 0
        while True:
            if options.metrics_port and self._precedence.is_second():
                tries = PORT_TRIES
            # A first one that started in the same instant may be about to listen.
            if tries and await first_of({STOPPED: stop.wait()}, seconds=PORT_SECONDS):
                return None
            try:
                return await process_http.serve(
                    self._registry,
                    options.metrics_host,
                    options.metrics_port,
                    {"/healthz": self._healthz, "/readyz": self._readyz, **self._insight.routes},
                )
            except WorldError as error:
                if not tries:
                    raise
                tries -= 1
                self._precedence.wait_for_port(str(error))

    async def _work(self, stop: asyncio.Event) -> str:
        async with asyncio.TaskGroup() as group:
            lasting = [
                group.create_task(self._kubelet.run(), name="kubelet"),
                group.create_task(self._precedence.run(), name="precedence"),
            ]
            if self._cluster is not None:
                tasks = self._cluster.tasks()
                lasting += [group.create_task(each, name=name) for name, each in tasks]
            why = await self._serve(stop)
            for task in lasting:
                task.cancel()
        return why

    async def _serve(self, stop: asyncio.Event) -> str:
        """Serves in the mode that counts, for as long as this plugin is the one that serves.

        Returns:
            Why that is over.
        """
        why = ""
        while why not in ENDS:
            ends = {STOPPED: stop.wait(), REMOVED: self._kubelet.removed()}
            first = await first_of({**ends, "ready": self._may_serve()}) or ""
            if first in ENDS:
                why = first
                break
            mode = self._mode.choice.mode
            if mode is not self._serving.mode or why:
                before = self._serving.left if why == ANOTHER_MODE else None
                self._serving = ModeServing(mode, self._lasting, before)
            ends = {
                STOPPED: stop.wait(),
                REMOVED: self._kubelet.removed(),
                ANOTHER_PLUGIN: self._precedence.second(),
                ANOTHER_MODE: self._mode.differs(mode),
            }
            why = await self._serving.run(ends, withdraw=frozenset({ANOTHER_MODE}))
            if why not in ENDS:
                log.info("what was served in a mode has ended", mode=mode.value, because=why)
        log.info("plugin ends", because=why)
        return why

    async def _may_serve(self) -> None:
        await self._precedence.first()
        if self._cluster is None or await self._mode.known(KNOWN_SECONDS):
            return
        folder = self._kubelet.folder
        with contextlib.suppress(HardwareError):
            last = await self._calls.run(
                "kubelet files",
                lambda: last_mode(folder),
                timeout=KNOWN_SECONDS,
                what=f"reading in {folder}",
            )
            self._mode.resume(last)

    async def _healthz(self) -> probes.Answer:
        return await probes.healthz(self._serving.endpoints)

    async def _readyz(self) -> probes.Answer:
        if self._precedence.waits_for:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"{self._precedence.waits_for}\n"
        return await probes.readyz(self._discovery, self._serving.endpoints)

    def _scan(self) -> Inventory:
        """In discovery's thread."""
        return self._insight.judged(self._steady())

    def _seen(self, inventory: Inventory | None, _tree: AdvertisedResources) -> None:
        self._insight.take(inventory)

    def _tell(self, event: EventRecord) -> None:
        if self._cluster is not None:
            self._cluster.record(event)

    def _next_path(self) -> Path:
        self._precedence.claim()
        return self._names.next()

    def _cluster_side(self, connection: "Connection", metrics: ModeMetrics) -> "ClusterSide":
        from plugin.mode_cluster import ClusterSide  # noqa: PLC0415 - only with an API server

        return ClusterSide(
            connection,
            self._options.node_name,
            annotations=self._mode.take,
            counted=metrics.event,
            watch_failed=metrics.watch_failed,
            timeouts=self._timeouts,
        )


def _innermost(group: ExceptionGroup[Exception]) -> Exception:
    first = group.exceptions[0]
    return _innermost(first) if isinstance(first, ExceptionGroup) else first


def _announced(options: PluginSettings, port: int) -> dict[str, str | int]:
    return {
        "mode": options.mode.value,
        "node": options.node_name,
        "root": str(options.root),
        "kubelet_dir": str(options.kubelet_dir),
        "metrics_port": port,
    }
