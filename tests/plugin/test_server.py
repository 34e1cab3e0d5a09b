"""One resource's server, asked as the kubelet asks, over a real socket."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

from plugin.device_plugin.metrics import PluginMetrics
from plugin.device_plugin.server import MAX_DETAILS, ResourceServer
from services.devices.held import HELD
from services.devices.model import Device, DeviceNode
from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet import deviceplugin_pb2_grpc as rpc
from services.kubelet.sockets import dial
from services.node.device_list import CountedResources
from services.node.kubelet_folder import KubeletFolder
from services.node.ledger import Rules
from services.node.state import NodeState
from services.process.errors import AccelbindError, ClusterError, KubeletError, NotAllowed
from services.process.http import new_registry
from services.process.problem import Problem

RESOURCE = "fpga.intel.com/af-x"


def device(key: str, *, healthy: bool = True, numa_node: int | None = None) -> Device:
    return Device(
        id=key,
        resource=RESOURCE,
        reasons=() if healthy else (Problem("r", "m"),),
        nodes=(DeviceNode(key),),
        numa_node=numa_node,
        cdi=f"intel.cdi.k8s.io/fpga={key}",
        envs=(("ACCELBIND_AF_X", f"0000:{key}"),),
    )


def devices(*each: Device) -> dict[str, Device]:
    return {one.id: one for one in each}


class Gate:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[tuple[str, list[str]]] = []

    async def authorize_start(self, resource: str, ids: Sequence[str]) -> None:
        self.asked.append((resource, list(ids)))
        if self.error is not None:
            raise self.error


@asynccontextmanager
async def serving(
    folder: Path,
    *given: Device,
    gate: Gate | None = None,
    registry: CollectorRegistry | None = None,
    counted: CountedResources | None = None,
) -> AsyncIterator[tuple[ResourceServer, rpc.DevicePluginStub]]:
    path = folder / "s.sock"
    server = ResourceServer(
        RESOURCE,
        devices(*given),
        path,
        device_root="/host",
        starts=cast("Any", gate),
        root=folder,
        metrics=PluginMetrics(registry or new_registry()),
        counted=counted or CountedResources(KubeletFolder(folder), NodeState(Rules())),
    )
    await server.start()
    try:
        async with asyncio.timeout(60), dial(path) as dialled:
            yield server, rpc.DevicePluginStub(dialled)
    finally:
        await server.close()


def counted(registry: CollectorRegistry, name: str) -> dict[str, float]:
    """How often each outcome was counted."""
    samples = [each for family in registry.collect() for each in family.samples]
    return {
        each.labels["outcome"]: each.value for each in samples if each.name == name and each.value
    }


def told(answer: object) -> list[tuple[str, str, list[int]]]:
    assert isinstance(answer, pb.ListAndWatchResponse)
    return [
        (each.ID, each.health, [node.ID for node in each.topology.nodes]) for each in answer.devices
    ]


async def test_every_change_of_the_list_is_streamed(short_dir: Path) -> None:
    given = [device("b"), device("a", numa_node=1), device("c", healthy=False, numa_node=0)]
    async with serving(short_dir, *given) as (server, stub):
        stream = stub.ListAndWatch(pb.Empty())
        first = await stream.read()
        assert told(first) == [("a", "Healthy", [1]), ("b", "Healthy", []), ("c", "Unhealthy", [0])]
        assert isinstance(first, pb.ListAndWatchResponse)
        assert [each.HasField("topology") for each in first.devices] == [True, False, True]
        server.update(devices(device("a", healthy=False)))
        assert told(await stream.read()) == [("a", "Unhealthy", [])]
        other = Device("a", RESOURCE, reasons=(Problem("q", "other"),))
        server.update(devices(other))  # which is the same list
        server.update({})
        assert told(await stream.read()) == []


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server that closes wait for what should end by itself longer than a test waits."""
    for name in ("GRACE_SECONDS", "STOP_SECONDS"):
        monkeypatch.setattr(f"services.node.device_list.{name}", 600.0)


