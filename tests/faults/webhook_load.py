"""`python -m tests.faults.webhook_load`: load for a webhook, which writes down every answer.

Some connections ask one review after the other, as fast as they get answers or in step, and make
themselves anew now and then. What comes out is one JSON a line: an `Asked` for each answer, a
`Met` for each handshake, a `Failure` for whatever went wrong. Times are of `time.monotonic`, which
all processes of a machine share. It ends with SIGTERM or its standard input.
"""

import argparse
import asyncio
import base64
import hashlib
import random
import ssl
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import uvloop

from tests.webhook.reviews import pod, review

DOMAIN: Final = "fpga.intel.com"
FUNCTION: Final = "nlb"
"""What names of functions begin with."""
REGION: Final = "card"
"""The same for regions."""
CONNECTIONS: Final = 8
REQUESTS: Final = 60
"""How many requests a connection is used for, about."""


class Asked(msgspec.Struct, tag="asked", array_like=True):
    """A review, and what came back.

    Attributes:
        sent: when.
        answered: when the answer was there.
        namespace: the pod's.
        kind: of the mappings that its names are of.
        names: what its containers ask for, one each.
        units: how many units of it.
        refused: the names that a refusal says aren't mapped; None if the pod was admitted.
        given: for each container the resource, its units, and the values of its variables.
    """

    sent: float
    answered: float
    namespace: str
    kind: str
    names: tuple[str, ...]
    units: tuple[int, ...]
    refused: tuple[str, ...] | None = None
    given: tuple[tuple[str, int, tuple[str, ...]], ...] = ()


class Met(msgspec.Struct, tag="met", array_like=True):
    """A handshake: when it began and ended, and which certificate was shown."""

    begun: float
    at: float
    certificate: str


class Failure(msgspec.Struct, tag="failure", array_like=True):
    """What should not have happened."""

    at: float
    problem: str


Line = Asked | Met | Failure


