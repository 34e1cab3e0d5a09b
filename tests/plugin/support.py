"""What the tests of this room share."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from plugin.device_plugin.face import DevicePlugin
from plugin.process import Plugin
from plugin.settings import PluginSettings
from services.bitstreams.storage import BitstreamStorage
from services.containers.pod_source import ApiServerPods
from services.devices.model import PluginMode
from services.kube.client import ClusterClient
from services.kube.events import EventRecord
from services.kubelet.sockets import plugins_folder
from services.mappings.index import MappingIndex, NamespaceMappings
from simulator.apiserver.standin import ApiServerStandIn
from simulator.bitstreams import make_gbs
from simulator.cards import A10_INTERFACE, NLB0, NLB3, CardSpec, Rack
from simulator.driver import SimulatedCalls, raw_bitstream
from simulator.kubelet.pods import PodState
from simulator.kubelet.standin import KubeletStandIn
from tests.recorded import record_ports, write_last_mode
from tests.services import building
from tests.support import Process, Processes

AF = "fpga.intel.com/af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"
"""The resource of NLB0 on an A10 card."""

REGION = f"fpga.intel.com/region-{A10_INTERFACE}"


def settings(folder: Path, **values: Any) -> PluginSettings:
    """Settings for a rack in `root` and a kubelet in `k`."""
    defaults: dict[str, Any] = {
        "root": folder / "root",
        "kubelet_dir": folder / "k",
        "pod_logs_dir": folder / "k/pod-logs",
        "node_name": "n1",
        "metrics_host": "127.0.0.1",
        "metrics_port": 0,
        "ports_file": folder / "ports",
        "scan_interval": 0.05,
        "bitstreams": folder / "bitstreams",
        "state_dir": folder / "state",
    }
    return PluginSettings(**(defaults | values))


def install(folder: Path, *afus: str, carrying: str = "") -> None:
    """Install synthetic bitstreams; `carrying` is what is in them whatever they say."""
    for afu in afus:
        data = make_gbs(A10_INTERFACE, afu, raw_bitstream(carrying or afu))
        install_file(folder, "new.gbs", data)


def install_file(folder: Path, name: str, data: bytes) -> None:
    """Install a file of bitstreams."""
    source = folder / name
    source.write_bytes(data)
    BitstreamStorage(folder / "bitstreams").install(source, force=True)


async def unready(plugin: Plugin) -> str:
    """The reasons why a plugin or driver isn't ready; empty if it is."""
    status, text = await plugin.probes.readyz()
    return "" if status == HTTPStatus.OK else text


async def is_ready(plugin: Plugin) -> bool:
    return await unready(plugin) == ""


class Pods(ApiServerPods):
    """An API server that has just these pods."""

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.error: Exception | None = None
        self.delay: asyncio.Event | None = None
        self.asked = 0
        self.mapped = mapping_both_functions()

    def add(self, pod: dict[str, Any]) -> dict[str, Any]:
        metadata = pod["metadata"]
        self.pods[metadata["namespace"], metadata["name"]] = pod
        return pod

    async def get_pod(self, namespace: str, name: str) -> bytes | None:
        self.asked += 1
        if self.delay is not None:
            await self.delay.wait()
        if self.error is not None:
            raise self.error
        pod = self.pods.get((namespace, name))
        return None if pod is None else json.dumps(pod).encode()

    async def mappings(self, namespace: str) -> NamespaceMappings:
        if self.error is not None:
            raise self.error
        return self.mapped.namespace(namespace)


def mapping_both_functions(mode: str = "region") -> MappingIndex:
    """The mappings of namespace ns, which has both functions of A10 cards and their region."""
    nlb0, nlb3 = (
        building.function(name, mode, afu=afu, namespace="ns")
        for name, afu in (("m0", NLB0), ("m1", NLB3))
    )
    return building.index(nlb0, nlb3, building.region("m2", namespace="ns"))


def functions(*afus: str) -> list[dict[str, str]]:
    """Env as the webhook writes it."""
    pairs = [building.pair(number, afu=afu) for number, afu in enumerate(afus, 1)]
    return [each for both in pairs for each in both]


def serving(plugin: Plugin) -> DevicePlugin:
    """What serves in the node's mode, which must have begun."""
    assert isinstance(plugin.face, DevicePlugin)
    return plugin.face


