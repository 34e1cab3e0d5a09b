"""Devices, allocations and errors as messages and codes of the device plugin protocol."""

from collections.abc import Mapping
from typing import Final

import grpc

from services.devices.allocation import ContainerAllocation
from services.devices.model import Device
from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet.sockets import HEALTHY, UNHEALTHY
from services.process.errors import (
    AccelbindError,
    AskerError,
    BitstreamMissing,
    DeviceHung,
    DeviceRefused,
    NotMapped,
    TooSlow,
)

CODES: Final = (
    (NotMapped, grpc.StatusCode.PERMISSION_DENIED),
    (AskerError, grpc.StatusCode.FAILED_PRECONDITION),
    (BitstreamMissing, grpc.StatusCode.NOT_FOUND),
    (DeviceHung, grpc.StatusCode.DEADLINE_EXCEEDED),
    (TooSlow, grpc.StatusCode.DEADLINE_EXCEEDED),
    (DeviceRefused, grpc.StatusCode.INTERNAL),
)
"""gRPC codes by kind of error; the first that fits counts."""

OTHER_CODE: Final = grpc.StatusCode.UNAVAILABLE
"""Of any other error: the environment failed, and may work next time."""

INTERNAL_CODE: Final = grpc.StatusCode.INTERNAL
"""An internal error of accelbind; the plugin's log has the traceback."""


def code_of(error: AccelbindError) -> grpc.StatusCode:
    """The gRPC code of an error.

    FAILED_PRECONDITION if the request doesn't fit the node as it is, UNAVAILABLE if the environment
    failed and may work next time; some errors have more exact codes.
    """
    for kind, code in CODES:
        if isinstance(error, kind):
            return code
    return OTHER_CODE


def listing(devices: Mapping[str, Device]) -> pb.ListAndWatchResponse:
    """The message with all devices, in the order of their ids."""
    return pb.ListAndWatchResponse(devices=[_device(devices[key]) for key in sorted(devices)])


def _device(device: Device) -> pb.Device:
    message = pb.Device(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY)
    if device.numa_node is not None:  # set but empty breaks the single-numa-node policy
        message.topology.nodes.add(ID=device.numa_node)
    return message


def allocation_message(given: ContainerAllocation) -> pb.ContainerAllocateResponse:
    """The message with the allocation of one container."""
    return pb.ContainerAllocateResponse(
        envs=given.envs,
        devices=[
            pb.DeviceSpec(
                container_path=each.container_path,
                host_path=each.host_path,
                permissions=each.permissions,
            )
            for each in given.devices
        ],
        annotations=given.annotations,
        cdi_devices=[pb.CDIDevice(name=name) for name in given.cdi_devices],
    )
