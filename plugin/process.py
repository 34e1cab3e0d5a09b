"""The process of a node: how it starts, serves its devices by one API, and ends.

It waits for the node's lock: one accelbind per node. SIGTERM or SIGINT ends it. It finishes claims
that are being prepared. A container that is about to start waits for the next process: the kubelet
asks again, and that process programs the container's card.
"""

import asyncio
import contextlib
import gc
from collections.abc import Coroutine, Mapping
from typing import Any, Final

import structlog

from plugin.device_plugin.face import DevicePlugin
from plugin.dra.face import DraDriver, written_folders
from plugin.mode import (
    ModeChoice,
    ModeMetrics,
    ask_once,
    ask_until_answered,
    choose,
    without_annotation,
)
from plugin.node_process import Face, NodeProcess
from plugin.probes import Probes
from plugin.settings import Api, PluginSettings
from services.devices.model import PluginMode
from services.kube.access import find_access, require_access
from services.kube.client import ClusterClient
from services.node.events import EventReason
from services.node.last_mode import last_mode
from services.process.blocking import DaemonExecutor
from services.process.errors import AccelbindError, ClusterError, HardwareError
from services.process.http import MetricsServer
from services.process.listening import write_ports
from services.process.signals import stop_signals
from services.process.waits import first_of, innermost
from services.programming.ioctls import KERNEL, DriverCalls

READY: Final = "ready"
STOPPED: Final = "stopped"
LOCK_LOST: Final = "another plugin has the lock"
ANOTHER_MODE: Final = "the node has another mode"

LAST_MODE_SECONDS: Final = 2.0
"""For reading the mode that was served last."""

log = structlog.get_logger(component="plugin")


async def run(
    settings: PluginSettings, *, version: str = "", driver_calls: DriverCalls | None = None
) -> None:
    """Serve this node's devices to its kubelet until SIGTERM or SIGINT.

    Raises:
        AccelbindError: It can't start: a port is in use, a path is too long, the service account
            can't be used, or there is none with `--api dra`. Or it has to start again, to serve in
            another mode.
    """
    asyncio.get_running_loop().set_default_executor(DaemonExecutor())
    connection = None
    with stop_signals() as stop:
        find = require_access if settings.api is Api.DRA else find_access
        access = find(settings.api_server)
        if access is not None:
            connection = ClusterClient(access)
        else:
            log.warning(
                "no access to the API server: --mode counts whatever the node's annotation says, no"
                " Events are written, and in region mode no container starts; run with a service"
                " account that may get pods, or set --api-server"
            )
        plugin = Plugin(settings, connection, driver_calls=driver_calls or KERNEL, version=version)
        # Objects of the start live on; a garbage collection that visits them takes 50 ms.
        gc.freeze()
        try:
            await plugin.serve(stop)
        finally:
            if connection is not None:
                await connection.aclose()


