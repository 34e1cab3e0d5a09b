# Types of dra_pb2_grpc.py as grpc.aio uses it; by hand, for want of a generator.
# ruff: noqa: N802 - method names are the protocol's

import abc
from typing import TypeAlias

import grpc.aio

from services.kubelet import dra_pb2 as pb

_Preparing: TypeAlias = grpc.aio.ServicerContext[
    pb.NodePrepareResourcesRequest, pb.NodePrepareResourcesResponse
]
_Unpreparing: TypeAlias = grpc.aio.ServicerContext[
    pb.NodeUnprepareResourcesRequest, pb.NodeUnprepareResourcesResponse
]

class DRAPluginStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    NodePrepareResources: grpc.aio.UnaryUnaryMultiCallable[
        pb.NodePrepareResourcesRequest, pb.NodePrepareResourcesResponse
    ]
    NodeUnprepareResources: grpc.aio.UnaryUnaryMultiCallable[
        pb.NodeUnprepareResourcesRequest, pb.NodeUnprepareResourcesResponse
    ]

class DRAPluginServicer(metaclass=abc.ABCMeta):
    @abc.abstractmethod
    async def NodePrepareResources(
        self, request: pb.NodePrepareResourcesRequest, context: _Preparing
    ) -> pb.NodePrepareResourcesResponse: ...
    @abc.abstractmethod
    async def NodeUnprepareResources(
        self, request: pb.NodeUnprepareResourcesRequest, context: _Unpreparing
    ) -> pb.NodeUnprepareResourcesResponse: ...

def add_DRAPluginServicer_to_server(
    servicer: DRAPluginServicer, server: grpc.aio.Server
) -> None: ...
