"""The kubelet's PodResources service: which pods are active, and which devices they have.

Its answer omits init containers, and doesn't show when a container is about to start; the
checkpoint (`services.kubelet.checkpoint`) does. The request has a useful side effect: before it
answers, the kubelet forgets the allocations of pods that have ended
(`pkg/kubelet/apis/podresources/server_v1.go`, `List`).
"""

from pathlib import Path
from typing import Final

import grpc.aio

from services.kubelet import podresources_pb2 as pb
from services.kubelet import podresources_pb2_grpc as rpc
from services.kubelet.sockets import dial
from services.kubelet.values import ActivePod, Held
from services.process.errors import KubeletError
from services.process.text import plain

MAX_ANSWER: Final = 16 * 1024 * 1024
"""Bytes of an answer, as the kubelet's own limit for this service."""


async def active_pods(socket: Path, *, seconds: float = 5.0) -> tuple[ActivePod, ...]:
    """List every pod on this node that has not ended, with or without devices.

    Raises:
        KubeletError: No answer.
    """
    async with dial(socket, ("grpc.max_receive_message_length", MAX_ANSWER)) as channel:
        stub = rpc.PodResourcesListerStub(channel)
        try:
            answer = await stub.List(pb.ListPodResourcesRequest(), timeout=seconds)
        except grpc.aio.AioRpcError as error:
            # The reason comes after the list of the addresses that gRPC tried.
            reason = (error.details() or "").rpartition(" error: ")[2]
            raise KubeletError(
                f"the kubelet doesn't list the active pods ({socket}):"
                f" {error.code().name}: {plain(reason, 300)}"
            ) from error
    return tuple(_pod(each) for each in answer.pod_resources)


def _pod(listed: pb.PodResources) -> ActivePod:
    held: dict[tuple[str, str], set[str]] = {}  # a resource is listed in parts
    for container in listed.containers:
        for devices in container.devices:
            held.setdefault((container.name, devices.resource_name), set()).update(
                devices.device_ids
            )
    return ActivePod(
        listed.namespace,
        listed.name,
        tuple(Held(*key, frozenset(ids)) for key, ids in held.items()),
    )