@dataclass
class Load:
    """The clients.

    Attributes:
        port: the webhook's.
        namespaces: how many there are.
        functions: how many names of functions each has.
        regions: the same for regions.
        interval: seconds between two requests of a connection; 0 for none.
    """

    port: int
    context: ssl.SSLContext
    namespaces: int
    functions: int
    regions: int
    chance: random.Random
    interval: float = 0.0
    number: int = 0
    lines: list[bytes] = field(default_factory=list)

    async def client(self) -> None:
        """One connection after the other, for ever."""
        while True:
            begun = time.monotonic()
            try:
                reader, writer = await asyncio.open_connection(
                    "localhost", self.port, ssl=self.context
                )
                shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
                self._note(Met(begun, time.monotonic(), hashlib.sha256(shown).hexdigest()))
                await self._use(reader, writer)
            except (OSError, EOFError, AssertionError, LookupError, ValueError) as error:
                self._note(Failure(begun, f"{time.monotonic():.3f}: {error!r}"))
                await asyncio.sleep(0.1)  # no busy loop

    async def _use(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests = self.chance.randint(REQUESTS // 2, REQUESTS * 3 // 2)
        due = time.monotonic()
        for _ in range(requests):
            due = max(due + self.interval, time.monotonic() - self.interval)
            await asyncio.sleep(max(0.0, due - time.monotonic()))  # in step
            asked = self._question()
            self.number += 1
            uid = f"uid-{self.number}"
            body = _body(asked, uid)
            asked.sent = time.monotonic()
            writer.write(_HEAD % len(body) + body)
            answer = await _answer(reader)
            asked.answered = time.monotonic()
            _read(asked, answer, uid)
            self._note(asked)
        writer.transport.abort() if self.chance.random() < 0.1 else writer.close()

    def _question(self) -> Asked:
        namespace = f"ns{self.chance.randrange(self.namespaces)}"
        kind = FUNCTION if self.chance.random() < 0.8 else REGION
        most = self.functions if kind == FUNCTION else self.regions
        number = 2 if kind == FUNCTION else 1
        names = tuple(f"{kind}-{self.chance.randrange(most)}" for _ in range(number))
        units = tuple(self.chance.randint(1, 3) for _ in names)
        return Asked(0, 0, namespace, kind, names, units)

    def _note(self, line: Line) -> None:
        self.lines.append(msgspec.json.encode(line))

    async def write(self) -> None:
        """Passes on what was written down, until the reader is gone."""
        while True:
            await asyncio.sleep(0.1)  # no busy loop
            lines, self.lines = self.lines, []
            if lines:
                sys.stdout.buffer.write(b"\n".join([*lines, b""]))
                sys.stdout.buffer.flush()


_HEAD: Final = (
    b"POST /mutate?timeout=5s HTTP/1.1\r\nHost: webhook\r\nUser-Agent: kube-apiserver-admission\r\n"
    b"Content-Length: %d\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n\r\n"
)


def _body(asked: Asked, uid: str) -> bytes:
    made = pod()
    made["metadata"]["name"] = f"pod-{uid}"
    (container,) = made["spec"]["containers"]
    made["spec"]["containers"] = []
    for number, (name, units) in enumerate(zip(asked.names, asked.units, strict=True)):
        limits = {f"{DOMAIN}/{name}": str(units), "cpu": "1"}
        resources = {"limits": limits, "requests": limits}
        made["spec"]["containers"].append(
            container | {"name": f"c{number}", "resources": resources}
        )
    return msgspec.json.encode(review(made, uid=uid, namespace=asked.namespace))


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise ValueError(head[:200])
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return await reader.readexactly(length)


def _read(asked: Asked, answer: bytes, uid: str) -> None:
    """Reads an answer as an API server would, far enough to judge it."""
    response = msgspec.json.decode(answer)["response"]
    if response["uid"] != uid:
        raise ValueError(f"an answer to {response['uid']} came for {uid}")
    if not response["allowed"]:
        message = response["status"]["message"]
        unmapped = {name for name in asked.names if f"/{name} does not exist in" in message}
        if not unmapped:
            raise ValueError(f"refused: {message}")
        asked.refused = tuple(sorted(unmapped))
        return
    operations: list[dict[str, Any]] = msgspec.json.decode(base64.b64decode(response["patch"]))
    asked.given = tuple(_given(operations, number) for number in range(len(asked.names)))


def _given(operations: list[dict[str, Any]], number: int) -> tuple[str, int, tuple[str, ...]]:
    path = f"/spec/containers/{number}/"
    mine = [one for one in operations if one["path"].startswith(path) and one["op"] == "add"]
    limits = [one for one in mine if one["path"].startswith(f"{path}resources/limits/")]
    (limit,) = limits
    resource = limit["path"].rpartition("/")[2].replace("~1", "/").replace("~0", "~")
    values = [one["value"]["value"] for one in mine if one["path"] == f"{path}env/-"]
    return resource, int(limit["value"]), tuple(values)


async def run(given: argparse.Namespace) -> None:
    """Loads as fast as it goes first, and then at a share of that."""
    load = Load(
        given.port,
        ssl.create_default_context(cafile=given.ca),
        given.namespaces,
        given.functions,
        given.regions,
        random.Random(given.seed),  # noqa: S311 - no secret
    )
    clients = [asyncio.create_task(load.client()) for _ in range(CONNECTIONS)]
    clients.append(asyncio.create_task(load.write()))
    begun = time.monotonic()
    await asyncio.sleep(given.measure)  # at full rate
    rate = load.number / (time.monotonic() - begun)
    load.interval = CONNECTIONS / (rate * given.share)
    sys.stderr.write(f"{rate:.0f}\n")
    sys.stderr.flush()
    try:
        await asyncio.gather(*clients)
    except BrokenPipeError:
        return


def main() -> None:
    """Runs the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ca", required=True)
    parser.add_argument("--namespaces", type=int, required=True)
    parser.add_argument("--functions", type=int, required=True)
    parser.add_argument("--regions", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--measure", type=float, default=3.0, help="seconds at full rate")
    parser.add_argument("--share", type=float, default=0.5, help="of the full rate, afterwards")
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
