"""Values over a serial line of the kernel, which loses what its reader does not keep up with."""

import pickle
from multiprocessing.connection import Connection
from typing import Any, Final

CHUNK: Final = 1024
"""Bytes that are sent until the other side has read them; the line holds 4 KiB."""


def send(line: Connection, value: object) -> None:
    """Send a value."""
    data = pickle.dumps(value)
    line.send_bytes(str(len(data)).encode())
    for at in range(0, len(data), CHUNK):
        line.send_bytes(data[at : at + CHUNK])
        line.recv_bytes()


def receive(line: Connection) -> Any:
    """Receive a value; a line on which nothing comes is waited for."""
    size, data = int(line.recv_bytes()), b""
    while len(data) < size:
        data += line.recv_bytes()
        line.send_bytes(b"+")
    return pickle.loads(data)  # noqa: S301 - from our own process
