"""Clients that attack the webhook, in a process of their own.

    python -m tests.webhook.attackers PORT CONNECTIONS KIND=NUMBER...

Each client connects, sends what its kind sends, and connects again when its connection is closed.
The process ends when all clients together have made so many connections, or after `SECONDS`.
"""

import asyncio
import contextlib
import ssl
import sys

from tests.webhook.reviews import body

SECONDS = 4
WHOLE = 3 * 1024 * 1024
HELLO = b"\x16\x03\x01\x20\x00\x01\x00\x1f\xf0\x03\x03" + b"\x00" * 7_000
"""Most of a long ClientHello."""


def head(length: int) -> bytes:
    """The head of a review whose body has so many bytes."""
    lines = f"Content-Length: {length}\r\nContent-Type: application/json\r\n\r\n"
    return b"POST /mutate HTTP/1.1\r\nHost: x\r\n" + lines.encode()


REVIEW = head(len(body())) + body()
SENT = {
    "bodies": head(WHOLE) + b" " * (WHOLE - 1),
    "drips": head(WHOLE),
    "half_open": HELLO,
    "heads": b"POST /mutate HTTP/1.1\r\n" + b"a:b\r\n" * 3000,
    "idle": b"",
    "silent": b"",
    "kept": REVIEW,
    "short_heads": b"POST /mutate HTTP/1.1\r\n" + b"a:b\r\n" * 90,
}
"""What a client of each kind sends first."""


class Attackers:
    """Clients that make `connections` connections together."""

    def __init__(self, port: int, connections: int) -> None:
        self._port = port
        self._left = connections
        self._finished = asyncio.Event()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    async def attack(self, kinds: dict[str, int]) -> None:
        """Run so many clients of each kind until the last connection is made, or the time is up."""
        tasks = [
            asyncio.create_task(self._repeat(kind))
            for kind, number in kinds.items()
            for _ in range(number)
        ]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._finished.wait(), SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(self, kind: str) -> None:
        while True:
            with contextlib.suppress(OSError):
                await self._connect(kind)
            await asyncio.sleep(0.02)  # leaves time for the webhook on a machine with one CPU

    async def _connect(self, kind: str) -> None:
        tls = None if kind in ("half_open", "silent") else self._context
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=tls)
        try:
            self._left -= 1
            if self._left == 0:
                self._finished.set()
            writer.write(SENT[kind])
            await writer.drain()
            while kind == "drips" and not reader.at_eof():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(1)  # a slow client
            while await reader.read(65536):
                pass
        finally:
            writer.transport.abort()


def main() -> None:
    """Read the command line and attack."""
    port, connections, *named = sys.argv[1:]
    pairs = [each.split("=") for each in named]
    kinds = {kind: int(number) for kind, number in pairs}

    async def attack() -> None:
        await Attackers(int(port), int(connections)).attack(kinds)

    asyncio.run(attack())


if __name__ == "__main__":
    main()
