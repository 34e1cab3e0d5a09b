# Types of pluginregistration_pb2_grpc.py as grpc.aio uses it; by hand, for want of a generator.
# ruff: noqa: N802 - method names are the protocol's

import abc

import grpc.aio

from services.kubelet import pluginregistration_pb2 as pb

class RegistrationStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    GetInfo: grpc.aio.UnaryUnaryMultiCallable[pb.InfoRequest, pb.PluginInfo]
    NotifyRegistrationStatus: grpc.aio.UnaryUnaryMultiCallable[
        pb.RegistrationStatus, pb.RegistrationStatusResponse
    ]

class RegistrationServicer(metaclass=abc.ABCMeta):
    @abc.abstractmethod
    async def GetInfo(
        self,
        request: pb.InfoRequest,
        context: grpc.aio.ServicerContext[pb.InfoRequest, pb.PluginInfo],
    ) -> pb.PluginInfo: ...
    @abc.abstractmethod
    async def NotifyRegistrationStatus(
        self,
        request: pb.RegistrationStatus,
        context: grpc.aio.ServicerContext[pb.RegistrationStatus, pb.RegistrationStatusResponse],
    ) -> pb.RegistrationStatusResponse: ...

def add_RegistrationServicer_to_server(
    servicer: RegistrationServicer, server: grpc.aio.Server
) -> None: ...
