"""Bytes written by hand, a message each: the stubs must read and write just these.

Plugin and kubelet stand-in share the generated stubs, so a wrong field number would go unseen
between them. The bytes come from the protobuf encoding itself: a key is `number << 3 | type`,
type 0 a varint, type 2 a length and that many bytes. `0x0a` is field 1, `0x12` 2, `0x1a` 3,
`0x22` 4, `0x2a` 5 (each of type 2); `0x08` is field 1, `0x10` 2, `0x18` 3 (each a varint).
"""

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import pytest
from google.protobuf.message import Message

from services.kubelet import deviceplugin_pb2 as dp
from services.kubelet import deviceplugin_pb2_grpc as dp_rpc
from services.kubelet import podresources_pb2 as pr
from services.kubelet import podresources_pb2_grpc as pr_rpc

DEVICE_PLUGIN: list[tuple[Message, bytes]] = [
    (dp.Empty(), b""),
    (
        dp.RegisterRequest(
            version="v1beta1",
            endpoint="a.sock",
            resource_name="d/n",
            options=dp.DevicePluginOptions(
                pre_start_required=True, get_preferred_allocation_available=True
            ),
        ),
        b"\x0a\x07v1beta1\x12\x06a.sock\x1a\x03d/n\x22\x04\x08\x01\x10\x01",
    ),
    (dp.DevicePluginOptions(pre_start_required=True), b"\x08\x01"),
    (dp.DevicePluginOptions(get_preferred_allocation_available=True), b"\x10\x01"),
    (
        dp.ListAndWatchResponse(
            devices=[
                dp.Device(
                    ID="p0",
                    health="Healthy",
                    topology=dp.TopologyInfo(nodes=[dp.NUMANode(ID=1)]),
                ),
                dp.Device(ID="p1", health="Unhealthy"),
            ]
        ),
        (
            b"\x0a\x13"
            b"\x0a\x02p0"
            b"\x12\x07Healthy"
            b"\x1a\x04\x0a\x02\x08\x01"
            b"\x0a\x0f"
            b"\x0a\x02p1"
            b"\x12\x09Unhealthy"
        ),
    ),
    (dp.TopologyInfo(nodes=[dp.NUMANode(), dp.NUMANode(ID=300)]), b"\x0a\x00\x0a\x03\x08\xac\x02"),
    (
        dp.AllocateRequest(
            container_requests=[
                dp.ContainerAllocateRequest(devices_ids=["a", "b"]),
                dp.ContainerAllocateRequest(devices_ids=["c"]),
            ]
        ),
        b"\x0a\x06\x0a\x01a\x0a\x01b\x0a\x03\x0a\x01c",
    ),
    (
        dp.AllocateResponse(
            container_responses=[
                dp.ContainerAllocateResponse(
                    envs={"K": "v"},
                    mounts=[dp.Mount(container_path="/c", host_path="/h", read_only=True)],
                    devices=[dp.DeviceSpec(container_path="/c", host_path="/h", permissions="rw")],
                    annotations={"k": "w"},
                    cdi_devices=[dp.CDIDevice(name="v/c=d")],
                )
            ]
        ),
        (
            b"\x0a\x33"
            b"\x0a\x06\x0a\x01K\x12\x01v"
            b"\x12\x0a\x0a\x02/c\x12\x02/h\x18\x01"
            b"\x1a\x0c\x0a\x02/c\x12\x02/h\x1a\x02rw"
            b"\x22\x06\x0a\x01k\x12\x01w"
            b"\x2a\x07\x0a\x05v/c=d"
        ),
    ),
    (dp.PreStartContainerRequest(devices_ids=["a", "b"]), b"\x0a\x01a\x0a\x01b"),
    (dp.PreStartContainerResponse(), b""),
    (
        dp.PreferredAllocationRequest(
            container_requests=[
                dp.ContainerPreferredAllocationRequest(
                    available_deviceIDs=["a", "b"], must_include_deviceIDs=["b"], allocation_size=2
                )
            ]
        ),
        b"\x0a\x0b\x0a\x01a\x0a\x01b\x12\x01b\x18\x02",
    ),
    (
        dp.PreferredAllocationResponse(
            container_responses=[dp.ContainerPreferredAllocationResponse(deviceIDs=["a"])]
        ),
        b"\x0a\x03\x0a\x01a",
    ),
]

