"""A cluster with one node in mode region: the suite as processes, stand-ins for what is around it.

Webhook and plugin are processes. API server, kubelet and the cards' driver are stand-ins in this
one, asked over TLS and sockets, so that a test knows what they know. A pod that is created here is
patched by the webhook, bound by the scheduler, and run by the kubelet, as anywhere.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx2

from services.bitstreams.storage import BitstreamStorage
from services.kube.client import ClusterClient
from services.kube.config import load_config
from simulator.apiserver.standin import ApiServerStandIn
from simulator.bitstreams import make_gbs
from simulator.cards import A10_INTERFACE, NLB0, NLB3, CardSpec, Rack
from simulator.demo.suite import webhook_configurations
from simulator.driver import DriverStandIn, raw_bitstream
from simulator.kubelet.agent import NodeAgent
from simulator.kubelet.pods import Phase, PodState
from simulator.kubelet.standin import KubeletStandIn
from tests.simulator.apiserver.support import client_of, created
from tests.support import Process, Processes, clean_environment, eventually_async
from tests.webhook.running import Webhook, start_webhook

Json: TypeAlias = dict[str, Any]

REGION = f"fpga.intel.com/region-{A10_INTERFACE}"
FUNCTIONS = {"nlb0": NLB0, "nlb3": NLB3, "third": "0123456789abcdef0123456789abcdef"}
"""What the pods' namespace maps, by logical name."""

NAMESPACE = "team"
"""Where the pods are: not in `default`, where the node's Events are too."""

PATIENCE = 120.0
"""Seconds for what takes some, on a machine that is busy with others."""

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@dataclass
class RegionCluster:
    """The cluster, and what a test does with it."""

    folder: Path
    processes: Processes
    api: ApiServerStandIn
    http: httpx2.AsyncClient
    kubelet: KubeletStandIn
    rack: Rack
    driver: DriverStandIn
    webhook: Webhook
    plugin: Process

    async def create(self, pod: Json) -> Json:
        """Create a pod as a user would; it must be admitted."""
        answer = await self.http.post(PODS, json=pod)
        assert answer.status_code == 201, answer.text
        made: Json = answer.json()
        return made

    async def delete(self, name: str) -> None:
        """Delete a pod, and wait until it has gone from both the kubelet and the API server."""
        await self.http.delete(f"{PODS}/{name}")
        await self.kubelet.until(lambda: self.find(name) is None, PATIENCE)
        await eventually_async(
            lambda: self.api.get("Pod", name, NAMESPACE) is None,
            PATIENCE,
            what=f"the end of pod {name}",
        )

    def find(self, name: str) -> PodState | None:
        """A pod as the kubelet has it; None if it hasn't."""
        return next((each for each in self.kubelet.pods if each.spec.name == name), None)

    async def known(self, name: str) -> PodState:
        """A pod as the kubelet has it, once it does."""
        await self.kubelet.until(lambda: self.find(name) is not None, PATIENCE)
        found = self.find(name)
        assert found is not None
        return found

    async def started(self, name: str) -> PodState:
        """A pod whose container runs, or which the kubelet has rejected for good."""
        found = await self.known(name)
        await self.kubelet.until(
            lambda: found["c"].running or found.phase is Phase.FAILED, PATIENCE
        )
        return found

    def content(self, region: str) -> str:
        """The function that a region carries."""
        (path,) = self.rack.root.glob(f"sys/class/fpga*/*/{region}/../*-port.*/afu_id")
        return path.read_text().strip()

    def install(self, afu_id: str, size: int = 4096) -> None:
        """Put a function's bitstream, of so many bytes, where the plugin looks for it."""
        path = self.folder / f"{afu_id}.gbs"
        path.write_bytes(make_gbs(A10_INTERFACE, afu_id, raw_bitstream(afu_id, size)))
        BitstreamStorage(self.folder / "bitstreams").install(path)

    def restart_plugin(self) -> None:
        """Kill the plugin, whatever it does, and start another one."""
        self.plugin.kill()
        self.plugin = start_plugin(self.folder, self.processes, self.api)


