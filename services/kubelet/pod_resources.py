"""The kubelet's PodResources service: which devices the containers of active pods have.

Its answer omits init containers; `services.kubelet.checkpoint` has them.
"""

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
    async with dial(socket, ("grpc.max_receive_message_length", MAX_ANSWER)) as channel:
        stub = rpc.PodResourcesListerStub(channel)
        try:
            # Before it answers, the kubelet forgets the allocations of pods that have ended
            # (`pkg/kubelet/apis/podresources/server_v1.go`, `List`).
            answer = await stub.List(pb.ListPodResourcesRequest(), timeout=seconds)
        except grpc.aio.AioRpcError as error:
            # The reason comes after the list of the addresses that gRPC tried.
            reason = (error.details() or "").rpartition(" error: ")[2]
            raise KubeletError(
                f"the kubelet doesn't list the active pods ({socket}):"
                f" {error.code().name}: {plain(reason, 300)}"
            ) from error
    # A resource is listed in parts. A pod may be there with the one that it replaces.
    held: dict[tuple[int, str, str, str, str], set[str]] = {}
    for number, pod in enumerate(answer.pod_resources):
        for container in pod.containers:
            for devices in container.devices:
                key = number, pod.namespace, pod.name, container.name, devices.resource_name
                held.setdefault(key, set()).update(devices.device_ids)
    return tuple(Held(*key[1:], frozenset(ids)) for key, ids in held.items())
