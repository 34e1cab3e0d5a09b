"""A driver that is simulated: what stands below an injected root in place of the kernel's.

Below a root other than `/`, device nodes are files of any kind that know no ioctl. If somebody
listens on `dev/accelbind-driver.sock` beside them, what would be an ioctl is put to them: the name
of the node, the number, the argument, and the data that an address in the argument would point to.
They answer as a driver would, with an errno or the argument as they leave it. Where nobody listens,
nothing can be programmed, and there is nothing to reset.

This is never asked for nodes of `/`: the caller says whether the root is another one.

On the wire, both ways: a header (`_HEAD`), then bytes as it says. One connection a call.
"""

import errno
import os
import socket
import struct
from pathlib import Path
from typing import Final

SOCKET: Final = "accelbind-driver.sock"

_HEAD: Final = struct.Struct("<IIIQ")
"""A request: number, bytes of the name, of the argument, of the data."""

_ANSWER: Final = struct.Struct("<iI")
"""An answer: 0 or an errno, bytes of the argument."""

_SECONDS: Final = 60.0


def is_simulated(node: Path) -> bool:
    """Tell whether somebody stands in for the driver of a node."""
    return (node.parent / SOCKET).is_socket()


def call(node: Path, request: int, argument: bytes, data: bytes | memoryview = b"") -> bytes:
    """Make what would be an ioctl.

    Args:
        node: The node's path below the root.
        request: The ioctl's number.
        argument: Its structure.
        data: What an address in it points to.

    Returns:
        The structure as the driver leaves it.

    Raises:
        OSError: As the kernel would.
    """
    folder = os.open(node.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(f"/proc/self/fd/{folder}/{SOCKET}")  # the whole path may be too long
            name = node.name.encode()
            head = _HEAD.pack(request, len(name), len(argument), len(data))
            connection.sendall(head + name + argument)
            if data:  # who has read all that was announced may have answered and gone
                connection.sendall(data)
            error, length = _ANSWER.unpack(receive(connection, _ANSWER.size))
            answer = receive(connection, min(length, len(argument)))
    finally:
        os.close(folder)
    if error:
        raise OSError(error, os.strerror(error))
    return answer


def receive(connection: socket.socket, length: int) -> bytes:
    """Read exactly so many bytes.

    Raises:
        OSError: They don't come.
    """
    found = bytearray()
    while len(found) < length:
        piece = connection.recv(min(length - len(found), 1 << 20))
        if not piece:
            raise OSError(errno.ENODEV, "the simulated driver has gone")
        found += piece
    return bytes(found)
