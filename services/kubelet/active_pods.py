"""Asking the kubelet which pods are active, and what their containers have.

The question has a good side effect: before it answers, the kubelet forgets the allocations of pods
that have come to their end (`pkg/kubelet/apis/podresources/server_v1.go`, `List`).
"""

from pathlib import Path

import grpc.aio

from services.kubelet import podresources_pb2 as pb
from services.kubelet import podresources_pb2_grpc as rpc
from services.kubelet.pod_resources import MAX_ANSWER
from services.kubelet.sockets import dial
from services.kubelet.values import ActivePod, Held
from services.process.errors import KubeletError
from services.process.text import plain


async def active_pods(socket: Path, *, seconds: float = 5.0) -> tuple[ActivePod, ...]:
    """Every pod on this node that has not come to its end, with devices or without.

    Args:
        socket: The kubelet's, `<kubelet folder>/pod-resources/kubelet.sock`.
        seconds: How long to wait.

    Raises:
        KubeletError: No answer.
    """
    async with dial(socket, ("grpc.max_receive_message_length", MAX_ANSWER)) as channel:
        stub = rpc.PodResourcesListerStub(channel)
        try:
            answer = await stub.List(pb.ListPodResourcesRequest(), timeout=seconds)
        except grpc.aio.AioRpcError as error:
            # The reason stands behind what gRPC has tried, address by address.
            said = (error.details() or "").rpartition(" error: ")[2]
            raise KubeletError(
                f"the kubelet doesn't say which pods are active ({socket}):"
                f" {error.code().name}: {plain(said, 300)}"
            ) from error
    return tuple(_pod(each) for each in answer.pod_resources)


def _pod(told: pb.PodResources) -> ActivePod:
    held = tuple(
        Held(container.name, devices.resource_name, tuple(devices.device_ids))
        for container in told.containers
        for devices in container.devices
    )
    names = tuple(container.name for container in told.containers)
    return ActivePod(told.namespace, told.name, held, names)
