"""The kubelet's PodResources service: which devices there are, and which pods have them.

Its list of pods omits init containers; `services.kubelet.checkpoint` has them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import grpc.aio

from services.kubelet import podresources_pb2 as pb
from services.kubelet import podresources_pb2_grpc as rpc
from services.kubelet.sockets import dial
from services.kubelet.values import Held
from services.process.errors import KubeletError
from services.process.text import plain

MAX_ANSWER: Final = 16 * 1024 * 1024  # bytes, as the kubelet's own limit for this service


async def held_devices(socket: Path, *, seconds: float) -> tuple[Held, ...]:
    """List what the pods on this node have that have not ended.

    Raises:
        KubeletError: No answer.
    """
    async with _service(socket, "the active pods") as service:
        # Before it answers, the kubelet forgets the allocations of pods that have ended
        # (`pkg/kubelet/apis/podresources/server_v1.go`, `List`).
        answer = await service.List(pb.ListPodResourcesRequest(), timeout=seconds)
    # A resource is listed in parts. A pod may be there with the one that it replaces.
    held: dict[tuple[int, str, str, str, str], set[str]] = {}
    for number, pod in enumerate(answer.pod_resources):
        for container in pod.containers:
            for devices in container.devices:
                key = number, pod.namespace, pod.name, container.name, devices.resource_name
                held.setdefault(key, set()).update(devices.device_ids)
    return tuple(Held(*key[1:], frozenset(ids)) for key, ids in held.items())


async def claimed_devices(socket: Path, *, seconds: float) -> frozenset[str]:
    """List the CDI names of the devices that containers of this node have by DRA claims.

    Raises:
        KubeletError: No answer.
    """
    async with _service(socket, "the active pods") as service:
        answer = await service.List(pb.ListPodResourcesRequest(), timeout=seconds)
    return frozenset(
        device.name
        for pod in answer.pod_resources
        for container in pod.containers
        for claim in container.dynamic_resources
        for each in claim.claim_resources
        for device in each.cdi_devices
    )


async def served_resources(socket: Path, *, seconds: float) -> frozenset[str]:
    """Return the resources of which a device plugin offers healthy devices now.

    Raises:
        KubeletError: No answer.
    """
    async with _service(socket, "the devices of plugins") as service:
        request = pb.AllocatableResourcesRequest()
        answer = await service.GetAllocatableResources(request, timeout=seconds)
    return frozenset(each.resource_name for each in answer.devices)


@asynccontextmanager
async def _service(socket: Path, listed: str) -> AsyncIterator[rpc.PodResourcesListerStub]:
    async with dial(socket, ("grpc.max_receive_message_length", MAX_ANSWER)) as channel:
        try:
            yield rpc.PodResourcesListerStub(channel)
        except grpc.aio.AioRpcError as error:
            # The reason comes after the list of the addresses that gRPC tried.
            reason = (error.details() or "").rpartition(" error: ")[2]
            raise KubeletError(
                f"the kubelet doesn't list {listed} ({socket}):"
                f" {error.code().name}: {plain(reason, 300)}"
            ) from error