def container(
    name: str, resource: str, count: int = 1, env: list[dict[str, str]] | None = None
) -> dict[str, Any]:
    return building.container(name, {resource: str(count)}, env=env)


def pod(
    name: str, *containers: dict[str, Any], init: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """A pod bound to node n1."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-of-{name}"},
        "spec": {"nodeName": "n1", "containers": list(containers), "initContainers": init or []},
    }


@asynccontextmanager
async def running(
    options: PluginSettings,
    pods: Pods | None = None,
    *,
    api: ApiServerStandIn | None = None,
    events: list[EventRecord] | None = None,
) -> AsyncIterator[Plugin]:
    """The plugin in this process; ends it as SIGTERM would.

    It gets pods from `pods`, or is connected to `api`. Without an API server its Events go to
    `events`.
    """
    stop = asyncio.Event()
    connection = ClusterClient(api.access) if api else None
    plugin = Plugin(options, connection, driver_calls=SimulatedCalls())
    plugin.process.pods = pods or plugin.process.pods
    if events is not None:
        plugin.process.events.record = events.append  # type: ignore[assignment,method-assign]
    task = asyncio.create_task(plugin.serve(stop))
    try:
        yield plugin
    finally:
        stop.set()
        try:
            async with asyncio.timeout(60):
                await task
        finally:
            if connection is not None:
                await connection.aclose()


def start_plugin(
    processes: Processes, folder: Path, *flags: str | Path, env: Mapping[str, str] | None = None
) -> Process:
    """Start the plugin as a process, for a rack in `root` and a kubelet in `k`."""
    return processes.simulated_plugin(
        *("--root", folder / "root", "--kubelet-dir", folder / "k", "--node-name", "n1"),
        *("--state-dir", folder / "state", "--ports-file", folder / "ports"),
        *("--metrics-host", "127.0.0.1", "--metrics-port", "0"),
        *("--scan-interval", "0.1", "--log-format", "json"),
        *flags,
        env=env,
    )


@dataclass
class Bed:
    """A node for a test: synthetic cards, a kubelet stand-in, and plugins in this process."""

    folder: Path
    rack: Rack
    kubelet: KubeletStandIn
    pods: Pods

    def running(
        self,
        mode: PluginMode = PluginMode.AF,
        *,
        events: list[EventRecord] | None = None,
        **values: Any,
    ) -> AbstractAsyncContextManager[Plugin]:
        """The plugin in a mode, with settings."""
        return running(settings(self.folder, mode=mode, **values), self.pods, events=events)

    async def offers(self, count: int, resource: str = AF) -> None:
        """Wait until as many devices are offered."""
        await self.kubelet.until(lambda: self.kubelet.allocatable.get(resource, 0) == count)

    def add_card(self, *afus: str, **values: Any) -> str:
        """Add a card of the DFL driver with these functions; return its address."""
        return self.rack.add_card(CardSpec(driver="dfl", afu_ids=afus, **values))

    def record_ports(self) -> None:
        """Record of each port what it shows, as if accelbind had programmed it."""
        record_ports(self.rack.root, self.folder / "state")
        write_last_mode(plugins_folder(self.folder / "k"))

    async def start(self, name: str, *containers: dict[str, Any], **more: Any) -> PodState:
        """A pod of this name, once its containers run or wait."""
        spec = self.pods.add(pod(name, *containers, **more))
        return await self.kubelet.settled(await self.kubelet.admit(spec))

    def install(self, *afus: str, carrying: str = "") -> None:
        install(self.folder, *afus, carrying=carrying)

    async def wants(self, name: str, *afus: str) -> PodState:
        """A pod whose container wants functions in as many regions, once it runs or waits."""
        await self.kubelet.until(lambda: self.kubelet.allocatable.get(REGION, 0) >= len(afus))
        return await self.start(name, container("c", REGION, len(afus), functions(*afus)))

    async def restart(self, state: PodState) -> None:
        """Restart container `c` of a pod, and wait until it runs."""
        await self.kubelet.restart_container(state, "c")
        await self.runs(state)

    async def runs(self, state: PodState) -> None:
        """Wait until container `c` of a pod runs."""
        await self.kubelet.until(lambda: state["c"].running)

    @property
    def said(self) -> str:
        """What the events of pods say."""
        return "\n".join(event.message for event in self.kubelet.events)

    def calls(self, method: str) -> int:
        """How many calls of a method the kubelet has made or got."""
        return [call.method for call in self.kubelet.calls].count(method)
