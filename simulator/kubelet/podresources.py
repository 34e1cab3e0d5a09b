"""PodResources: who has what, for tools on the node.

As in the real kubelet: one `ContainerDevices` per device (and NUMA node); sidecars and app
containers are listed, plain init containers are not; pods that have come to their end are not; a
pod is listed from before it is admitted.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import grpc
import grpc.aio

from services.kubelet import podresources_pb2 as pb
from services.kubelet.podresources_pb2_grpc import PodResourcesListerServicer
from simulator.kubelet.allocator import Allocator
from simulator.kubelet.pods import PodSpec
from simulator.kubelet.registry import Registry

ListContext: TypeAlias = grpc.aio.ServicerContext[
    pb.ListPodResourcesRequest, pb.ListPodResourcesResponse
]
AllocatableContext: TypeAlias = grpc.aio.ServicerContext[
    pb.AllocatableResourcesRequest, pb.AllocatableResourcesResponse
]
GetContext: TypeAlias = grpc.aio.ServicerContext[
    pb.GetPodResourcesRequest, pb.GetPodResourcesResponse
]


class PodResources(PodResourcesListerServicer):
    """The PodResources service over the kubelet's own tables."""

    def __init__(
        self,
        active: Callable[[], Iterable[PodSpec]],
        allocator: Allocator,
        registry: Registry,
    ) -> None:
        self._active = active
        self._allocator = allocator
        self._registry = registry

    async def List(  # noqa: N802 - the protocol's name
        self,
        request: pb.ListPodResourcesRequest,  # noqa: ARG002 - it has no fields
        context: ListContext,  # noqa: ARG002 - nothing can go wrong
    ) -> pb.ListPodResourcesResponse:
        """All pods of the node."""
        self._allocator.forget_inactive()
        return pb.ListPodResourcesResponse(
            pod_resources=[self._pod_resources(pod) for pod in self._active()]
        )

    async def GetAllocatableResources(  # noqa: N802 - the protocol's name
        self,
        request: pb.AllocatableResourcesRequest,  # noqa: ARG002 - it has no fields
        context: AllocatableContext,  # noqa: ARG002 - nothing can go wrong
    ) -> pb.AllocatableResourcesResponse:
        """All healthy devices, taken or not."""
        return pb.AllocatableResourcesResponse(
            devices=[
                each
                for resource, devices in self._registry.allocatable_devices().items()
                for device in devices
                for each in _devices(resource, device.id, device.numa_nodes)
            ]
        )

    async def Get(  # noqa: N802 - the protocol's name
        self, request: pb.GetPodResourcesRequest, context: GetContext
    ) -> pb.GetPodResourcesResponse:
        """One pod."""
        wanted = (request.pod_namespace, request.pod_name)
        pod = next((each for each in self._active() if (each.namespace, each.name) == wanted), None)
        if pod is None:
            text = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
            await context.abort(grpc.StatusCode.UNKNOWN, text)
        return pb.GetPodResourcesResponse(pod_resources=self._pod_resources(pod))

    def _pod_resources(self, pod: PodSpec) -> pb.PodResources:
        listed = [each for each in pod.all_containers if not each.runs_to_completion]
        return pb.PodResources(
            name=pod.name,
            namespace=pod.namespace,
            containers=[
                pb.ContainerResources(
                    name=container.name,
                    devices=[
                        each
                        for entry in self._allocator.ledger.of_container(pod.uid, container.name)
                        for device_id in entry.ids
                        for each in _devices(entry.resource, device_id, entry.numa_nodes(device_id))
                    ],
                )
                for container in listed
            ],
        )


def _devices(
    resource: str, device_id: str, numa_nodes: tuple[int, ...]
) -> Iterable[pb.ContainerDevices]:
    if not numa_nodes:
        yield pb.ContainerDevices(resource_name=resource, device_ids=[device_id])
    for node in numa_nodes:
        topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=node)])
        yield pb.ContainerDevices(resource_name=resource, device_ids=[device_id], topology=topology)
