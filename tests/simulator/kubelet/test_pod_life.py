"""From admission to the end of a pod: one test a fact, over real sockets."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import grpc
import grpc.aio
import pytest

from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet import podresources_pb2 as resources_pb
from services.kubelet.podresources_pb2_grpc import PodResourcesListerStub
from services.kubelet.sockets import dial, pod_resources_socket
from simulator.kubelet.pods import Phase, Stage
from simulator.kubelet.standin import UNEXPECTED, KubeletStandIn
from tests.plugin.support import container, pod
from tests.simulator.kubelet.fake_plugin import RESOURCE, FakePlugin, devices, registered

pytestmark = pytest.mark.anyio

STAYS = {"restartPolicy": "Always"}


def of(name: str, count: int = 1) -> dict[str, Any]:
    """A container with some of the fake plugin's devices."""
    return container(name, RESOURCE, count)


def fake(
    kubelet: KubeletStandIn, *, pre_start: bool = False, preferred: bool = False
) -> FakePlugin:
    listing = devices(*"abcd")
    return FakePlugin(kubelet.folder, listing, pre_start=pre_start, preferred=preferred)


async def ready(kubelet: KubeletStandIn) -> None:
    await kubelet.until(lambda: bool(kubelet.allocatable.get(RESOURCE)))


async def listed(kubelet: KubeletStandIn) -> list[resources_pb.PodResources]:
    async with dial(pod_resources_socket(kubelet.folder)) as channel:
        stub = PodResourcesListerStub(channel)
        response = await stub.List(resources_pb.ListPodResourcesRequest(), timeout=60)
        return list(response.pod_resources)


async def test_preference_then_allocation_one_container_request_each_init_first(
    kubelet: KubeletStandIn,
) -> None:
    async with registered(fake(kubelet, preferred=True, pre_start=True)) as plugin:
        await ready(kubelet)
        described = pod("pod", of("main", 2), of("other"), init=[of("init")])
        await kubelet.settled(await kubelet.admit(described))
        assert plugin.calls[3:] == [
            *("GetPreferredAllocation", "Allocate") * 3,
            *("PreStartContainer",) * 3,
        ]
        assert plugin.allocated == [("a",), ("a", "b"), ("c",)]
        assert list(plugin.preferred_requests[1].must_include_deviceIDs) == ["a"]
        assert plugin.preferred_requests[1].allocation_size == 2
        assert plugin.pre_starts == [("a",), ("a", "b"), ("c",)]


async def test_an_error_of_allocate_fails_the_pod_for_good(kubelet: KubeletStandIn) -> None:
    async with registered(fake(kubelet)) as plugin:
        await ready(kubelet)
        plugin.allocate_refusal = (grpc.StatusCode.INTERNAL, "broken")
        state = await kubelet.admit(pod("pod", of("main")))
        text = (
            "Allocate failed due to rpc error: code = Internal desc = broken, which is unexpected"
        )
        assert (state.phase, state.reason) == (Phase.FAILED, UNEXPECTED)
        assert state.message == f"Pod was rejected: {text}"
        assert [(each.reason, each.message) for each in kubelet.events] == [(UNEXPECTED, text)]
        assert not state["main"].started
        assert kubelet.in_use(RESOURCE) == set()
        plugin.allocate_refusal = None
        assert (await kubelet.admit(pod("pod", of("main")))).phase is Phase.FAILED


async def test_pod_resources_lists_the_pod_within_pre_start_without_plain_init_containers(
    kubelet: KubeletStandIn,
) -> None:
    seen: list[list[resources_pb.PodResources]] = []
    plugin = FakePlugin(kubelet.folder, devices("a", numa=0) + devices("b", "c"), pre_start=True)
    inner = plugin.PreStartContainer

    async def look(request: pb.PreStartContainerRequest, context: object) -> Awaitable[object]:
        seen.append(await listed(kubelet))
        return await inner(request, context)  # type: ignore[arg-type,return-value]

    plugin.PreStartContainer = look  # type: ignore[method-assign,assignment]
    async with registered(plugin):
        await ready(kubelet)
        described = pod("pod", of("main"), init=[of("init"), of("side") | STAYS])
        await kubelet.settled(await kubelet.admit(described))
    assert len(seen) == 3
    assert all(each == seen[0] for each in seen)
    (only,) = seen[0]
    assert (only.namespace, only.name) == ("ns", "pod")
    assert [each.name for each in only.containers] == ["side", "main"]
    assert [list(d.device_ids) for c in only.containers for d in c.devices] == [["a"], ["b"]]
    assert [n.ID for n in only.containers[0].devices[0].topology.nodes] == [0]
    assert not only.containers[1].devices[0].HasField("topology")
    assert only.containers[0].devices[0].resource_name == RESOURCE


async def test_a_start_that_a_restart_of_the_kubelet_cuts_off_is_made_anew_without_an_event(
    kubelet: KubeletStandIn,
) -> None:
    plugin = fake(kubelet, pre_start=True)
    entered, gate = asyncio.Event(), asyncio.Event()

    async def hang(request: pb.PreStartContainerRequest, _: object) -> object:
        plugin.pre_starts.append(tuple(request.devices_ids))
        entered.set()
        await gate.wait()
        return pb.PreStartContainerResponse()

    plugin.PreStartContainer = hang  # type: ignore[method-assign,assignment]
    async with registered(plugin):
        await ready(kubelet)
        state = await kubelet.admit(pod("pod", of("main")))
        await entered.wait()
        await kubelet.stop()
        gate.set()
        assert not state["main"].started
        await kubelet.start()
        await kubelet.until(lambda: state["main"].running)
    assert [each.reason for each in kubelet.events] == ["Created", "Started"]


async def test_init_containers_run_to_completion_in_order_and_sidecars_stay(
    kubelet: KubeletStandIn,
) -> None:
    async with registered(fake(kubelet)):
        await ready(kubelet)
        described = pod("pod", of("main"), init=[of("one"), of("side") | STAYS, of("two")])
        state = await kubelet.settled(await kubelet.admit(described))
    started = [each.field_path for each in kubelet.events if each.reason == "Started"]
    assert started == [
        "spec.initContainers{one}",
        "spec.initContainers{side}",
        "spec.initContainers{two}",
        "spec.containers{main}",
    ]
    assert [each.stage for each in state] == [
        Stage.TERMINATED, Stage.RUNNING, Stage.TERMINATED, Stage.RUNNING,
    ]  # fmt: skip
    assert state["one"].reason == "Completed"
