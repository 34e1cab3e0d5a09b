"""What the tests of this room share."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from plugin.process import Plugin
from plugin.settings import PluginSettings
from services.devices.model import PluginMode
from services.kube.connection import Connection, connector
from services.kube.events import EventRecord
from services.kube.list_watch import WatchTimeouts
from services.mappings.index import MappingIndex, NamespaceMappings, build_index
from services.mappings.model import parse
from simulator.apiserver.standin import ApiServerStandIn
from simulator.cards import A10_INTERFACE, NLB0, NLB3
from simulator.driver import SimulatedCalls

AF = "fpga.intel.com/af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"
"""The resource of NLB0 on an A10 card."""

REGION = f"fpga.intel.com/region-{A10_INTERFACE}"


QUICK = WatchTimeouts(first=0.01, longest=0.1, steady=0.5)
"""For an API server in this process."""


def settings(folder: Path, mode: PluginMode = PluginMode.AF, **values: Any) -> PluginSettings:
    """Settings for a rack in `root` and a kubelet in `k`."""
    defaults: dict[str, Any] = {
        "mode": mode,
        "root": folder / "root",
        "kubelet_dir": folder / "k",
        "pod_logs_dir": folder / "no-pod-logs",
        "node_name": "n1",
        "metrics_host": "127.0.0.1",
        "metrics_port": 0,
        "ports_file": folder / "ports",
        "scan_interval": 0.05,
        "bitstreams": folder / "bitstreams",
        "state_dir": folder / "state",
    }
    return PluginSettings(**(defaults | values))


class Pods:
    """An API server that has just these pods."""

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.error: Exception | None = None
        self.delay: asyncio.Event | None = None
        self.mapped = mapping_both_functions()

    def add(self, pod: dict[str, Any]) -> dict[str, Any]:
        metadata = pod["metadata"]
        self.pods[metadata["namespace"], metadata["name"]] = pod
        return pod

    async def get_pod(self, namespace: str, name: str) -> bytes | None:
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
    spec = {"interfaceId": A10_INTERFACE}
    objects: list[dict[str, Any]] = [
        {"kind": "AcceleratorFunction", "spec": spec | {"afuId": afu, "mode": mode}}
        for afu in (NLB0, NLB3)
    ]
    objects.append({"kind": "FpgaRegion", "spec": spec})
    for number, each in enumerate(objects):
        each["apiVersion"] = "fpga.intel.com/v2"
        each["metadata"] = {"name": f"m{number}", "namespace": "ns"}
    return build_index(map(parse, objects))


def functions(*afus: str, interface: str = A10_INTERFACE) -> list[dict[str, str]]:
    """Env as the webhook writes it."""
    env = []
    for number, afu in enumerate(afus, 1):
        env.append({"name": f"FPGA_REGION_{number}", "value": interface})
        env.append({"name": f"FPGA_AFU_{number}", "value": afu})
    return env


def container(
    name: str, resource: str, count: int = 1, env: list[dict[str, str]] | None = None
) -> dict[str, Any]:
    amount = {resource: str(count)}
    return {
        "name": name,
        "image": "i",
        "env": env or [],
        "resources": {"limits": amount, "requests": amount},
    }


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

    Args:
        options: Its settings.
        pods: Where it gets pods and mappings.
        api: The API server that it is connected to, instead of `pods`.
        events: Where its Events go, without an API server.
    """
    stop = asyncio.Event()
    connection = Connection(connector(api.kubeconfig_path)) if api else None
    plugin = Plugin(
        options,
        pods,
        connection=connection,
        driver_calls=SimulatedCalls(),
        record_event=(events if events is not None else []).append,
        timeouts=QUICK,
    )
    task = asyncio.create_task(plugin.serve(stop))
    try:
        yield plugin
    finally:
        stop.set()
        async with asyncio.timeout(60):
            await task
        if connection is not None:
            await connection.aclose()


__all__ = ["AF", "NLB0", "NLB3", "REGION", "Pods", "container", "functions", "pod", "running"]
