"""Everything at once, for long: no answer fails or is wrong, and nothing stays in memory.

Mappings change all the time, the API server goes away and comes back, and the certificate is
renewed, while clients send reviews. The judge knows nothing of the product: names of resources are
put together here. An answer is right if it follows from what its name was mapped to at some time
between a moment before the request (`LAG`; during an outage, since before it) and the answer.
"""

import asyncio
import base64
import contextlib
import json
import random
import ssl
import statistics
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from certs.folder import issue
from simulator.apiserver.standin import ApiServerStandIn, Options
from tests.support import eventually_async, soak, soaking
from tests.webhook.reviews import pod, response_of, review
from tests.webhook.running import Webhook, start_webhook

STRICT = soaking()
"""Whether the machine does nothing else: what is late or rare says something of the code then."""
LAG = 1.5 if STRICT else 12.0
"""Seconds that a change may take to the webhook."""
RECOVERY = LAG + 5.0
"""The same after an outage, during which the webhook's pauses grow."""
GROWTH = 3 if STRICT else 16
"""MiB by which the webhook may be larger at the end than after the first quarter."""
CLIENTS = 8
REQUESTS = 60
"""How many requests a connection is used for."""
STEP = 0.005
"""Seconds between two requests of a connection."""
NAMES = tuple(f"nlb-{number}" for number in range(8))
INTERFACES = ("ce48969398f05f33946d560708be108a", "bfac4d851ee856fe8c95865ce1bbaa2d")
AFUS = ("d8424dc4a4a3c413f89e433683f9040b", "f7df405cbd7acf7222f144b0b93acd18", "1" * 32)

Spec: TypeAlias = dict[str, str]
Outcome: TypeAlias = tuple[str, ...]
"""The resource and the values of the variables that a container gets; empty if it is refused."""


def expected(spec: Spec | None) -> Outcome:
    """What a container gets that requests one unit of a name."""
    if spec is None:
        return ()
    interface, afu = spec["interfaceId"], spec["afuId"]
    if spec["mode"] == "region":
        return f"fpga.intel.com/region-{interface}", interface, afu
    packed = base64.urlsafe_b64encode(bytes.fromhex(interface + afu)).decode().rstrip("=")
    return (f"fpga.intel.com/af-{interface[:3]}.{afu[:3]}.{packed}",)


def read_outcome(answer: bytes, uid: str) -> Outcome:
    """What an answer gives to the only container."""
    response = response_of(answer, uid)
    if not response["allowed"]:
        assert "does not exist in" in response["status"]["message"]
        return ()
    operations: list[dict[str, Any]] = json.loads(base64.b64decode(response["patch"]))
    at = "/spec/containers/0/"
    (resource,) = [
        one["path"].removeprefix(f"{at}resources/limits/").replace("~1", "/")
        for one in operations
        if one["op"] == "add" and one["path"].startswith(f"{at}resources/limits/")
    ]
    values = [one["value"]["value"] for one in operations if one["path"] == f"{at}env/-"]
    return resource, *values


