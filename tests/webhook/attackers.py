"""Clients that attack the webhook, in a process of their own.

    python -m tests.webhook.attackers PORT KIND NUMBER

Each client connects, sends what its kind sends, and connects again when its connection is closed.
The process writes a line when each client has sent all, and ends when its input ends.
"""

import asyncio
import contextlib
import socket
import ssl
import sys

from tests.webhook.reviews import body, pod

WHOLE = 3 * 1024 * 1024
PIECE = 16_000
"""Bytes of a TLS record."""


def head(length: int) -> bytes:
    """The head of a review whose body has so many bytes."""
    lines = f"Content-Length: {length}\r\nContent-Type: application/json\r\n\r\n"
    return b"POST /mutate HTTP/1.1\r\nHost: x\r\n" + lines.encode()


def hello(length: int) -> bytes:
    """A ClientHello with a body of so many bytes, without the last of them."""
    message = b"\x01" + length.to_bytes(3, "big") + b"\x03\x03" + bytes(length - 3)
    pieces = [message[at : at + PIECE] for at in range(0, len(message), PIECE)]
    return b"".join(b"\x16\x03\x01" + len(each).to_bytes(2, "big") + each for each in pieces)


NAMES = tuple(f"{number:063}" for number in range(255))
"""Names of Accelerators, as long as a resource's name may be."""


def review() -> bytes:
    """A review with the largest answer: each name, in a container of its own, and a large one."""
    containers = [
        {"name": f"{'c' * 59}-{name[-3:]}", "resources": {"limits": {f"accelbind.dev/{name}": "1"}}}
        for name in (*NAMES, "large")
    ]
    content = body({"metadata": {"name": "large"}, "spec": {"containers": containers}})
    return head(len(content)) + content


def annotated() -> bytes:
    """A review of 56 KB, most of it annotations."""
    meta = {"annotations": {"example.com/note": "n" * 55_000}}
    content = body({**pod(), "metadata": {**pod()["metadata"], **meta}})
    return head(len(content)) + content


SENT = {
    "bodies": head(WHOLE) + b" " * (WHOLE - 1),
    "hellos": hello(131_000),
    "unread": annotated(),
    "largest": review(),
    "heads": b"POST /mutate HTTP/1.1\r\n" + b"aa: bb\r\n" * 20,
    "idle": b"",
}
"""What a client of each kind sends."""
UNREAD = {"unread", "largest"}
"""The kinds whose clients don't read their answers."""


async def attack(port: int, kind: str, number: int) -> None:
    """Run so many clients until standard input ends."""
    loop = asyncio.get_running_loop()
    sent: list[asyncio.Event] = [asyncio.Event() for _ in range(number)]
    clients = [asyncio.create_task(_repeat(port, kind, event)) for event in sent]
    for event in sent:
        await event.wait()
    print("sent", flush=True)  # noqa: T201 - for the test
    await loop.run_in_executor(None, sys.stdin.read)
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)


async def _repeat(port: int, kind: str, sent: asyncio.Event) -> None:
    while True:
        with contextlib.suppress(OSError):
            await _connect(port, kind, sent)
        await asyncio.sleep(0.1)  # leaves time for the webhook on a machine with one CPU


async def _connect(port: int, kind: str, sent: asyncio.Event) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", port))
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    reader, writer = await asyncio.open_connection(
        sock=plain,
        ssl=None if kind == "hellos" else context,
        server_hostname=None if kind == "hellos" else "",
    )
    try:
        writer.write(SENT[kind])
        if kind in UNREAD:
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of both ways
        with contextlib.suppress(OSError):
            await writer.drain()
        sent.set()
        if kind in UNREAD:
            await asyncio.Event().wait()
        await reader.read()
    finally:
        writer.transport.abort()


if __name__ == "__main__":
    asyncio.run(attack(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
