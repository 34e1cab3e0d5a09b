"""The plugin process: what it consists of, how it starts and how it ends.

One event loop. These tasks run while the process does: the check of the kubelet's folder, the watch
of this node, and the writing of Events. What serves in the node's mode (`plugin.mode_serving`) is
replaced as a whole when the mode changes. An HTTP server answers probes and scrapes. Daemon threads
read files that may hang.

SIGTERM or SIGINT ends discovery, then every registration (streams first, then sockets), then the
rest; a scan that hangs delays nothing.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import structlog

from plugin.kubelet_folder import KubeletFolder
from plugin.mode_serving import ANOTHER_MODE, ModeServing, first_of
from plugin.node_mode import KNOWN_SECONDS
from plugin.node_parts import NodeParts
from plugin.probes import ProbeResult, devices, healthz, readyz
from plugin.settings import PluginSettings
from plugin.start_policies import StartPolicies
from services.devices.model import PluginMode
from services.kube.config import may_reach
from services.kube.connection import Connection, connector
from services.kube.list_watch import USUAL_TIMING, WatchTiming
from services.kube.node_watcher import NodeWatcher
from services.kubelet.sockets import plugins_folder
from services.node.last_mode import last_mode
from services.process.blocking import DaemonExecutor
from services.process.errors import AccelbindError, HardwareError, KubeletError
from services.process.http import MetricsServer, Route
from services.process.listening import write_ports
from services.process.signals import stop_signals
from services.programming.ioctls import KERNEL, DriverCalls

READY: Final = "ready"
STOPPED: Final = "stopped"
ANOTHER_PLUGIN: Final = "another plugin"
REMOVED: Final = "the kubelet's folder was removed"
ENDS: Final = (STOPPED, REMOVED)
"""What ends the process, and not only what it serves."""

log = structlog.get_logger(component="plugin")


async def run(
    settings: PluginSettings, *, version: str = "", driver_calls: DriverCalls | None = None
) -> None:
    """Serve this node's cards to its kubelet until SIGTERM or SIGINT.

    `driver_calls` makes the ioctls of the cards' drivers, if not the kernel. An empty version is
    looked up.

    Raises:
        AccelbindError: It can't start: a port is in use, a path is too long, or the kubeconfig
            can't be used.
    """
    asyncio.get_running_loop().set_default_executor(DaemonExecutor())
    connection = None
    with stop_signals() as stop:
        if may_reach(settings.kubeconfig):
            connection = Connection(connector(settings.kubeconfig))
        else:
            _log_no_api_server(settings.mode)
        parts = NodeParts(
            settings, connection, version=version, driver_calls=driver_calls or KERNEL
        )
        try:
            await Plugin(parts).serve(stop)
        finally:
            if connection is not None:
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
    """A plugin process; `watch_timing` says how often the API server is queried."""

    def __init__(self, parts: NodeParts, watch_timing: WatchTiming = USUAL_TIMING) -> None:
        self.parts = parts
        self.folder = KubeletFolder(
            plugins_folder(parts.settings.kubelet_dir), on_wait=parts.events.second_plugin
        )
        self._watch_timing = watch_timing
        self._policies = StartPolicies(parts)
        self.serving = self._create_serving(parts.settings.mode)

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set.

        Raises:
            AccelbindError: It can't start, or can't go on in this container.
        """
        settings = self.parts.settings
        server = await self._listen()
        try:
            write_ports(settings.ports_file, {"metrics": server.port})
            log.info(
                "plugin starts",
                mode=settings.mode.value,
                node=settings.node_name,
                root=str(settings.root),
                kubelet_dir=str(settings.kubelet_dir),
                metrics_port=server.port,
            )
            reason = await self._run_tasks(stop)
        except ExceptionGroup as group:
            error = _innermost(group)
            if not isinstance(error, AccelbindError):
                log.exception("internal error")
            raise error from group
        finally:
            await server.close()
            self.folder.close()
        if reason == REMOVED:
            raise KubeletError(
                f"{self.folder.path} was removed on the host, and this container still has the"
                " removed folder mounted: only a restarted container gets the new one"
            )
        log.info("plugin ended")

    async def _listen(self) -> MetricsServer:
        """The server for probes and metrics."""
        parts, settings = self.parts, self.parts.settings
        routes: dict[str, Route] = {
            "/healthz": self.healthz,
            "/readyz": self.readyz,
            "/devices": partial(devices, parts),
        }
        host, port = settings.metrics_host, settings.metrics_port
        server = MetricsServer(parts.registry, routes)
        await server.start(host, port)
        return server

    async def _run_tasks(self, stop: asyncio.Event) -> str:
        """Run the tasks of the process; return why it ends."""
        tasks = {"kubelet": self.folder.check_forever()}
        parts = self.parts
        if parts.connection is not None and parts.recorder is not None:
            watcher = NodeWatcher(
                parts.settings.node_name,
                parts.connection,
                parts.mode.update,
                timing=self._watch_timing,
                on_failure=parts.metrics.watch_failures.labels("Node").inc,
            )
            tasks |= {"node": watcher.watch_forever(), "events": parts.recorder.write_forever()}
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(each, name=name) for name, each in tasks.items()]
            reason = await self._serve_modes(stop)
            for task in running:
                task.cancel()
        return reason

    async def _serve_modes(self, stop: asyncio.Event) -> str:
        """Serve in the node's mode, while this plugin is the one that serves.

        Returns:
            Why that is over.
        """
        reason = ""
        while reason not in ENDS:
            first = await first_of({**self._ends(stop), READY: self._may_serve()})
            if first != READY:
                reason = first
                break
            mode = self.parts.mode.choice.mode
            if mode is not self.serving.mode or reason:
                self.serving = self._create_serving(mode, reason)
            reason = await self.serving.serve_until(
                {
                    **self._ends(stop),
                    ANOTHER_PLUGIN: self.folder.until(lambda: not self.folder.first),
                    ANOTHER_MODE: self.parts.mode.differs(mode),
                }
            )
            if reason not in ENDS:
                log.info("serving in this mode has ended", mode=mode.value, reason=reason)
        log.info("plugin ends", reason=reason)
        return reason

    def _ends(self, stop: asyncio.Event) -> dict[str, Coroutine[Any, Any, object]]:
        return {STOPPED: stop.wait(), REMOVED: self.folder.until(lambda: self.folder.removed)}

    def _create_serving(self, mode: PluginMode, reason: str = "") -> ModeServing:
        before = self.serving.handover if reason == ANOTHER_MODE else None
        return ModeServing(mode, self.parts, self.folder, self._policies, before)

    async def _may_serve(self) -> None:
        await self.folder.until(lambda: self.folder.first)
        if self.parts.connection is None or await self.parts.mode.known(KNOWN_SECONDS):
            return
        folder = self.folder.path
        with contextlib.suppress(HardwareError):
            last = await self.parts.calls.run(
                "kubelet files",
                lambda: last_mode(folder),
                timeout=KNOWN_SECONDS,
                what=f"reading in {folder}",
            )
            self.parts.mode.resume(last)

    async def healthz(self) -> ProbeResult:
        """Whether the process is alive."""
        return await healthz(self.serving.registrations)

    async def readyz(self) -> ProbeResult:
        """Whether everything is registered."""
        if self.folder.waits_for:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"{self.folder.waits_for}\n"
        return readyz(self.parts.state, self.serving.registrations)


def _innermost(group: ExceptionGroup[Exception]) -> Exception:
    first = group.exceptions[0]
    return _innermost(first) if isinstance(first, ExceptionGroup) else first
