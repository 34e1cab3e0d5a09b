# Types of dra_health_pb2_grpc.py as grpc.aio uses it; by hand, for want of a generator.
# ruff: noqa: N802 - method names are the protocol's

import abc
from collections.abc import AsyncIterator

import grpc.aio

from services.kubelet import dra_health_pb2 as pb

class DRAResourceHealthStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    NodeWatchResources: grpc.aio.UnaryStreamMultiCallable[
        pb.NodeWatchResourcesRequest, pb.NodeWatchResourcesResponse
    ]

class DRAResourceHealthServicer(metaclass=abc.ABCMeta):
    @abc.abstractmethod
    def NodeWatchResources(
        self,
        request: pb.NodeWatchResourcesRequest,
        context: grpc.aio.ServicerContext[
            pb.NodeWatchResourcesRequest, pb.NodeWatchResourcesResponse
        ],
    ) -> AsyncIterator[pb.NodeWatchResourcesResponse]: ...

def add_DRAResourceHealthServicer_to_server(
    servicer: DRAResourceHealthServicer, server: grpc.aio.Server
) -> None: ...