POD_RESOURCES: list[tuple[Message, bytes]] = [
    (pr.ListPodResourcesRequest(), b""),
    (pr.AllocatableResourcesRequest(), b""),
    (
        pr.ListPodResourcesResponse(
            pod_resources=[
                pr.PodResources(
                    name="p",
                    namespace="ns",
                    containers=[
                        pr.ContainerResources(
                            name="c",
                            devices=[
                                pr.ContainerDevices(
                                    resource_name="d/n",
                                    device_ids=["x", "y"],
                                    topology=pr.TopologyInfo(nodes=[pr.NUMANode(ID=1)]),
                                )
                            ],
                        )
                    ],
                )
            ]
        ),
        (
            b"\x0a\x1f"
            b"\x0a\x01p\x12\x02ns"
            b"\x1a\x16\x0a\x01c"
            b"\x12\x11\x0a\x03d/n\x12\x01x\x12\x01y\x1a\x04\x0a\x02\x08\x01"
        ),
    ),
    (
        pr.AllocatableResourcesResponse(
            devices=[pr.ContainerDevices(resource_name="d/n", device_ids=["x"])]
        ),
        b"\x0a\x08\x0a\x03d/n\x12\x01x",
    ),
    (pr.GetPodResourcesRequest(pod_name="p", pod_namespace="ns"), b"\x0a\x01p\x12\x02ns"),
    (
        pr.GetPodResourcesResponse(pod_resources=pr.PodResources(name="p", namespace="ns")),
        b"\x0a\x07\x0a\x01p\x12\x02ns",
    ),
]


def title(value: object) -> str:
    return type(value).__name__ if isinstance(value, Message) else ""


@pytest.mark.parametrize(("message", "wire"), DEVICE_PLUGIN + POD_RESOURCES, ids=title)
def test_a_message_is_the_bytes_that_the_kubelet_reads_and_writes(
    message: Message, wire: bytes
) -> None:
    assert message.SerializeToString(deterministic=True) == wire
    assert type(message).FromString(wire) == message


@pytest.mark.parametrize("stubs", [dp, pr])
def test_every_message_of_the_protocol_has_its_bytes_here(stubs: ModuleType) -> None:
    seen: set[str] = set()
    for message, _ in DEVICE_PLUGIN + POD_RESOURCES:
        collect(message, seen)
    declared = {d.full_name for d in stubs.DESCRIPTOR.message_types_by_name.values()}
    assert declared <= seen


def collect(message: Message, seen: set[str]) -> None:
    seen.add(message.DESCRIPTOR.full_name)
    for _, value in message.ListFields():
        for one in value if isinstance(value, Iterable) else [value]:
            if isinstance(one, Message):
                collect(one, seen)


class Recorder:
    """Stands in for a channel and notes which methods a stub asks for."""

    def __init__(self) -> None:
        self.methods: dict[str, str] = {}

    def unary_unary(self, method: str, **_: object) -> None:
        self.methods[method] = "unary"

    def unary_stream(self, method: str, **_: object) -> None:
        self.methods[method] = "stream"


@pytest.mark.parametrize(
    ("stub", "methods"),
    [
        (dp_rpc.RegistrationStub, {"/v1beta1.Registration/Register": "unary"}),
        (
            dp_rpc.DevicePluginStub,
            {
                "/v1beta1.DevicePlugin/GetDevicePluginOptions": "unary",
                "/v1beta1.DevicePlugin/ListAndWatch": "stream",
                "/v1beta1.DevicePlugin/GetPreferredAllocation": "unary",
                "/v1beta1.DevicePlugin/Allocate": "unary",
                "/v1beta1.DevicePlugin/PreStartContainer": "unary",
            },
        ),
        (
            pr_rpc.PodResourcesListerStub,
            {
                "/v1.PodResourcesLister/List": "unary",
                "/v1.PodResourcesLister/GetAllocatableResources": "unary",
                "/v1.PodResourcesLister/Get": "unary",
            },
        ),
    ],
)
def test_methods_are_called_by_the_names_that_the_kubelet_serves(
    stub: Callable[[Any], object], methods: dict[str, str]
) -> None:
    recorder = Recorder()
    stub(recorder)
    assert recorder.methods == methods
