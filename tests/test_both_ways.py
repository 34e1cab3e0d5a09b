"""What the documentation of device types promises, for the device plugin and for DRA alike.

Each row runs on a whole node: API server, scheduler and kubelet are stand-ins, and either the
plugin or the DRA driver serves the devices of a synthetic tree.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelbind.device_classes import type_class
from plugin.settings import Api
from services.containers import holder_source
from services.devices.model import PluginMode
from services.kube.client import ClusterClient
from simulator.apiserver.standin import ApiServerStandIn
from simulator.devices import DeviceTree
from simulator.kubelet.agent import NodeAgent
from simulator.kubelet.pods import ContainerState
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import container, node_settings, pod, running
from tests.services.devices.types.making import document, type_of
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

DOMAIN = "device.accelbind.dev"
PCI = {"vendor": ["1bcf"], "device": ["001c"]}
ENGINE: dict[str, Any] = {
    "match": [{"pci": PCI}],
    "attributes": [
        {"name": "state", "file": "ve/ve*/ve_state", "type": "int"},
        {"name": "serial", "file": "serial"},
    ],
    "health": [{"attribute": "state", "equals": 1, "reason": "not-online"}],
    "nodes": [{"class": "ve"}],
    "env": [{"name": "SERIAL", "attribute": "serial"}, {"name": "FIXED", "value": "x"}],
}


@dataclass
class Node:
    """A node with two vector engines, and its cluster."""

    folder: Path
    api: ApiServerStandIn
    kubelet: KubeletStandIn
    is_dra: bool
    tree: DeviceTree = field(init=False)
    pods: int = 0

    def __post_init__(self) -> None:
        (self.folder / "types").mkdir()
        self.tree = DeviceTree(self.folder / "root")
        for number in range(2):
            device = self.tree.pci(f"0000:b{number}:00.0", "1bcf:001c", serial=f"s{number}")
            self.tree.entry(device, "ve", f"ve{number}", f"237:{number}")
            self.state(number, 1)

    def state(self, number: int, state: int) -> None:
        """Set the state of an engine."""
        folder = f"sys/devices/pci0000:b{number}/0000:b{number}:00.0/ve/ve{number}"
        self.tree.file(f"{folder}/ve_state", state)

    def write(self, resource: str, **changes: Any) -> None:
        """Write a type whose file and resource have this name."""
        spec = ENGINE | changes
        path = self.folder / f"types/{resource}.yaml"
        path.write_text(yaml.safe_dump(document(spec, resource)))
        self.api.put(type_class(type_of(spec, resource)))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Have the plugin or the driver serve."""
        served = {"api": Api.DRA} if self.is_dra else {"mode": PluginMode.NONE}
        options = node_settings(
            self.folder,
            cdi_dir=self.folder / "k/cdi",
            healthy_after=1,
            device_types=self.folder / "types",
            **served,
        )
        async with running(options, api=self.api):
            yield

    async def offers(self, count: int, resource: str) -> None:
        """Wait until as many devices can be allocated."""

        def offered() -> int:
            if not self.is_dra:
                return self.kubelet.allocatable.get(f"{DOMAIN}/{resource}", 0)
            slices = self.api.objects("ResourceSlice")
            devices = (each for one in slices for each in one["spec"].get("devices") or ())
            kept = (each for each in devices if not each.get("taints"))
            return [each["attributes"]["type"]["string"] for each in kept].count(resource)

        await eventually_async(lambda: offered() == count, what=f"{count} of {resource}")

    async def start(self, count: int, resource: str) -> ContainerState | None:
        """The container of a new pod that requests devices; None if the pod stays pending."""
        self.pods += 1
        made = pod(f"p{self.pods}", container("c", f"{DOMAIN}/{resource}", count))
        del made["spec"]["nodeName"]
        name = made["metadata"]["name"]
        spec = {**made["spec"], "schedulerName": "default-scheduler"}
        self.api.put(made | {"spec": spec, "status": {"phase": "Pending"}})

        def decided() -> bool:
            (item,) = [each for each in self.api.objects("Pod") if each["metadata"]["name"] == name]
            conditions = (item.get("status") or {}).get("conditions") or []
            scheduled = [each["status"] for each in conditions if each["type"] == "PodScheduled"]
            return scheduled == ["False"] or self._running(name) is not None

        await eventually_async(decided, what=f"{name} to run or stay pending")
        return self._running(name)

    def _running(self, name: str) -> ContainerState | None:
        containers = (each["c"] for each in self.kubelet.pods if each.spec.name == name)
        return next((each for each in containers if each.running), None)

    def end(self, name: str) -> None:
        """Delete a pod."""
        self.api.drop("Pod", name, "ns")


@pytest.fixture(params=["device plugin", "DRA"])
async def node(
    request: pytest.FixtureRequest,
    short_dir: Path,
    anyio_backend: str,  # noqa: ARG001 - async fixtures of anyio need it
) -> AsyncIterator[Node]:
    for folder in ("k/device-plugins", "k/plugins_registry", "k/cdi", "api"):
        (short_dir / folder).mkdir(parents=True)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ApiServerStandIn(short_dir / "api"))
        kubelet = KubeletStandIn(short_dir / "k", node_name="n1", retry_seconds=0.1)
        await stack.enter_async_context(kubelet)
        client = ClusterClient(api.access)
        agent = NodeAgent(kubelet, await stack.enter_async_context(client))
        task = asyncio.create_task(agent.run())
        await agent.registered.wait()
        yield Node(short_dir, api, kubelet, request.param == "DRA")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


