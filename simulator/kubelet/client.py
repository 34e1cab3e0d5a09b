"""The kubelet's side of one plugin's socket, with errors worded as Go's gRPC words them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import grpc
import grpc.aio

from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet.deviceplugin_pb2_grpc import DevicePluginStub
from services.kubelet.sockets import HEALTHY, dial
from simulator.kubelet.allocator import PluginFailed, PreStart
from simulator.kubelet.registry import Device, Options

T = TypeVar("T")

PRE_START_SECONDS: Final = 30.0
"""The deadline of PreStartContainer (`KubeletPreStartContainerRPCTimeoutInSecs`)."""

DIAL_SECONDS: Final = 10.0
"""How long the kubelet tries to reach the socket of a plugin that registers."""

_GO_CODES: Final = {"CANCELLED": "Canceled", "OK": "OK"}


class PluginClient:
    """A connection to a plugin; once closed it stays closed."""

    def __init__(self, resource: str, path: Path) -> None:
        self.resource = resource
        self.path = path
        self._channel = dial(path)
        self._stub = DevicePluginStub(self._channel)
        self._closed = False

    async def connect(self, seconds: float = DIAL_SECONDS) -> Options:
        """Dials, and asks what the plugin can do."""
        try:
            async with asyncio.timeout(seconds):
                await self._channel.channel_ready()
        except TimeoutError as error:
            raise PluginFailed("failed to dial device plugin: context deadline exceeded") from error
        try:
            options = await self._call(self._stub.GetDevicePluginOptions(pb.Empty()))
        except PluginFailed as error:
            raise PluginFailed(f"failed to get device plugin options: {error}") from error
        return Options(options.pre_start_required, options.get_preferred_allocation_available)

    async def watch(self, listed: Callable[[Iterable[Device]], None]) -> str:
        """Follows ListAndWatch until it ends.

        Args:
            listed: called with each list as it comes.

        Returns:
            Why it ended.
        """
        try:
            call = self._stub.ListAndWatch(pb.Empty())
        except grpc.aio.UsageError as error:  # it was dropped before it could be asked
            return str(error)
        try:
            while True:
                response = await self._call(call.read())
                if not isinstance(response, pb.ListAndWatchResponse):
                    return "EOF"
                listed([_device(each) for each in response.devices])
        except PluginFailed as error:
            return str(error)
        finally:
            call.cancel()

    async def preferred(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> tuple[str, ...]:
        """Ask which of the available devices the plugin prefers."""
        request = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available,
            must_include_deviceIDs=must_include,
            allocation_size=size,
        )
        response = await self._call(
            self._stub.GetPreferredAllocation(
                pb.PreferredAllocationRequest(container_requests=[request])
            )
        )
        answers = response.container_responses
        return tuple(answers[0].deviceIDs) if answers else ()

    async def allocate(self, ids: Sequence[str]) -> pb.ContainerAllocateResponse | None:
        """Ask what a container needs for its devices; None if the answer is empty."""
        request = pb.ContainerAllocateRequest(devices_ids=ids)
        response = await self._call(
            self._stub.Allocate(pb.AllocateRequest(container_requests=[request]))
        )
        return response.container_responses[0] if response.container_responses else None

    async def pre_start(self, call: PreStart, seconds: float = PRE_START_SECONDS) -> None:
        """Let the plugin prepare the devices of a container that is about to start."""
        request = pb.PreStartContainerRequest(devices_ids=call.ids)
        await self._call(self._stub.PreStartContainer(request, timeout=seconds))

    async def close(self) -> None:
        """Ends the connection and all calls on it."""
        self._closed = True
        await self._channel.close()

    async def _call(self, call: Awaitable[T]) -> T:
        """Waits for an answer."""
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise PluginFailed(go_text(error.code(), error.details() or "")) from error
        except (asyncio.CancelledError, grpc.aio.UsageError) as error:
            # gRPC cancels the calls of a channel that is closed as if their caller had been.
            task = asyncio.current_task()
            if not self._closed or (task is not None and task.cancelling()):
                raise
            text = go_text(grpc.StatusCode.CANCELLED, "grpc: the client connection is closing")
            raise PluginFailed(text) from error


def go_text(code: grpc.StatusCode, details: str) -> str:
    """An error as Go prints it: `rpc error: code = NotFound desc = …`."""
    name = _GO_CODES.get(code.name) or code.name.title().replace("_", "")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and details == "Deadline Exceeded":
        details = "context deadline exceeded"
    return f"rpc error: code = {name} desc = {details}"


def _device(device: pb.Device) -> Device:
    nodes = tuple(node.ID for node in device.topology.nodes)
    return Device(device.ID, device.health == HEALTHY, nodes)