@dataclass
class Mappings:
    """Mappings that come, change and go, with their history, at an API server that goes away."""

    api: ApiServerStandIn
    chance: random.Random
    history: dict[str, list[tuple[float, Spec | None]]] = field(default_factory=dict)
    outages: list[tuple[float, float]] = field(default_factory=list)

    def set(self, name: str, spec: Spec | None) -> None:
        """Change a mapping, or delete it."""
        at = time.monotonic()
        if spec is not None:
            head = {"apiVersion": "fpga.intel.com/v2", "kind": "AcceleratorFunction"}
            self.api.put(head | {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        elif self.history.get(name, [(0.0, None)])[-1][1] is not None:
            self.api.drop("AcceleratorFunction", name, "default")
        self.history.setdefault(name, []).append((at, spec))

    async def churn(self) -> None:
        """Change a hundred mappings a second."""
        while True:
            await asyncio.sleep(0.01)  # the rate
            spec = {
                "interfaceId": self.chance.choice(INTERFACES),
                "afuId": self.chance.choice(AFUS),
                "mode": self.chance.choice(("af", "region")),
            }
            self.set(self.chance.choice(NAMES), spec if self.chance.random() < 0.6 else None)

    async def restart(self) -> None:
        """Let the API server go away and come back, at a version that may have jumped."""
        while True:
            await asyncio.sleep(self.chance.uniform(4, 6))  # until the next outage
            begun = time.monotonic()
            self.outages.append((begun, float("inf")))
            async with self.api.away():
                await asyncio.sleep(self.chance.uniform(0.05, 1.0))  # the outage
                if self.chance.random() < 0.5:
                    self.api.store.advance(self.api.store.revision + self.chance.randrange(10_000))
                if self.chance.random() < 0.5:
                    self.api.compact()
            self.outages[-1] = (begun, time.monotonic())

    def allows(self, name: str, outcome: Outcome, sent: float, answered: float) -> bool:
        """Return whether an answer follows from what a name was mapped to."""
        oldest = sent
        for begun, ended in reversed(self.outages):
            if begun <= oldest <= ended + RECOVERY:
                oldest = begun
        states = self.history[name]
        ends = [since for since, _ in states[1:]] + [float("inf")]
        return any(
            since <= answered and end >= oldest - LAG and expected(spec) == outcome
            for (since, spec), end in zip(states, ends, strict=True)
        )


@dataclass
class Clients:
    """Clients that send one review after the other, on connections that they renew."""

    webhook: Webhook
    mappings: Mappings
    chance: random.Random
    answered: int = 0
    refused: int = 0
    certificates: set[bytes] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Use one connection after the other."""
        while True:
            try:
                reader, writer = await asyncio.open_connection(
                    "localhost", self.webhook.port, ssl=self.webhook.context()
                )
                shown: ssl.SSLObject = writer.get_extra_info("ssl_object")
                self.certificates.add(shown.getpeercert(binary_form=True) or b"")
                with contextlib.closing(writer.transport):
                    for _ in range(REQUESTS):
                        await self._ask(reader, writer)
                        await asyncio.sleep(STEP)  # in step
            except (OSError, EOFError, AssertionError, LookupError, ValueError) as error:
                self.problems.append(repr(error))
                await asyncio.sleep(1)  # no busy loop

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name, uid = self.chance.choice(NAMES), f"uid-{self.chance.random()}"
        content = json.dumps(review(pod(f"fpga.intel.com/{name}"), uid=uid)).encode()
        lines = f"Content-Length: {len(content)}\r\nContent-Type: application/json\r\n\r\n"
        sent = time.monotonic()
        writer.write(b"POST /mutate HTTP/1.1\r\nHost: x\r\n" + lines.encode() + content)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        outcome = read_outcome(await reader.readexactly(length), uid)
        self.answered += 1
        self.refused += not outcome
        if not self.mappings.allows(name, outcome, sent, time.monotonic()):
            self.problems.append(f"{name} became {outcome}: {self.mappings.history[name][-3:]}")


async def rotate(folder: Path) -> None:
    """Renew the certificate; for a moment, the new key is beside the old certificate."""
    while True:
        await asyncio.sleep(2)  # until the next one
        await asyncio.to_thread(issue, folder, ["localhost"], days=30)


@contextlib.asynccontextmanager
async def tasks(*running: Any) -> AsyncIterator[None]:
    started = [asyncio.create_task(each) for each in running]
    yield
    assert not [task for task in started if task.done()]
    for task in started:
        task.cancel()
    await asyncio.gather(*started, return_exceptions=True)


def resident_mib(webhook: Webhook) -> float:
    status = Path(f"/proc/{webhook.process.pid}/status").read_text().splitlines()
    (resident,) = [int(line.split()[1]) for line in status if line.startswith("VmRSS")]
    return resident / 1024


async def soaked(webhook: Webhook, mappings: Mappings, seconds: float) -> tuple[Clients, str]:
    clients = Clients(webhook, mappings, mappings.chance)
    resident = []
    async with tasks(
        mappings.churn(),
        mappings.restart(),
        rotate(webhook.tls),
        *(clients.run() for _ in range(CLIENTS)),
    ):
        until = time.monotonic() + seconds
        # A slow machine shows few certificates: then it takes longer.
        while (time.monotonic() < until or len(clients.certificates) < 2) and not clients.problems:
            await asyncio.sleep(1)  # between two measurements
            resident.append(resident_mib(webhook))
            webhook.process.assert_running()
    quarter = max(1, len(resident) // 4)
    after = statistics.median(resident[quarter : 2 * quarter] or resident)
    end = statistics.median(resident[-quarter:])
    assert end < after + GROWTH, resident
    return clients, f"{after:.1f} MiB resident after a quarter, {end:.1f} at the end"


@pytest.mark.long
@pytest.mark.timeout(0)
def test_no_answer_fails_or_is_wrong_while_everything_changes(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    length = soak(short=6, full=600)
    figure(f"seed {length.seed}")
    chance = random.Random(length.seed)  # noqa: S311 - no secret

    async def scenario() -> None:
        async with ApiServerStandIn(tmp_path, Options(schedule=False)) as api:
            mappings = Mappings(api, chance)
            for name in NAMES:
                mappings.set(name, None)
            folder = tmp_path / "webhook"
            folder.mkdir()
            flags = ("--kubeconfig", api.kubeconfig_path, "--log-level", "warning")
            webhook = await asyncio.to_thread(start_webhook, folder, *flags, mappings=None)
            with webhook.process:
                await eventually_async(lambda: asyncio.to_thread(ready, webhook))
                clients, memory = await soaked(webhook, mappings, length.seconds)
                assert clients.problems == []
                assert 0 < clients.refused < clients.answered
                assert await asyncio.to_thread(webhook.process.terminate) == 0
            levels = {str(line["level"]) for line in map(json.loads, log_lines(webhook))}
            assert not levels & {"error", "critical"}
            figure(
                f"{clients.answered} answers ({clients.refused} refusals), all right;"
                f" {len(mappings.outages)} outages, {len(clients.certificates)} certificates"
                f" shown; {memory}"
            )

    asyncio.run(scenario())


def log_lines(webhook: Webhook) -> list[str]:
    """Its log, without what may be due to a machine that stood."""
    return [line for line in webhook.process.stderr.splitlines() if "the event loop" not in line]


def ready(webhook: Webhook) -> bool:
    return webhook.plain("/readyz").status == 200