def pod(name: str, wanted: Sequence[str]) -> Json:
    """A pod as users write it: functions by their logical names."""
    limits = {f"fpga.intel.com/{each}": str(count) for each, count in Counter(wanted).items()}
    container = {"name": "c", "image": "registry.example/app:1", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [container]},
    }


def mapping(name: str, afu_id: str) -> Json:
    """A mapping of a function that is programmed."""
    return {
        "apiVersion": "fpga.intel.com/v2",
        "kind": "AcceleratorFunction",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"interfaceId": A10_INTERFACE, "afuId": afu_id, "mode": "region"},
    }


def start_plugin(folder: Path, processes: Processes, api: ApiServerStandIn) -> Process:
    """Start the plugin in mode region, with the allocator's setting of the manifests."""
    return processes.simulated_plugin(
        *("--mode", "region", "--root", folder / "root", "--node-name", "n1"),
        *("--kubelet-dir", folder / "k", "--pod-logs-dir", folder / "k/pod-logs"),
        *("--kubeconfig", api.kubeconfig_path, "--state-dir", folder / "state"),
        *("--bitstreams", folder / "bitstreams", "--scan-interval", "0.2"),
        *("--metrics-host", "127.0.0.1", "--metrics-port", "0", "--ports-file", folder / "ports"),
        *("--log-format", "json"),
        env=clean_environment() | {"MALLOC_MMAP_THRESHOLD_": "65536"},
    )


@asynccontextmanager
async def region_cluster(
    folder: Path, processes: Processes, cards: Sequence[CardSpec]
) -> AsyncIterator[RegionCluster]:
    """A cluster that serves."""
    rack = Rack(folder / "root")
    for card in cards:
        rack.add_card(card)
    for name in ("api", "webhook"):
        (folder / name).mkdir()
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ApiServerStandIn(folder / "api"))
        api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for name, afu_id in FUNCTIONS.items():
            api.put(mapping(name, afu_id))
        http = await stack.enter_async_context(client_of(api))
        webhook = await _webhook(folder / "webhook", api, stack)
        url = f"https://localhost:{webhook.port}"
        for path, configuration in webhook_configurations(url, webhook.tls / "ca.crt"):
            await created(http, path, configuration)
        kubelet = KubeletStandIn(folder / "k", node_name="n1", retry_seconds=0.2)
        await stack.enter_async_context(kubelet)
        await stack.enter_async_context(_node(kubelet, api))
        driver = stack.enter_context(DriverStandIn(rack.root))
        plugin = start_plugin(folder, processes, api)
        made = RegionCluster(folder, processes, api, http, kubelet, rack, driver, webhook, plugin)
        await kubelet.until(lambda: kubelet.allocatable.get(REGION) == len(cards), PATIENCE)
        yield made


async def _webhook(folder: Path, api: ApiServerStandIn, stack: AsyncExitStack) -> Webhook:
    flags = ("--kubeconfig", api.kubeconfig_path)
    running = await asyncio.to_thread(start_webhook, folder, *flags, mappings=None)
    stack.push_async_callback(asyncio.to_thread, running.process.kill)

    async def ready() -> bool:
        return (await asyncio.to_thread(running.plain, "/readyz")).status == 200

    await eventually_async(ready, PATIENCE, what="the webhook is ready")
    return running


@asynccontextmanager
async def _node(kubelet: KubeletStandIn, api: ApiServerStandIn) -> AsyncIterator[None]:
    """The kubelet as the API server has it."""
    config = load_config(api.kubeconfig_path)
    assert config is not None
    async with ClusterClient(config) as client:
        agent = NodeAgent(kubelet, client)
        task = asyncio.create_task(agent.run())
        try:
            await asyncio.wait_for(agent.registered.wait(), PATIENCE)
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
