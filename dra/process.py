"""The process of the DRA driver: how it starts, serves, and ends.

One event loop. It waits until it has the node's lock, as the device plugin does: one accelbind per
node. Then the node's cards are scanned, slices are published, and the kubelet is served.

SIGTERM or SIGINT ends the sockets first, which finishes calls of the kubelet that are running, and
then the rest. What the driver has prepared stays prepared: the next one finds it on the disk.
"""

import asyncio

import structlog

from dra.composition import DraParts
from dra.probes import Probes
from dra.settings import DraSettings
from services.devices.model import PluginMode
from services.kube.config import NO_KUBECONFIG, may_reach
from services.kube.connection import ApiConnection, connector
from services.node.last_mode import ModeKeeper, enter_mode
from services.process.blocking import DaemonExecutor
from services.process.errors import AccelbindError, ClusterError
from services.process.http import MetricsServer
from services.process.listening import write_ports
from services.process.signals import stop_signals
from services.process.waits import innermost
from services.programming.ioctls import KERNEL, DriverCalls

log = structlog.get_logger(component="dra")


async def run(
    settings: DraSettings, *, version: str = "", driver_calls: DriverCalls | None = None
) -> None:
    """Serve this node's devices to DRA until SIGTERM or SIGINT.

    Raises:
        AccelbindError: It can't start: there is no API server, a port is in use, or a path is too
            long.
    """
    asyncio.get_running_loop().set_default_executor(DaemonExecutor())
    if not may_reach(settings.kubeconfig):
        raise ClusterError(NO_KUBECONFIG)
    with stop_signals() as stop:
        connection = ApiConnection(connector(settings.kubeconfig))
        try:
            parts = DraParts(
                settings, connection, version=version, driver_calls=driver_calls or KERNEL
            )
            await Dra(parts).serve(stop)
        finally:
            await connection.aclose()


class Dra:
    """A process of the DRA driver."""

    def __init__(self, parts: DraParts) -> None:
        self.parts = parts
        self.probes = Probes(parts)

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set.

        Raises:
            AccelbindError: It can't start, or can't go on.
        """
        parts, settings = self.parts, self.parts.settings
        server = MetricsServer(
            parts.registry, self.probes.routes, before_scrape=parts.node.collector.read_sensors
        )
        await server.start(settings.metrics_host, settings.metrics_port)
        try:
            write_ports(settings.ports_file, {"metrics": server.port})
            log.info(
                "DRA driver starts",
                node=settings.node_name,
                root=str(settings.root),
                kubelet_dir=str(settings.kubelet_dir),
                metrics_port=server.port,
            )
            async with asyncio.TaskGroup() as group:
                serving = group.create_task(self._serve())
                await stop.wait()
                serving.cancel()
        except ExceptionGroup as failed:
            error = innermost(failed)
            if not isinstance(error, AccelbindError):
                log.exception("internal error")
            raise error from failed
        finally:
            await server.close()
            parts.folder.lock.close()
        log.info("DRA driver ended")

    async def _serve(self) -> None:
        """Serve from when this process has the node's lock, until cancelled."""
        parts, folder = self.parts, self.parts.folder
        mode = PluginMode.REGION
        async with asyncio.TaskGroup() as group:
            group.create_task(folder.check_forever(), name="kubelet")
            await folder.until(lambda: folder.lock.is_active)
            keeper = ModeKeeper(parts.node.state, folder.path, parts.calls, parts.files)
            may_note = await enter_mode(
                mode, folder.path, parts.records, parts.calls, keep_empty=True
            )
            self.probes.waits_for = "the first scan is under way"
            for name, loop in parts.loops():
                group.create_task(loop, name=name)
            group.create_task(self._keep_lock(), name="lock")
            if may_note:
                group.create_task(keeper.keep_forever(), name="mode")
            await parts.upkeep.checked.wait()  # it follows the first scan
            self.probes.waits_for = ""
            await parts.registration.serve_forever()  # cancelled, it finishes running calls first

    async def _keep_lock(self) -> None:
        """Wait until the lock is lost, in a folder that the kubelet has made anew.

        Raises:
            KubeletError: Another process was faster there.
        """
        folder = self.parts.folder
        await folder.until(lambda: folder.lock.is_lost)
        folder.lock.require()
