"""Closing a listening socket without losing a connection that a client already has.

The kernel completes connections on its own and keeps them until they are accepted; closing the
socket resets those that wait. So, first, the kernel is told to drop what would open a new one: a
socket filter on the listening socket sees each segment before TCP does (Linux,
Documentation/networking/filter.rst), and lets through all but a SYN. The last segment of a
handshake that had begun still passes. Then what waits is accepted, and then the socket closes.

A client whose SYN was dropped sends it again after a second, and is refused then.
"""

import array
import contextlib
import socket
import struct
from typing import Final

SETTLE_SECONDS: Final = 0.2
"""How long handshakes that have begun may take to come to their end: a slow round trip."""

_SO_ATTACH_FILTER: Final = 26
_FLAGS: Final = 13
"""Where in a TCP header the flags are."""
_SYN: Final = 0x02
_SYN_ACK: Final = 0x12
_NO_SYN: Final = (
    (0x30, 0, 0, _FLAGS),  # load that byte
    (0x54, 0, 0, _SYN_ACK),  # and mask
    (0x15, 0, 1, _SYN),  # if it is SYN alone, go on, else skip one
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0xFFFFFFFF),  # let pass
)
_INFO_BYTES: Final = 104
_QUEUE_AT: Final = 24
"""`tcpi_unacked` of `struct tcp_info`: for a listening socket, how many wait to be accepted."""


def refuse_new(listener: socket.socket) -> bool:
    """Lets nobody new connect; who has connected waits to be accepted as before.

    Returns:
        Whether that could be done: some sandboxes know no socket filters.
    """
    code = array.array("B", b"".join(struct.pack("HBBI", *line) for line in _NO_SYN))
    program = struct.pack("HP", len(_NO_SYN), code.buffer_info()[0])
    with contextlib.suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        return True
    return False


def waiting(listener: socket.socket) -> int:
    """How many connections wait to be accepted."""
    with contextlib.suppress(OSError, struct.error):
        info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        (number,) = struct.unpack_from("I", info, _QUEUE_AT)
        return int(number)
    return 0
