"""The node, its pods and their events on an API server stand-in, over verified TLS."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from services.kube.client import ClusterClient
from services.kube.config import load_config
from simulator.apiserver.standin import ApiServerStandIn
from simulator.kubelet.agent import NodeAgent
from simulator.kubelet.standin import KubeletStandIn
from tests.simulator.kubelet.fake_plugin import RESOURCE, FakePlugin, devices, pod, registered
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

PODS = "/api/v1/namespaces/default/pods"
NODE = "/api/v1/nodes/n1"


class Cluster:
    """An API server stand-in, a kubelet that it knows, and a client to look with."""

    def __init__(
        self, api: ApiServerStandIn, kubelet: KubeletStandIn, client: ClusterClient
    ) -> None:
        self.api = api
        self.kubelet = kubelet
        self.client = client

    async def get(self, path: str) -> dict[str, Any]:
        body = await self.client.get(path)
        return {} if body is None else dict(json.loads(body))

    async def create(self, described: dict[str, Any]) -> None:
        described = {"apiVersion": "v1", "kind": "Pod", **described}
        described["metadata"].pop("uid")
        described["spec"]["nodeName"] = "n1"
        for each in described["spec"]["containers"] + described["spec"]["initContainers"]:
            each["image"] = "registry.example/workload:1"
            each.get("resources", {}).pop("requests", None)
        answer = await self.client.request("POST", PODS, body=described)
        self.client.expect(answer, "POST pods")

    async def status_of(self, name: str, phase: str) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            status = (await self.get(f"{PODS}/{name}")).get("status", {})
            return dict(status) if status.get("phase") == phase else None

        return await eventually_async(look, what=f"{name} {phase}") or {}


@pytest.fixture
async def cluster(tmp_path: Path, kubelet: KubeletStandIn) -> AsyncIterator[Cluster]:
    async with (
        ApiServerStandIn(tmp_path) as api,
        client_of(api) as client,
        agent(kubelet, client),
    ):
        yield Cluster(api, kubelet, client)


@asynccontextmanager
async def client_of(api: ApiServerStandIn) -> AsyncIterator[ClusterClient]:
    config = load_config(api.kubeconfig_path)
    assert config is not None
    async with ClusterClient(config) as client:
        yield client


@asynccontextmanager
async def agent(kubelet: KubeletStandIn, client: ClusterClient) -> AsyncIterator[NodeAgent]:
    made = NodeAgent(kubelet, client)
    task = asyncio.create_task(made.run())
    await asyncio.wait_for(made.registered.wait(), 60)
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_catches_up_after_the_api_server_was_away(cluster: Cluster) -> None:
    kubelet = cluster.kubelet
    async with registered(FakePlugin(kubelet.folder, devices("a", "b"))) as plugin:
        await kubelet.until(lambda: bool(kubelet.allocatable.get(RESOURCE)))
        await cluster.create(pod("first"))
        await cluster.status_of("first", "Running")
        async with cluster.api.away():
            plugin.list(devices("a", "b", "c"))
            await kubelet.until(lambda: kubelet.capacity[RESOURCE] == 3)
        await cluster.create(pod("second"))
        await cluster.status_of("second", "Running")

        async def caught_up() -> bool:
            status = (await cluster.get(NODE))["status"]
            return bool(status["capacity"][RESOURCE] == "3")

        await eventually_async(caught_up)
        cluster.api.cut_watches()
        await cluster.create(pod("third"))
        await cluster.status_of("third", "Running")
        assert len(kubelet.pods) == 3


async def test_a_pod_that_the_api_server_does_not_know_is_ended(cluster: Cluster) -> None:
    kubelet = cluster.kubelet
    await cluster.create(pod("stays", containers={"main": 0}))
    await cluster.status_of("stays", "Running")
    stranger = await kubelet.admit(pod("stranger", containers={"main": 0}))
    cluster.api.cut_watches()
    await kubelet.until(lambda: stranger not in kubelet.pods)
    assert [each.spec.name for each in kubelet.pods] == ["stays"]


async def test_a_new_process_adopts_the_pods_that_run(cluster: Cluster) -> None:
    kubelet = cluster.kubelet
    async with registered(FakePlugin(kubelet.folder, devices("a"), pre_start=True)) as plugin:
        await kubelet.until(lambda: bool(kubelet.allocatable.get(RESOURCE)))
        await cluster.create(pod())
        await cluster.status_of("pod", "Running")
        await kubelet.close()
        async with (
            KubeletStandIn(kubelet.folder, node_name="n1") as later,
            client_of(cluster.api) as client,
            agent(later, client),
        ):
            await later.until(lambda: bool(later.pods))
            assert later.pods[0]["main"].environment == {"DEVICES": "a"}
            assert later.in_use(RESOURCE) == {"a"}
        assert plugin.pre_starts == [("a",)]
