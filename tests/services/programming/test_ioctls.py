"""The bytes that the out-of-tree driver gets; `tests/kernel` has the one in Linux."""

import struct
from array import array
from pathlib import Path

import pytest

from services.programming.ioctls import IOCTLS, DriverCalls, DriverNode, ProgrammingFailed


class Recorded(DriverCalls):
    """A driver that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[tuple[int, bytes]] = []
        self.status = b""

    def ioctl(
        self,
        _node: DriverNode,
        request: int,
        argument: int | bytearray,
        _data: "array[int] | None" = None,
    ) -> int:
        """Keep the call; it fails if there is a status to write."""
        self.got.append((request, bytes(argument or b"")))
        if self.status and isinstance(argument, bytearray):
            argument[24:] = self.status
            raise OSError(5, "x")
        return 0


def test_the_out_of_tree_driver_gets_its_own_structures() -> None:
    calls, data = Recorded(), array("B", b"12345")
    node = DriverNode(3, Path("/dev/intel-fpga-fme.0"), IOCTLS["opae"], calls)
    node.reset_port()
    node.program_port(1, data)
    node.release_port(1)
    node.assign_port(1)
    # intel-fpga.h: argsz, flags, port, size, address, status; argsz, flags, port
    program = struct.pack("<IIIIQQ", 32, 0, 1, 5, data.buffer_info()[0], 0)
    move = struct.pack("<III", 12, 0, 1)
    assert calls.got == [(0xB540, b""), (0xB580, program), (0xB581, move), (0xB582, move)]
    calls.status = struct.pack("<Q", 4)
    with pytest.raises(ProgrammingFailed) as failed:
        node.program_port(1, data)
    assert failed.value.status == 4
