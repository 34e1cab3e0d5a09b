# Types of podresources_pb2_grpc.py as grpc.aio uses it; by hand, for want of a generator.
# ruff: noqa: N802 - method names are the protocol's

import abc

import grpc.aio

from services.kubelet import podresources_pb2 as pb

class PodResourcesListerStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    List: grpc.aio.UnaryUnaryMultiCallable[pb.ListPodResourcesRequest, pb.ListPodResourcesResponse]
    GetAllocatableResources: grpc.aio.UnaryUnaryMultiCallable[
        pb.AllocatableResourcesRequest, pb.AllocatableResourcesResponse
    ]
    Get: grpc.aio.UnaryUnaryMultiCallable[pb.GetPodResourcesRequest, pb.GetPodResourcesResponse]

class PodResourcesListerServicer(metaclass=abc.ABCMeta):
    @abc.abstractmethod
    async def List(
        self,
        request: pb.ListPodResourcesRequest,
        context: grpc.aio.ServicerContext[pb.ListPodResourcesRequest, pb.ListPodResourcesResponse],
    ) -> pb.ListPodResourcesResponse: ...
    @abc.abstractmethod
    async def GetAllocatableResources(
        self,
        request: pb.AllocatableResourcesRequest,
        context: grpc.aio.ServicerContext[
            pb.AllocatableResourcesRequest, pb.AllocatableResourcesResponse
        ],
    ) -> pb.AllocatableResourcesResponse: ...
    @abc.abstractmethod
    async def Get(
        self,
        request: pb.GetPodResourcesRequest,
        context: grpc.aio.ServicerContext[pb.GetPodResourcesRequest, pb.GetPodResourcesResponse],
    ) -> pb.GetPodResourcesResponse: ...

def add_PodResourcesListerServicer_to_server(
    servicer: PodResourcesListerServicer, server: grpc.aio.Server
) -> None: ...
