"""What the driver of a node is given; tests/umockdev has the kernel's side."""

import struct
from array import array
from pathlib import Path

import pytest

from services.programming.ioctls import IOCTLS, DriverCalls, DriverNode, ProgrammingFailed


class Recorded(DriverCalls):
    """Keeps what it is given and writes a status, as the out-of-tree driver does."""

    def __init__(self, error: int = 0, status: int = 0) -> None:
        self.error, self.status = error, status
        self.made: list[tuple[int, bytes]] = []
        self.data: array[int] | None = None

    def ioctl(
        self,
        node: DriverNode,  # noqa: ARG002 - not needed here
        request: int,
        argument: int | bytearray,
        data: "array[int] | None" = None,
    ) -> int:
        assert isinstance(argument, bytearray)
        self.made.append((request, bytes(argument)))
        self.data = data
        if len(argument) == 32:
            struct.pack_into("<Q", argument, 24, self.status)
        if self.error:
            raise OSError(self.error, "refused")
        return 0


@pytest.mark.parametrize(("driver", "size"), [("dfl", 24), ("opae", 32)])
def test_a_bitstream_is_given_by_its_address_without_another_copy(driver: str, size: int) -> None:
    calls, data = Recorded(), array("B", b"bitstream")
    DriverNode(-1, Path("/dev/fme"), IOCTLS[driver], calls).program_port(3, data)
    ((request, argument),) = calls.made
    address, length = data.buffer_info()
    assert request == IOCTLS[driver].program
    assert struct.unpack_from("<4IQ", argument) == (size, 0, 3, length, address)
    assert calls.data is data


@pytest.mark.parametrize(("driver", "status"), [("dfl", 0), ("opae", 0b10)])
def test_the_hardware_status_is_reported_where_the_driver_gives_it(
    driver: str, status: int
) -> None:
    calls = Recorded(error=5, status=0b10)
    with pytest.raises(ProgrammingFailed) as raised:
        DriverNode(-1, Path("/dev/fme"), IOCTLS[driver], calls).program_port(0, array("B", b"x"))
    assert (raised.value.errno, raised.value.status) == (5, status)