@pytest.mark.usefixtures("patient")
async def test_closing_ends_streams_first_and_waits_for_nothing(short_dir: Path) -> None:
    async with serving(short_dir, device("a")) as (server, stub):
        stream = stub.ListAndWatch(pb.Empty())
        await stream.read()
        await server.close()
        assert await stream.read() == grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK
        assert not (short_dir / "s.sock").exists()
        assert not server.cut.is_set(), "our own end was taken for the kubelet's"


async def test_the_end_of_a_stream_or_its_connection_is_noticed_without_sending(
    short_dir: Path,
) -> None:
    async with serving(short_dir, device("a")) as (server, _):
        async with dial(short_dir / "s.sock") as other:
            await rpc.DevicePluginStub(other).ListAndWatch(pb.Empty()).read()
            assert server.opened.is_set()
            async with dial(short_dir / "s.sock") as tool:  # whoever comes later is no kubelet
                await rpc.DevicePluginStub(tool).ListAndWatch(pb.Empty()).read()
            await server.alive(60)
            assert not server.cut.is_set()
        await server.cut.wait()


async def test_a_server_that_hangs_or_whose_socket_is_gone_is_not_alive(short_dir: Path) -> None:
    async with serving(short_dir) as (server, _):
        await server.alive(60)
        path = short_dir / "s.sock"
        path.unlink()
        with pytest.raises(KubeletError, match=r"af-x doesn't answer on .*/s.sock: UNAVAILABLE"):
            await server.alive(60)
        with socket.socket(socket.AF_UNIX) as hanging:
            hanging.bind(str(path))
            hanging.listen()
            with pytest.raises(KubeletError, match="DEADLINE_EXCEEDED"):
                await server.alive(0.1)


async def test_each_container_gets_its_own_answer(short_dir: Path) -> None:
    registry = new_registry()
    linked = replace(device("b"), nodes=(DeviceNode("zigbee", target="ttyUSB0"),))
    modem = replace(device("m"), nodes=(DeviceNode("ttyUSB1", inside="modem0"),))
    async with serving(short_dir, device("a"), linked, modem, registry=registry) as (_, stub):
        answer = await stub.Allocate(
            pb.AllocateRequest(
                container_requests=[
                    pb.ContainerAllocateRequest(devices_ids=["a"]),
                    pb.ContainerAllocateRequest(devices_ids=["b", "a"]),
                    pb.ContainerAllocateRequest(devices_ids=["m"]),
                ]
            )
        )
    nodes = [
        [(each.container_path, each.host_path, each.permissions) for each in one.devices]
        for one in answer.container_responses
    ]
    assert nodes == [
        [("/dev/a", "/host/dev/a", "rw")],
        [("/dev/zigbee", "/host/dev/ttyUSB0", "rw"), ("/dev/a", "/host/dev/a", "rw")],
        [("/dev/modem0", "/host/dev/ttyUSB1", "rw")],
    ]
    assert [dict(one.envs) for one in answer.container_responses] == [
        {"ACCELBIND_AF_X": "0000:a"},
        {"ACCELBIND_AF_X": "0000:b,0000:a"},
        {"ACCELBIND_AF_X": "0000:m"},
    ]
    assert counted(registry, "accelbind_allocations_total") == {"given": 3}


