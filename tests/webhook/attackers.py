"""Clients of the webhook that never come to an end, in a process of their own."""

import asyncio
import contextlib
import ssl
import sys

from tests.webhook.reviews import body

SECONDS = 60
"""How long they go on if nobody ends them."""
WHOLE = 3 * 1024 * 1024
PLAIN = {"silent", "half_open", "long_hellos"}
"""Those that finish no TLS handshake."""
HELLO = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xf0\x03\x03" + b"\x00" * 12_000
"""Most of a long ClientHello."""


def head(length: int) -> bytes:
    """Of a review."""
    lines = f"Content-Length: {length}\r\nContent-Type: application/json\r\n\r\n"
    return b"POST /mutate HTTP/1.1\r\nHost: x\r\n" + lines.encode()


class Attackers:
    """Clients that do one thing each, again and again, for `SECONDS`.

    Args:
        port: The webhook's.
        kinds: How many do what.
    """

    def __init__(self, port: int, **kinds: int) -> None:
        self._port = port
        self._kinds = kinds
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    async def attack(self) -> None:
        """All of them, each on a new connection as soon as its old one is closed."""
        tasks = [
            asyncio.create_task(self._repeat(kind))
            for kind, number in self._kinds.items()
            for _ in range(number)
        ]
        await asyncio.wait(tasks, timeout=SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(self, kind: str) -> None:
        content = body()
        said = {
            "bodies": head(WHOLE) + b" " * (WHOLE - 1),
            "drips": head(WHOLE),
            "kept": head(len(content)) + content,
            "heads": b"POST /mutate HTTP/1.1\r\n" + b"a:b\r\n" * 3000,
            "short_heads": b"POST /mutate HTTP/1.1\r\n" + b"a:b\r\n" * 90,
            "half_open": HELLO,
            "long_hellos": b"\x16\x03\x01\x40\x00\x01\x01\xff\xff" + b"\x00" * 16_379,
            "pipelined": b"GET /healthz HTTP/1.1\r\n\r\n" * 10_000,
        }.get(kind, b"")
        while True:
            with contextlib.suppress(OSError):
                await self._connect(said, kind)
            await asyncio.sleep(0.02)  # or else they leave no time to anybody on one machine

    async def _connect(self, said: bytes, kind: str) -> None:
        tls = None if kind in PLAIN else self._context
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=tls)
        try:
            writer.write(said)
            await writer.drain()
            while kind == "drips" and not reader.at_eof():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(1)  # a slow client
            while await reader.read(65536):
                pass
        finally:
            writer.transport.abort()


if __name__ == "__main__":
    asked = [kind.split("=") for kind in sys.argv[2:]]
    attackers = Attackers(int(sys.argv[1]), **{kind: int(number) for kind, number in asked})
    asyncio.run(attackers.attack())
