"""The plugin process: what it consists of, how it starts and how it ends.

One event loop. These tasks run while the process does: the watch of the kubelet's folder, the check
for another plugin on the node, and the API server's tasks. What serves in the node's mode
(`plugin.mode_serving`) is replaced as a whole when the mode changes. An HTTP server answers probes
and scrapes. Daemon threads read files that may hang.

SIGTERM or SIGINT ends discovery, then every registration (streams first, then sockets), then the
rest; a scan that hangs delays nothing.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from plugin import probes
from plugin.kubelet_watch import KubeletWatch
from plugin.metrics import PluginMetrics
from plugin.mode_serving import ModeServing, ProcessParts
from plugin.node_events import NodeEvents
from plugin.node_mode import KNOWN_SECONDS, NodeMode
from plugin.observers import NodeObservers
from plugin.settings import PluginSettings
from plugin.single_instance import SingleInstance
from plugin.sockets import SocketNames
from plugin.start_policies import StartPolicies
from plugin.waiting import first_of
from services.containers.claims import PodSource
from services.devices.hardware.scan import Scanner
from services.devices.model import Inventory, PluginMode
from services.kube.config import may_reach
from services.kube.events import EventRecord
from services.kubelet.sockets import plugins_folder
from services.node.busy_cards import BusyCardFilter
from services.node.devices_answer import DevicesAnswer
from services.node.offer_memory import last_mode
from services.node.state import NodeState
from services.process import http
from services.process.blocking import BlockingCalls, DaemonExecutor
from services.process.errors import AccelbindError, HardwareError, KubeletError, WorldError
from services.process.listening import write_ports
from services.process.signals import stop_signals
from services.programming.ioctls import KERNEL, DriverCalls

if TYPE_CHECKING:
    from plugin.api_server import ApiServer
    from services.kube.connection import Connection
    from services.kube.list_watch import WatchTimeouts

STOPPED: Final = "stopped"
ANOTHER_MODE: Final = "another mode"
ANOTHER_PLUGIN: Final = "another plugin"
REMOVED: Final = "the kubelet's folder was removed"
PORT_SECONDS: Final = 1.0
"""Before a second plugin tries again to listen on its port."""
PORT_TRIES: Final = 5
"""Tries of a plugin that was the second: the other's port and lock aren't free at the same time."""
ENDS: Final = (STOPPED, REMOVED)
"""What ends the process, and not only what it serves."""

log = structlog.get_logger(room="plugin")


async def run(
    settings: PluginSettings, *, version: str = "", driver_calls: DriverCalls | None = None
) -> None:
    """Serves this node's cards to its kubelet until SIGTERM or SIGINT.

    Args:
        settings: The plugin's settings.
        version: Its version for `/metrics`; looked up if empty.
        driver_calls: Makes the ioctls of the cards' drivers, if not the kernel.

    Raises:
        AccelbindError: It can't start: a port is in use, a path is too long, or the kubeconfig
            can't be used.
    """
    asyncio.get_running_loop().set_default_executor(DaemonExecutor())
    with stop_signals() as stop:
        async with _connection(settings) as connection:
            plugin = Plugin(
                settings,
                connection=connection,
                version=version,
                driver_calls=driver_calls or KERNEL,
            )
            await plugin.serve(stop)


@contextlib.asynccontextmanager
async def _connection(settings: PluginSettings) -> "AsyncIterator[Connection | None]":
    """The connection to the API server, if one is configured."""
    if not may_reach(settings.kubeconfig):
        _log_no_api_server(settings.mode)
        yield None
        return
    # Only a plugin with an API server imports the client, which costs memory.
    from services.kube.connection import Connection, connector  # noqa: PLC0415

    connection = Connection(connector(settings.kubeconfig))
    try:
        yield connection
    finally:
        await connection.aclose()


def _log_no_api_server(mode: PluginMode) -> None:
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
    """The parts of a plugin process, created in the order in which they need each other.

    Args:
        settings: The plugin's settings.
        pods: Where pods and mappings come from, if not from the connection.
        connection: The API server, if one is configured.
        version: The version for `/metrics`; looked up if empty.
        driver_calls: Makes the ioctls of the cards' drivers.
        record_event: Writes Events, if not the connection.
        timeouts: How often the API server is asked, if not as usual.
    """

    def __init__(
        self,
        settings: PluginSettings,
        pods: PodSource | None = None,
        *,
        connection: "Connection | None" = None,
        version: str = "",
        driver_calls: DriverCalls = KERNEL,
        record_event: Callable[[EventRecord], None] = lambda _: None,
        timeouts: "WatchTimeouts | None" = None,
    ) -> None:
        folder = plugins_folder(settings.kubelet_dir)
        self.settings = settings
        self.calls = BlockingCalls()
        self.state = NodeState(settings.mode)
        self.registry = http.new_registry()
        http.build_info(self.registry, "plugin", version)
        self.metrics = PluginMetrics(self.registry)
        self._api = self._api_server(connection, timeouts) if connection else None
        if self._api is not None:
            record_event, pods = self._api.record_event, self._api.pods
        events = NodeEvents(settings.node_name, record_event)
        self._mode = NodeMode(settings.mode, on_change=events.mode_changed)
        self._socket_names = SocketNames(folder)
        self._kubelet = KubeletWatch(folder)
        self.single_instance = SingleInstance(folder, self.calls, on_wait=events.second_plugin)
        scanner = Scanner(settings.root)
        self._cards = BusyCardFilter(scanner.scan, self.calls)
        self.observers = NodeObservers(settings, self.state, self.calls, driver_calls)
        policies = StartPolicies(
            settings,
            self.state,
            pods=pods,
            scan=scanner.scan,
            metrics=self.metrics,
            calls=self.calls,
            record_event=record_event,
            driver_calls=driver_calls,
        )
        self._parts = ProcessParts(
            settings=settings,
            state=self.state,
            metrics=self.metrics,
            kubelet=self._kubelet,
            next_path=self._next_path,
            scan=self._scan,
            calls=self.calls,
            policies=policies,
            events=events,
            observers=self.observers,
            driver_calls=driver_calls,
        )
        self.serving = ModeServing(settings.mode, self._parts)
        self._show(scanner)

    def _api_server(
        self, connection: "Connection", timeouts: "WatchTimeouts | None"
    ) -> "ApiServer":
        from plugin.api_server import ApiServer  # noqa: PLC0415 - see there

        return ApiServer(connection, self.settings.node_name, self.metrics, timeouts)

    def _show(self, scanner: Scanner) -> None:
        observers = self.observers
        self.metrics.show_mode(self._mode)
        self.metrics.show_node(
            self.state, observers.holders, observers.sensing, lambda: len(scanner.hanging)
        )
        self.metrics.show(observers.permissions)

    async def serve(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set.

        Raises:
            AccelbindError: It can't start, or can't go on in this container.
        """
        settings = self.settings
        self._socket_names.next()  # a folder whose path is too long is an error before all else
        server, reason = None, STOPPED
        try:
            server = await self._listen(stop)
            if server is not None:
                write_ports(settings.ports_file, {"metrics": server.port})
                log.info("plugin starts", **_announced(settings, server.port))
                reason = await self._run_tasks(stop)
        except ExceptionGroup as group:
            error = _innermost(group)
            if not isinstance(error, AccelbindError):
                log.exception("internal error")
            raise error from group
        finally:
            if server is not None:
                await server.close()
            self.single_instance.close()
        if reason == REMOVED:
            raise KubeletError(
                f"{self._kubelet.folder} was removed on the host, and this container still has the"
                " removed folder mounted: only a restarted container gets the new one"
            )
        log.info("plugin ended")

    async def _listen(self, stop: asyncio.Event) -> http.MetricsServer | None:
        """The server for probes and metrics, whose port a second plugin may have to wait for.

        Returns:
            None if the plugin was stopped before.

        Raises:
            WorldError: Another program has the port.
        """
        settings, tries = self.settings, 0
        devices = DevicesAnswer(
            self.state,
            node=settings.node_name,
            root=settings.root,
            kubelet_dir=settings.kubelet_dir,
            holders=self.observers.holders,
            permissions=self.observers.permissions,
        )
        routes = {"/healthz": self.healthz, "/readyz": self.readyz, "/devices": devices.respond}
        while True:
            if settings.metrics_port and self.single_instance.is_second():
                tries = PORT_TRIES
            # A first plugin that started in the same instant may be about to listen.
            if tries and await first_of({STOPPED: stop.wait()}, seconds=PORT_SECONDS):
                return None
            try:
                return await http.serve(
                    self.registry, settings.metrics_host, settings.metrics_port, routes
                )
            except WorldError as error:
                if not tries:
                    raise
                tries -= 1
                self.single_instance.wait_for_port(str(error))

    async def _run_tasks(self, stop: asyncio.Event) -> str:
        """Runs the tasks of the process; returns why it ends."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._kubelet.watch(), name="kubelet"),
                group.create_task(self.single_instance.check_forever(), name="single instance"),
            ]
            if self._api is not None:
                named = self._api.tasks(self._mode.update)
                tasks += [group.create_task(each, name=name) for name, each in named]
            reason = await self._serve_modes(stop)
            for task in tasks:
                task.cancel()
        return reason

    async def _serve_modes(self, stop: asyncio.Event) -> str:
        """Serves in the node's mode, while this plugin is the one that serves.

        Returns:
            Why that is over.
        """
        reason = ""
        while reason not in ENDS:
            ends = {STOPPED: stop.wait(), REMOVED: self._kubelet.removed()}
            first = await first_of({**ends, "ready": self._may_serve()}) or ""
            if first in ENDS:
                reason = first
                break
            mode = self._mode.choice.mode
            if mode is not self.serving.mode or reason:
                before = self.serving.handover if reason == ANOTHER_MODE else None
                self.serving = ModeServing(mode, self._parts, before)
            ends = {
                STOPPED: stop.wait(),
                REMOVED: self._kubelet.removed(),
                ANOTHER_PLUGIN: self.single_instance.second(),
                ANOTHER_MODE: self._mode.differs(mode),
            }
            reason = await self.serving.serve_until(ends, withdraw=frozenset({ANOTHER_MODE}))
            if reason not in ENDS:
                log.info("serving in this mode has ended", mode=mode.value, reason=reason)
        log.info("plugin ends", reason=reason)
        return reason

    async def _may_serve(self) -> None:
        await self.single_instance.first()
        if self._api is None or await self._mode.known(KNOWN_SECONDS):
            return
        folder = self._kubelet.folder
        with contextlib.suppress(HardwareError):
            last = await self.calls.run(
                "kubelet files",
                lambda: last_mode(folder),
                timeout=KNOWN_SECONDS,
                what=f"reading in {folder}",
            )
            self._mode.resume(last)

    async def healthz(self) -> probes.Answer:
        """Whether the process is alive."""
        return await probes.healthz(self.serving.registrations)

    async def readyz(self) -> probes.Answer:
        """Whether everything is registered."""
        if self.single_instance.waits_for:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"{self.single_instance.waits_for}\n"
        return await probes.readyz(self.state, self.serving.registrations)

    def _scan(self) -> Inventory:
        """The cards, in discovery's thread."""
        return self.observers.mark(self._cards.scan())

    def _next_path(self) -> Path:
        self.single_instance.claim()
        return self._socket_names.next()


def _innermost(group: ExceptionGroup[Exception]) -> Exception:
    first = group.exceptions[0]
    return _innermost(first) if isinstance(first, ExceptionGroup) else first


def _announced(settings: PluginSettings, port: int) -> dict[str, str | int]:
    return {
        "mode": settings.mode.value,
        "node": settings.node_name,
        "root": str(settings.root),
        "kubelet_dir": str(settings.kubelet_dir),
        "metrics_port": port,
    }
