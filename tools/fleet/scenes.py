"""What happens to a fleet, and what it asks of the API server meanwhile."""

import asyncio
import shlex
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from services.kube.access import Access
from services.kube.client import CONFLICT, ClusterClient
from services.kube.objects import NamedObject
from tools.fleet.claims import create_claim, ref_of
from tools.fleet.counting import Bystander, CountingClient, Counts
from tools.fleet.node import DEVICES, Node

T = TypeVar("T")

CALM_SECONDS = 180
"""How long a scene is watched after something happened at once."""
CLAIM_SECONDS = 30
"""For what follows when claims come or go."""
BATCH = 10
"""Per cent of a fleet that a rollout takes at a time."""
RACK = 40
"""Nodes whose claims come and go at once."""
AT_ONCE = 32


@dataclass
class Report:
    """A scene, in numbers."""

    name: str
    seconds: int
    requests: dict[str, int]
    by_second: list[int]
    most_nodes: float
    """The largest share of the nodes that made requests in one second, in per cent."""
    bytes: int
    watches: int
    bystander: dict[str, float]
    note: str = ""


@dataclass
class Fleet:
    """Nodes, what they ask, and a bystander."""

    access: Access
    folder: Path
    size: int
    dra: bool
    minutes: float
    restart: str
    counts: Counts = field(default_factory=Counts)
    nodes: list[Node] = field(default_factory=list)
    claims: dict[str, list[NamedObject]] = field(default_factory=dict)
    """Of the nodes that have any, by their names."""

    def __post_init__(self) -> None:
        self.bystander = Bystander(self.access)

    async def begin(self) -> str:
        """Create the nodes, and start their processes, as a rollout would."""
        names = [f"fleet-{number:05d}" for number in range(self.size)]
        if self.dra:
            async with ClusterClient(self.access) as client:
                await each_of(names, lambda name: _create_node(client, name))
        for name in names:
            client = CountingClient(self.access, name, self.counts)
            self.nodes.append(Node(name, client, self.folder / name, dra=self.dra))
        await each_of(self.nodes, Node.start)
        return await self.until_followed()

    async def until_followed(self) -> str:
        """Wait until each node watches its slices; say after how many seconds."""
        if not self.dra:
            return ""
        started = time.monotonic()
        while self.counts.watches < self.size:
            await asyncio.sleep(0.2)
            if time.monotonic() - started > 2 * CALM_SECONDS:
                return f"only {self.counts.watches} watch after {2 * CALM_SECONDS} s"
        return f"all watch after {time.monotonic() - started:.0f} s"

    async def play(self, name: str) -> Report:
        """Play a scene."""
        first, before = self.counts.second, self.counts.bytes
        self.bystander.take()
        note = await SCENES[name](self)
        last = self.counts.second
        return Report(
            name,
            last - first,
            self.counts.by_kind(first, last),
            self.counts.by_second(first, last),
            round(100 * self.counts.most_nodes(first, last) / self.size, 2),
            self.counts.bytes - before,
            self.counts.watches,
            self.bystander.take(),
            note,
        )


async def each_of(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do something for each, some at a time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(item: T) -> None:
        async with gate:
            await work(item)

    await asyncio.gather(*map(one, items))


async def _create_node(client: ClusterClient, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    answer = await client.request("POST", "/api/v1/nodes", body=body)
    if answer.status != CONFLICT:
        client.expect(answer, "POST nodes")


async def _rest(fleet: Fleet) -> str:
    await asyncio.sleep(60 * fleet.minutes)
    return ""


async def _restart(fleet: Fleet) -> str:
    # All connections break in one moment, and are refused until it is back.
    done = await asyncio.to_thread(subprocess.run, shlex.split(fleet.restart), check=False)
    said = await fleet.until_followed()
    await asyncio.sleep(10)
    return f"{said}; the command ended with {done.returncode}"


async def _roll(fleet: Fleet) -> str:
    size = max(1, fleet.size * BATCH // 100)
    for start in range(0, fleet.size, size):
        batch = fleet.nodes[start : start + size]
        await each_of(batch, Node.stop)
        await each_of(batch, Node.start)
        await fleet.until_followed()
    return f"{size} nodes at a time"


async def _break(fleet: Fleet) -> str:
    ill = fleet.nodes[:: 100 // BATCH]
    await asyncio.gather(*(each.change(DEVICES) for each in ill))
    await asyncio.sleep(60)
    await asyncio.gather(*(each.change(0) for each in ill))
    await asyncio.sleep(CALM_SECONDS)
    return f"{DEVICES} devices on each of {len(ill)} nodes"


async def _claim(fleet: Fleet) -> str:
    rack = fleet.nodes[:RACK]
    async with ClusterClient(fleet.access) as client:

        async def create(node: Node) -> None:
            devices = node.device_names()
            fleet.claims[node.name] = [await create_claim(client, node.name, d) for d in devices]

        await each_of(rack, create)
    await asyncio.gather(*(each.prepare(map(ref_of, fleet.claims[each.name])) for each in rack))
    await asyncio.sleep(CLAIM_SECONDS)
    return f"{DEVICES} claims on each of {len(rack)} nodes are prepared at once"


async def _release(fleet: Fleet) -> str:
    rack = fleet.nodes[:RACK]
    await asyncio.gather(*(each.release() for each in rack))
    async with ClusterClient(fleet.access) as client:
        claims = [claim.path for each in rack for claim in fleet.claims.pop(each.name)]
        await each_of(claims, lambda path: _delete(client, path))
    await asyncio.sleep(CLAIM_SECONDS)
    return f"the claims of {len(rack)} nodes are given back at once"


async def _delete(client: ClusterClient, path: str) -> None:
    client.expect(await client.request("DELETE", path), f"DELETE {path}")


async def _refuse(fleet: Fleet) -> str:
    fleet.counts.refusing = time.monotonic() + 30
    ill = fleet.nodes[:: 100 // BATCH]
    await asyncio.gather(*(each.change(1) for each in ill))
    await asyncio.sleep(90)
    await asyncio.gather(*(each.change(0) for each in ill))
    await asyncio.sleep(30)
    return "429 with Retry-After: 5 for 30 s, while a device breaks on each tenth node"


SCENES: Mapping[str, Callable[[Fleet], Awaitable[str]]] = {
    "start": Fleet.begin,
    "rest": _rest,
    "restart": _restart,
    "roll": _roll,
    "break": _break,
    "refuse": _refuse,
    "claim": _claim,
    "release": _release,
}
"""By name; a fleet is started first, and `release` follows `claim`."""
