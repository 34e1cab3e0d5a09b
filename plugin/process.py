"""The plugin process: how it starts, serves one mode of its node after the other, and ends."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final

import structlog

from plugin.composition import ModeParts, ProcessParts
from plugin.node_mode import KNOWN_SECONDS
from plugin.probes import Probes
from plugin.settings import PluginSettings
from services.devices.model import PluginMode
from services.kube.config import may_reach
from services.kube.connection import ApiConnection, connector
from services.kube.list_watch import USUAL_TIMING, WatchTiming
from services.kube.node_watcher import NodeWatcher
from services.node.last_mode import last_mode
from services.process.blocking import DaemonExecutor
from services.process.errors import AccelbindError, HardwareError, KubeletError
from services.process.http import MetricsServer
from services.process.listening import write_ports
from services.process.signals import stop_signals
from services.process.waits import Waits, first_of, innermost
from services.programming.ioctls import KERNEL, DriverCalls

READY: Final = "ready"
ANOTHER_MODE: Final = "another mode"
STOPPED: Final = "stopped"
REMOVED: Final = "the kubelet's folder was removed"
LOCK_LOST: Final = "another plugin has the lock"

log = structlog.get_logger(component="plugin")


async def run(
    settings: PluginSettings, *, version: str = "", driver_calls: DriverCalls | None = None
) -> None:
    """Serve this node's cards to its kubelet until SIGTERM or SIGINT.

    Raises:
        AccelbindError: It can't start: a port is in use, a path is too long, or the kubeconfig
            can't be used.
    """
    asyncio.get_running_loop().set_default_executor(DaemonExecutor())
    connection = None
    with stop_signals() as stop:
        if may_reach(settings.kubeconfig):
            connection = ApiConnection(connector(settings.kubeconfig))
        else:
            log.warning(
                "no access to the API server: --mode counts whatever the node's annotation says, no"
                " Events are written, and in region mode no container starts; run with a service"
                " account that may get pods, or set --kubeconfig or KUBECONFIG"
            )
        parts = ProcessParts(
            settings, connection, version=version, driver_calls=driver_calls or KERNEL
        )
        try:
            await Plugin(parts).serve(stop)
        finally:
            if connection is not None:
                await connection.aclose()


class Plugin:
    """A plugin process."""

    def __init__(self, parts: ProcessParts, watch_timing: WatchTiming = USUAL_TIMING) -> None:
        self.parts = parts
        self.serving: ModeParts | None = None
        """What serves in the node's mode; None before the first one."""
        self.probes = Probes(parts, lambda: self.serving)
        self._watch_timing = watch_timing

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set.

        Raises:
            AccelbindError: It can't start, or can't go on in this container.
        """
        # Probes answer from the start, also while this plugin waits for the lock.
        settings, folder = self.parts.settings, self.parts.folder
        server = MetricsServer(
            self.parts.registry, self.probes.routes, before_scrape=self._read_sensors
        )
        await server.start(settings.metrics_host, settings.metrics_port)
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
            error = innermost(group)
            if not isinstance(error, AccelbindError):
                log.exception("internal error")
            raise error from group
        finally:
            await server.close()
            folder.lock.close()
        if reason == REMOVED:
            raise KubeletError(
                f"{folder.path} was removed on the host, and this container still has the removed"
                " folder mounted: only a restarted container gets the new one"
            )
        if reason == LOCK_LOST:
            folder.lock.require()  # raises
        log.info("plugin ended")

    async def _read_sensors(self) -> None:
        if self.serving is not None:
            await self.serving.node.collector.read_sensors()

    async def _run_tasks(self, stop: asyncio.Event) -> str:
        """Run the tasks of the process; return why it ends."""
        parts = self.parts
        tasks = {"kubelet": parts.folder.check_forever(), **dict(parts.loops())}
        if parts.connection is not None:
            watcher = NodeWatcher(
                parts.settings.node_name,
                parts.connection,
                parts.mode.update,
                timing=self._watch_timing,
                on_failure=parts.metrics.watch_failures.labels("Node").inc,
            )
            tasks["node"] = watcher.watch_forever()
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(each, name=name) for name, each in tasks.items()]
            reason = await self._serve_modes(stop)
            for task in running:
                task.cancel()
        return reason

    async def _serve_modes(self, stop: asyncio.Event) -> str:
        """Serve in one mode after the other; return why that is over."""
        folder, node_mode = self.parts.folder, self.parts.mode
        reason = await first_of({**self._ends(stop), READY: self._may_serve()})
        while reason in (READY, ANOTHER_MODE):
            mode = node_mode.choice.mode
            reason = await self._serve_mode(
                mode, {**self._ends(stop), ANOTHER_MODE: node_mode.differs(mode)}
            )
            log.info("serving in this mode has ended", mode=mode.value, reason=reason)
        log.info("plugin ends", reason=reason, folder=str(folder.path))
        return reason

    def _ends(self, stop: asyncio.Event) -> dict[str, Coroutine[Any, Any, object]]:
        folder = self.parts.folder
        return {
            STOPPED: stop.wait(),
            REMOVED: folder.until(lambda: folder.removed),
            LOCK_LOST: folder.until(lambda: folder.lock.is_lost),
        }

    async def _may_serve(self) -> None:
        """Wait for the lock, then for the node's mode, or for what counts in its place."""
        folder, lock, mode = self.parts.folder, self.parts.folder.lock, self.parts.mode
        await folder.until(lambda: lock.is_active or bool(lock.waits_for))
        if lock.waits_for:
            self.parts.plugin_events.second_plugin(lock.waits_for)
        await folder.until(lambda: lock.is_active)
        if self.parts.connection is None or await mode.known(KNOWN_SECONDS):
            return
        with contextlib.suppress(HardwareError):  # it hangs: then --mode counts
            last = await self.parts.calls.run(
                "kubelet files",
                lambda: last_mode(folder.path),
                timeout=KNOWN_SECONDS,
                what=f"reading in {folder.path}",
            )
            mode.resume(last)

    async def _serve_mode(self, mode: PluginMode, ends: Waits) -> str:
        """Serve in a mode until the first of some ends has come, and return its name."""
        async with asyncio.TaskGroup() as group:
            self.serving = ModeParts(mode, self.parts, group)
            running = group.create_task(self.serving.run())
            reason = await first_of(ends)
            # The scans end first: none of them may offer again what is then withdrawn.
            running.cancel()
            await asyncio.wait([running])
            if reason == ANOTHER_MODE:
                # A stream that ends without an empty list leaves the old capacity behind for
                # minutes. A list that can't be sent now is sent in the next mode. When the process
                # ends, none is sent: the devices will be back soon, and the kubelet keeps their
                # number meanwhile.
                self.serving.resources.withdraw()
            self.serving.resources.close()
        return reason