class Plugin:
    """A plugin process; an empty version is looked up.

    Raises:
        KubeletError: The path of the kubelet's folder is too long for sockets in it.
    """

    def __init__(
        self,
        settings: PluginSettings,
        connection: ClusterClient | None = None,
        *,
        driver_calls: DriverCalls = KERNEL,
        version: str = "",
    ) -> None:
        self.settings = settings
        self.process = process = NodeProcess(
            "dra" if settings.api is Api.DRA else "plugin",
            settings,
            connection,
            folders=written_folders(settings) if settings.api is Api.DRA else [settings.cdi_dir],
            driver_calls=driver_calls,
            version=version,
        )
        self.probes = Probes(settings, process)
        self.choice = ModeChoice(settings.mode, "flag")
        self._connection = connection
        self._last_mode: PluginMode | None = None
        self._is_asking = False
        """Whether the API server has not returned the node's annotations yet."""
        self._mode_metrics = None
        if settings.api is Api.DEVICE_PLUGIN:
            self._mode_metrics = ModeMetrics(process.registry)
            self._mode_metrics.show(self.choice)

    @property
    def face(self) -> Face | None:
        """The face that serves; None before the mode is known."""
        return self.probes.face

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set.

        Raises:
            AccelbindError: It can't start, or can't go on in this container.
        """
        # Probes answer from the start, also while this plugin waits for the lock.
        settings, folder = self.settings, self.process.folder
        server = MetricsServer(
            self.process.registry, self.probes.routes, before_scrape=self.probes.read_sensors
        )
        await server.start(settings.metrics_host, settings.metrics_port)
        try:
            write_ports(settings.ports_file, {"metrics": server.port})
            log.info(
                "plugin starts",
                api=settings.api.value,
                node=settings.node_name,
                root=str(settings.root),
                kubelet_dir=str(settings.kubelet_dir),
                metrics_port=server.port,
            )
            if idle := settings.idle_flags:
                log.warning("flags have no effect with this API", flags=idle)
            reason = await self._run_tasks(stop)
        except ExceptionGroup as group:
            error = innermost(group)
            if group.split(AccelbindError)[1] is not None:  # an error of ours, first or not
                log.exception("internal error")
            raise error from group
        finally:
            await server.close()
            folder.lock.close()
        log.info("plugin ends", reason=reason, folder=str(folder.path))
        if reason == LOCK_LOST:
            folder.lock.require()  # raises
        if reason == ANOTHER_MODE:
            raise ClusterError(
                "the API server didn't answer when this plugin began to serve, and says now that"
                f" the node has mode {self.choice.mode}: only a restarted plugin serves in it"
            )
        log.info("plugin ended")

    async def _run_tasks(self, stop: asyncio.Event) -> str:
        """Run the tasks of the process; return why it ends."""
        process = self.process
        tasks = {"kubelet": process.folder.check_forever(), **dict(process.loops())}
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(each, name=name) for name, each in tasks.items()]
            reason = await first_of({**self._ends(stop), READY: self._become_ready()})
            if reason == READY:
                reason = await self._serve(stop)
            for task in running:
                task.cancel()
        return reason

    def _ends(self, stop: asyncio.Event) -> dict[str, Coroutine[Any, Any, object]]:
        folder = self.process.folder
        ends: dict[str, Coroutine[Any, Any, object]] = {
            STOPPED: stop.wait(),
            LOCK_LOST: folder.until(lambda: folder.lock.is_lost),
        }
        if self._is_asking and self._connection is not None:
            ends[ANOTHER_MODE] = self._until_another_mode(self._connection)
        return ends

    async def _become_ready(self) -> None:
        """Wait for the lock, then decide about the node's mode."""
        folder, lock = self.process.folder, self.process.folder.lock
        await folder.until(lambda: lock.is_active or bool(lock.waits_for))
        if lock.waits_for:
            text = f"{lock.waits_for}: this one waits until it ends"
            self._record("plugin", EventReason.SECOND_PLUGIN, text)
        await folder.until(lambda: lock.is_active)
        if self.settings.api is Api.DRA:
            self.choice = ModeChoice(self.settings.dra_mode, "flag")
        elif self._connection is not None:
            self._last_mode = await self._read_last_mode()
            self._decide(await ask_once(self._connection, self.settings.node_name))

    async def _read_last_mode(self) -> PluginMode | None:
        folder = self.process.folder.path
        with contextlib.suppress(HardwareError):  # it hangs: then --mode counts
            return await self.process.calls.run(
                "kubelet files",
                lambda: last_mode(folder),
                timeout=LAST_MODE_SECONDS,
                what=f"reading in {folder}",
            )
        return None

    def _decide(self, annotations: Mapping[str, str] | None) -> None:
        """Note the node's mode, and report it; None if its annotations are unknown."""
        configured, last = self.settings.mode, self._last_mode
        self._is_asking = annotations is None
        if annotations is None:
            now = without_annotation(configured, last)
        else:
            now = choose(configured, last, annotations)
        self.choice = now
        if self._mode_metrics is not None:
            self._mode_metrics.show(now)
        if annotations is None:
            return
        if now.error:
            log.warning("the node's annotation is not understood", reason=now.error)
            self._record("mode", EventReason.MODE_ANNOTATION_INVALID, now.error)
        elif last not in (None, now.mode):
            why = "its annotation says so" if now.source == "annotation" else "it has no annotation"
            text = f"mode {now.mode}: {why}; it was {last}"
            self._record("mode", EventReason.MODE_CHANGED, text)

    def _record(self, subject: str, reason: EventReason, text: str) -> None:
        self.process.events.record_on_node(subject, reason, text, warning=reason.warning)

    async def _serve(self, stop: asyncio.Event) -> str:
        """Serve until one of the ends has come, and return its name."""
        face = self.probes.face = self._face()
        self.probes.mode = self.choice.mode
        async with asyncio.TaskGroup() as group:
            running = group.create_task(face.run())
            reason = await first_of(self._ends(stop))
            running.cancel()
        return reason

    def _face(self) -> Face:
        settings, process, choice = self.settings, self.process, self.choice
        if settings.api is Api.DRA:
            if self._connection is None:
                raise ClusterError("--api dra needs an API server: set --api-server")
            return DraDriver(settings, process, self._connection)
        log.info("the node's mode", mode=choice.mode.value, source=choice.source)
        return DevicePlugin(choice.mode, settings, process)

    async def _until_another_mode(self, connection: ClusterClient) -> None:
        """Ask for the annotations until they are known; return if they name another mode."""
        served = self.choice.mode
        self._decide(await ask_until_answered(connection, self.settings.node_name))
        if self.choice.mode is served:
            await asyncio.Event().wait()
