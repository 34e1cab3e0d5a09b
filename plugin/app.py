"""The plugin process: what it is made of, how it starts, how it ends.

One event loop. Tasks: the look at the kubelet's folder, discovery, what wakes it when cards come
and go, an endpoint a resource; beside them the probes' small HTTP server. One daemon thread reads
files that may hang. SIGTERM or SIGINT ends discovery, then every endpoint (streams first, then
sockets), then the rest; a scan that hangs holds nobody up.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import structlog

from plugin import probes
from plugin.backoff import Backoff
from plugin.cdi import CdiPublisher
from plugin.clearing import ErrorClearing
from plugin.discovery import Discovery
from plugin.endpoint import Endpoint
from plugin.fleet import Fleet
from plugin.holders import HolderSource
from plugin.insight import Insight
from plugin.kubelet import KubeletWatch
from plugin.metrics import PluginMetrics
from plugin.options import PluginOptions
from plugin.precedence import Precedence
from plugin.prestart import FunctionGate, PodSource
from plugin.server import ResourceServer, StartGate
from plugin.sockets import SocketNames
from plugin.worker import DaemonExecutor, Worker
from services.domain.damping import Damping
from services.domain.devices import Device, PluginMode
from services.domain.tree import Tree
from services.hardware.scan import Scanner
from services.kubelet.channel import checkpoint_file, plugins_folder
from services.runtime import metrics as runtime_metrics
from services.runtime.card_events import follow_card_events
from services.runtime.ports_file import write_ports

END_SECONDS: Final = 4.0
"""For all endpoints to end; then they are left behind."""

log = structlog.get_logger(room="plugin")


async def run(options: PluginOptions) -> None:
    """Serves this node's cards to its kubelet until SIGTERM or SIGINT.

    Args:
        options: What it has to know.

    Raises:
        AccelbindError: It can't start: a port that is taken, a path that is too long, a
            kubeconfig that can't be used.
    """
    loop = asyncio.get_running_loop()
    loop.set_default_executor(DaemonExecutor())
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with _pods(options) as pods:
            plugin = Plugin(options, pods)
            await plugin.run(stop)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


@contextlib.asynccontextmanager
async def _pods(options: PluginOptions) -> AsyncIterator[PodSource | None]:
    """Access to the API server, where the mode needs it and something says how to reach it."""
    if options.mode is not PluginMode.REGION:
        yield None
        return
    # Only this mode pays for a Kubernetes client's memory.
    from services.cluster.client import ClusterClient, load_config  # noqa: PLC0415

    config = load_config(options.kubeconfig)
    if config is None:
        log.warning(
            "no access to the API server: in region mode no container will start; run with a"
            " service account that may get pods, or set --kubeconfig or KUBECONFIG"
        )
        yield None
        return
    async with ClusterClient(config) as client:
        yield client


class Plugin:
    """The parts of a plugin process, wired.

    Args:
        options: What it has to know.
        pods: The API server, if the mode needs it and it can be reached.
    """

    def __init__(self, options: PluginOptions, pods: PodSource | None) -> None:
        self._options = options
        self._registry = runtime_metrics.new_registry()
        runtime_metrics.build_info(self._registry, "plugin")
        self._metrics = PluginMetrics(self._registry)
        folder = plugins_folder(options.kubelet_dir)
        self._names = SocketNames(folder)
        self._kubelet = KubeletWatch(folder)
        self._workers: list[Worker] = []
        self._worker = self._own_worker("files")
        self._precedence = Precedence(folder, self._worker)
        self._scanner = Scanner(options.root)
        self._insight = Insight(
            options,
            discovery=lambda: self._discovery,
            metrics=self._metrics,
            reads=lambda: len(self._scanner.hanging),
            own_worker=self._own_worker,
        )
        self._discovery = Discovery(
            mode=options.mode,
            root=options.root,
            units=options.units,
            interval=options.scan_interval,
            damping=Damping(options.healthy_after, spacing=options.scan_interval / 2),
            scan=lambda: self._insight.judged(self._scanner.scan()),
            worker=self._worker,
            apply=self._apply,
            scanned=self._metrics.scanned,
        )
        self._cdi = self._cdi_publisher()
        self._clearing = self._error_clearing()
        self._gate = self._function_gate(pods)
        self._fleet: Fleet | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set.

        Raises:
            AccelbindError: It can't start.
        """
        options = self._options
        self._names.next()  # a folder whose path is too long is an error before anything starts
        server = await runtime_metrics.serve(
            self._registry,
            options.metrics_host,
            options.metrics_port,
            {"/healthz": self._healthz, "/readyz": self._readyz, **self._insight.routes},
        )
        try:
            write_ports(options.ports_file, {"metrics": server.port})
            log.info("plugin starts", **_announced(options, server.port))
            await self._work(stop)
        except ExceptionGroup as group:
            log.exception("mistake of ours")
            raise group.exceptions[0] from group
        finally:
            await server.close()
            for worker in self._workers:
                worker.close()
        log.info("plugin ended")

    async def _work(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            self._fleet = fleet = Fleet(self._endpoint, group)
            watching = group.create_task(self._kubelet.run(), name="kubelet")
            looking = [group.create_task(each, name=name) for name, each in self._looking()]
            await stop.wait()
            log.info("plugin ends")
            for task in looking:
                task.cancel()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await fleet.close()
            watching.cancel()

    def _looking(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What looks at the cards, calls for a look, or does something about what was seen."""
        yield "discovery", self._discover()
        yield from self._insight.tasks()
        if self._cdi is not None:
            yield "cdi", self._cdi.run()
        if self._clearing is not None:
            yield "clearing", self._clearing.run()
        if self._options.mode is not PluginMode.UNITS:
            yield "card events", follow_card_events(self._options.root, self._discovery.look_now)

    async def _discover(self) -> None:
        await self._precedence.wait()
        await self._discovery.run()

    async def _healthz(self) -> probes.Answer:
        return await probes.healthz(self._fleet.endpoints if self._fleet else {})

    async def _readyz(self) -> probes.Answer:
        if self._precedence.waits_for:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"{self._precedence.waits_for}\n"
        return await probes.readyz(self._discovery, self._fleet.endpoints if self._fleet else {})

    def _apply(self, tree: Tree) -> None:
        self._insight.take(self._discovery.inventory)
        if self._cdi is not None:
            self._cdi.take(tree)
        if self._clearing is not None and self._discovery.inventory is not None:
            self._clearing.take(self._discovery.inventory)
        if self._fleet is not None:
            self._fleet.apply(tree)

    def _cdi_publisher(self) -> CdiPublisher | None:
        folder, host_root = self._options.cdi_dir, str(self._options.host_root)
        if folder is None:
            return None
        return CdiPublisher(folder, host_root=host_root, worker=self._own_worker("cdi"))

    def _error_clearing(self) -> ErrorClearing | None:
        options = self._options
        if not options.clear_errors or options.mode is PluginMode.UNITS:
            return None
        holders = HolderSource(
            kubelet_dir=options.kubelet_dir, pod_logs_dir=options.pod_logs_dir, worker=self._worker
        )
        return ErrorClearing(
            options.root,
            holders=holders.read,
            worker=self._own_worker("errors"),
            counted=self._metrics.errors_cleared,
            look_now=self._discovery.look_now,
        )

    def _own_worker(self, name: str) -> Worker:
        """A thread for what may hang and must not hold up the reading of files."""
        worker = Worker(name)
        self._workers.append(worker)
        return worker

    def _function_gate(self, pods: PodSource | None) -> StartGate | None:
        options = self._options
        if options.mode is not PluginMode.REGION:
            return None
        return FunctionGate(
            checkpoint=checkpoint_file(options.kubelet_dir),
            pod_logs_dir=options.pod_logs_dir,
            node=options.node_name,
            pods=pods,
            fresh_tree=lambda seconds: self._discovery.fresh_tree(seconds=seconds),
            worker=self._worker,
        )

    def _endpoint(self, resource: str, devices: Mapping[str, Device]) -> Endpoint:
        def make_server(now: Mapping[str, Device]) -> ResourceServer:
            return ResourceServer(
                resource,
                now,
                mode=self._options.mode,
                device_root=str(self._options.host_root),
                gate=self._gate,
                counters=self._metrics,
                cdi=self._named_by_cdi,
            )

        return Endpoint(
            resource,
            devices,
            make_server=make_server,
            next_path=self._names.next,
            kubelet=self._kubelet,
            registered=self._metrics.registered,
            backoff=Backoff(),
        )

    def _named_by_cdi(self) -> frozenset[str]:
        return self._cdi.published if self._cdi and self._options.cdi else frozenset()


def _announced(options: PluginOptions, port: int) -> dict[str, str | int]:
    return {
        "mode": options.mode.value,
        "node": options.node_name,
        "root": str(options.root),
        "kubelet_dir": str(options.kubelet_dir),
        "metrics_port": port,
    }
