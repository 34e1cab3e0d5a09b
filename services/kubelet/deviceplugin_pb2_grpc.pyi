# Types of deviceplugin_pb2_grpc.py as grpc.aio uses it; by hand, for want of a generator.
# ruff: noqa: N802 - method names are the protocol's

import abc
from collections.abc import AsyncIterator
from typing import TypeAlias

import grpc.aio

from services.kubelet import deviceplugin_pb2 as pb

_Listing: TypeAlias = AsyncIterator[pb.ListAndWatchResponse]
_Preferred: TypeAlias = grpc.aio.ServicerContext[
    pb.PreferredAllocationRequest, pb.PreferredAllocationResponse
]
_Allocating: TypeAlias = grpc.aio.ServicerContext[pb.AllocateRequest, pb.AllocateResponse]
_Starting: TypeAlias = grpc.aio.ServicerContext[
    pb.PreStartContainerRequest, pb.PreStartContainerResponse
]

class RegistrationStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    Register: grpc.aio.UnaryUnaryMultiCallable[pb.RegisterRequest, pb.Empty]

class RegistrationServicer(metaclass=abc.ABCMeta):
    @abc.abstractmethod
    async def Register(
        self,
        request: pb.RegisterRequest,
        context: grpc.aio.ServicerContext[pb.RegisterRequest, pb.Empty],
    ) -> pb.Empty: ...

def add_RegistrationServicer_to_server(
    servicer: RegistrationServicer, server: grpc.aio.Server
) -> None: ...

class DevicePluginStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    GetDevicePluginOptions: grpc.aio.UnaryUnaryMultiCallable[pb.Empty, pb.DevicePluginOptions]
    ListAndWatch: grpc.aio.UnaryStreamMultiCallable[pb.Empty, pb.ListAndWatchResponse]
    GetPreferredAllocation: grpc.aio.UnaryUnaryMultiCallable[
        pb.PreferredAllocationRequest, pb.PreferredAllocationResponse
    ]
    Allocate: grpc.aio.UnaryUnaryMultiCallable[pb.AllocateRequest, pb.AllocateResponse]
    PreStartContainer: grpc.aio.UnaryUnaryMultiCallable[
        pb.PreStartContainerRequest, pb.PreStartContainerResponse
    ]

class DevicePluginServicer(metaclass=abc.ABCMeta):
    @abc.abstractmethod
    async def GetDevicePluginOptions(
        self,
        request: pb.Empty,
        context: grpc.aio.ServicerContext[pb.Empty, pb.DevicePluginOptions],
    ) -> pb.DevicePluginOptions: ...
    @abc.abstractmethod
    def ListAndWatch(
        self,
        request: pb.Empty,
        context: grpc.aio.ServicerContext[pb.Empty, pb.ListAndWatchResponse],
    ) -> _Listing: ...
    @abc.abstractmethod
    async def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, context: _Preferred
    ) -> pb.PreferredAllocationResponse: ...
    @abc.abstractmethod
    async def Allocate(
        self, request: pb.AllocateRequest, context: _Allocating
    ) -> pb.AllocateResponse: ...
    @abc.abstractmethod
    async def PreStartContainer(
        self, request: pb.PreStartContainerRequest, context: _Starting
    ) -> pb.PreStartContainerResponse: ...

def add_DevicePluginServicer_to_server(
    servicer: DevicePluginServicer, server: grpc.aio.Server
) -> None: ...