async def refusal(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value.code(), raised.value.details() or ""


async def test_a_device_that_is_not_there_or_that_others_have_is_refused(short_dir: Path) -> None:
    registry, withheld = new_registry(), replace(device("b"), reasons=(Problem(HELD, "p has it"),))
    async with serving(short_dir, device("a"), withheld, registry=registry) as (_, stub):
        for key, why in ("z", "no device 'z': the resource has a, b now"), ("b", "p has it"):
            requests = [pb.ContainerAllocateRequest(devices_ids=["a", key])]
            told = await refusal(stub.Allocate(pb.AllocateRequest(container_requests=requests)))
            assert told == (grpc.StatusCode.FAILED_PRECONDITION, why)
    assert counted(registry, "accelbind_allocations_total") == {"refused": 2}


async def test_without_a_gate_the_kubelet_is_not_told_to_ask_and_containers_start(
    short_dir: Path,
) -> None:
    registry = new_registry()
    async with serving(short_dir, device("a"), registry=registry) as (_, stub):
        options = await stub.GetDevicePluginOptions(pb.Empty())
        assert not options.pre_start_required
        assert options.get_preferred_allocation_available
        await stub.PreStartContainer(pb.PreStartContainerRequest(devices_ids=["a"]))
    assert counted(registry, "accelbind_prestart_total") == {}


@pytest.mark.parametrize(
    ("error", "code", "text", "outcome"),
    [
        (None, "OK", "", "allowed"),
        (NotAllowed("not that one"), "FAILED_PRECONDITION", "not that one", "refused"),
        (ClusterError("away"), "UNAVAILABLE", "away", "unverifiable"),
        (KubeletError("no file"), "UNAVAILABLE", "no file", "unverifiable"),
        (AccelbindError("x" * 9999), "UNAVAILABLE", "x" * (MAX_DETAILS - 1) + "…", "unverifiable"),
        (
            RuntimeError("oops"),
            "INTERNAL",
            "internal error of accelbind in PreStartContainer: RuntimeError: oops",
            "failed",
        ),
    ],
)
async def test_the_error_of_a_gate_becomes_code_and_text_of_the_pods_event(
    short_dir: Path, error: Exception | None, code: str, text: str, outcome: str
) -> None:
    gate, registry = Gate(error), new_registry()
    async with serving(short_dir, device("a"), gate=gate, registry=registry) as (_, stub):
        assert (await stub.GetDevicePluginOptions(pb.Empty())).pre_start_required
        call = stub.PreStartContainer(pb.PreStartContainerRequest(devices_ids=["a"]))
        if error is None:
            await call
        else:
            assert await refusal(call) == (grpc.StatusCode[code], text)
    assert gate.asked == [(RESOURCE, ["a"])]
    assert counted(registry, "accelbind_prestart_total") == {outcome: 1}


def sockets_in(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_socket()]


async def test_a_server_whose_closing_is_cancelled_is_closed_all_the_same(short_dir: Path) -> None:
    for steps in range(12):
        async with serving(short_dir, device("a")) as (server, stub):
            stream = stub.ListAndWatch(pb.Empty())
            await stream.read()
            task = asyncio.create_task(server.close())
            for _ in range(steps):  # a step of the loop further each time
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()  # as by who gives up waiting for it
            await asyncio.wait([task])
            if steps:  # before its first step there is nothing to finish
                assert sockets_in(short_dir) == [], f"cancelled after {steps} steps"


@pytest.mark.usefixtures("patient")
async def test_a_resource_is_counted_until_the_kubelet_was_sent_that_nothing_is_left(
    short_dir: Path,
) -> None:
    (short_dir / "kubelet.sock").touch()
    folder = KubeletFolder(short_dir)
    folder.check()
    counted = CountedResources(folder, NodeState(Rules()))
    async with serving(short_dir, device("a"), counted=counted) as (server, stub):
        assert counted.resources() == []  # nobody listens
        stream = stub.ListAndWatch(pb.Empty())
        assert told(await stream.read()) == [("a", "Healthy", [])]
        assert counted.resources() == [RESOURCE]
        server.update({})
        await server.close()  # it is sent nevertheless
        assert not counted.resources()
        assert told(await stream.read()) == []
        assert await stream.read() is grpc.aio.EOF


async def test_a_resource_whose_stream_was_cut_is_counted_by_the_same_kubelet_only(
    short_dir: Path,
) -> None:
    (short_dir / "kubelet.sock").touch()
    folder = KubeletFolder(short_dir)
    folder.check()
    counted = CountedResources(folder, NodeState(Rules()))
    async with serving(short_dir, device("a"), counted=counted) as (server, stub):
        stream = stub.ListAndWatch(pb.Empty())
        await stream.read()
        stream.cancel()
        await server.cut.wait()
        server.update({})
    assert counted.resources() == [RESOURCE]
    (short_dir / "kubelet.sock").rename(short_dir / "old")
    (short_dir / "kubelet.sock").touch()
    folder.check()
    assert counted.resources() == []
