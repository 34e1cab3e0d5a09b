"""Asking the kubelet which container has which device.

Its answer leaves out init containers, and is given even while a container is about to start; see
`checkpoint` for what knows more.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from services.kubelet import podresources_pb2 as pb
from services.kubelet import podresources_pb2_grpc as rpc
from services.kubelet.sockets import dial
from services.process.errors import KubeletError

MAX_ANSWER: Final = 16 * 1024 * 1024
"""Bytes, as the kubelet's own limit for this service."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Devices that a running container has.

    Args:
        namespace: Its pod's.
        pod: Its pod's name.
        container: Its name.
        resource: Full resource name.
        device_ids: The devices of that resource.
    """

    namespace: str
    pod: str
    container: str
    resource: str
    device_ids: tuple[str, ...]


async def holdings(socket: Path, *, seconds: float = 5.0) -> tuple[Holding, ...]:
    """Every device that a container on this node has.

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
            raise KubeletError(
                f"the kubelet doesn't say who has which device ({socket}):"
                f" {error.code().name}: {error.details()}"
            ) from error
    return tuple(
        Holding(
            pod.namespace, pod.name, container.name, devices.resource_name, (*devices.device_ids,)
        )
        for pod in answer.pod_resources
        for container in pod.containers
        for devices in container.devices
    )