Given = tuple[list[str], list[tuple[str, ...]], str]


def given(started: ContainerState | None) -> Given | None:
    """What a container got: nodes, each device's values of the variables, and the fixed one."""
    if started is None:
        return None
    nodes = [f"{each.container_path} {each.permissions}" for each in started.granted.devices]
    env = dict(started.granted.env)
    (addresses,) = (env[name] for name in env if name.startswith("ACCELBIND_"))
    values = zip(addresses.split(","), env["SERIAL"].split(","), strict=True)
    return sorted(nodes), sorted(values), env["FIXED"]


def engines(*numbers: int, permissions: str = "rw") -> Given:
    """The same of a container that has these engines."""
    nodes = [f"/dev/ve{each} {permissions}" for each in numbers]
    return nodes, [(f"0000:b{each}:00.0", f"s{each}") for each in numbers], "x"


@dataclass(frozen=True)
class Promise:
    """A type, and what the containers of pods have that request so many devices one by one."""

    changes: Mapping[str, Any]
    """Of the type."""
    offered: int
    asked: Sequence[int]
    containers: Sequence[Given | None]
    """None for a pod that stays pending."""


def shared(replicas: int) -> dict[str, Any]:
    return {"sharing": {"replicas": replicas}}


PROMISES = {
    "A container gets the nodes and variables of its device": Promise(
        {}, 2, [1, 1, 1], [engines(0), engines(1), None]
    ),
    "Of several devices, each variable has a value for each, in the same order": Promise(
        {}, 2, [2, 1], [engines(0, 1), None]
    ),
    "Nodes have the permissions of the type": Promise(
        {"nodes": [{"class": "ve", "permissions": "r"}]}, 2, [1], [engines(0, permissions="r")]
    ),
    "A container that asks for several gets distinct devices first": Promise(
        shared(3), 6, [2, 2, 2, 1], [engines(0, 1)] * 3 + [None]
    ),
    "so it does where containers have shares already": Promise(
        shared(3), 6, [1, 2], [engines(0), engines(0, 1)]
    ),
    "so it does where devices have more shares than a slice": Promise(
        shared(100), 200, [2], [engines(0, 1)]
    ),
    "As many containers as a device has replicas have it": Promise(
        shared(2), 4, [1] * 5, [engines(0), engines(0), engines(1), engines(1), None]
    ),
}


@pytest.mark.parametrize("promise", PROMISES)
async def test_both_ways_keep_a_promise(node: Node, promise: str) -> None:
    row = PROMISES[promise]
    node.write("ve", **row.changes)
    async with node.serving():
        await node.offers(row.offered, "ve")
        found = [given(await node.start(count, "ve")) for count in row.asked]
    # Which container has which device is a matter of each way; what all have is not.
    assert sorted(map(str, found)) == sorted(map(str, row.containers))
    assert [each is None for each in found] == [each is None for each in row.containers]


@pytest.mark.parametrize("restarted", ["nobody", "kubelet", "plugin or driver"])
async def test_a_container_restarts_with_its_device_after_the_cdi_files_were_lost(
    node: Node, restarted: str
) -> None:
    node.write("ve")

    async def restart() -> ContainerState | None:
        (pod,) = node.kubelet.pods
        await node.kubelet.restart_container(pod, "c")
        await eventually_async(lambda: pod["c"].running)
        return pod["c"]

    def lose() -> None:
        for path in (node.folder / "k/cdi").iterdir():
            path.unlink()

    async with node.serving():
        await node.offers(2, "ve")
        before = given(await node.start(1, "ve"))
        lose()
        if restarted == "kubelet":
            await node.kubelet.restart()
        if restarted != "plugin or driver":
            assert given(await restart()) == before
            return
    lose()
    async with node.serving():
        await node.kubelet.until(lambda: bool(node.kubelet.pods))
        assert given(await restart()) == before


async def test_an_unhealthy_device_is_given_to_no_container(node: Node) -> None:
    node.write("ve")
    async with node.serving():
        await node.offers(2, "ve")
        node.state(0, 2)
        await node.offers(1, "ve")
        assert given(await node.start(1, "ve")) == engines(1)
        assert await node.start(1, "ve") is None


@pytest.mark.parametrize(
    ("resource", "changes", "offered"), [("ve", shared(3), 3), ("other", {}, 1)]
)
async def test_a_device_held_by_an_earlier_type_is_offered_once_its_container_has_ended(
    node: Node,
    resource: str,
    changes: dict[str, Any],
    offered: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holder_source, "RENEW_SECONDS", 0.2)
    monkeypatch.setattr(holder_source, "POLL_SECONDS", 0.1)
    node.write("ve")
    async with node.serving():
        await node.offers(2, "ve")
        assert given(await node.start(1, "ve")) == engines(0)
        (node.folder / "types/ve.yaml").unlink()
        node.write(resource, **changes)
        await node.offers(offered, resource)
        # The kubelet counts what the first pod has as one of its resource.
        started = [await node.start(1, resource) for _ in range(offered + 1)]
        assert started[0] is not None
        assert started[-1] is None
        assert {str(given(each)) for each in started if each} == {str(engines(1))}
        node.end("p1")
        await node.offers(2 * offered, resource)
