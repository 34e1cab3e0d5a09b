"""A node of the fleet: the real API side of a node process, over devices that a scene breaks."""

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry

from plugin.dra.claims import ClaimRef
from plugin.dra.driver import DraMetrics
from plugin.dra.publisher import SlicePublisher
from services.devices.model import Contents, Device, Inventory, PluginMode, Sighting, TypesReading
from services.kube.events import EventRecorder
from services.node.ledger import Rules, World
from services.node.metrics import NodeMetrics
from services.node.reading import Discovery
from services.node.state import NodeState
from services.process.problem import Problem
from tools.fleet.claims import NodeClaims
from tools.fleet.counting import CountingClient

DEVICES = 8
READY_SECONDS = 60
"""A rollout goes on, even if a node does not watch by then."""
BROKEN = Problem("device-attribute", "its link is down")


class Node:
    """The ledger, Events and, with `dra`, slices of a node; nothing registers with a kubelet."""

    def __init__(self, name: str, client: CountingClient, folder: Path, *, dra: bool) -> None:
        self.name = name
        self.client = client
        self.broken = 0
        """How many of its devices are broken."""
        self._folder = folder
        self._dra = dra
        self._tasks: list[asyncio.Task[None]] = []
        self.publisher: SlicePublisher | None = None
        self.claims: NodeClaims
        """With `dra`, once it was started."""

    async def start(self) -> None:
        """Begin as a process does: read the node, then publish and follow."""
        registry = CollectorRegistry()
        self._state = state = NodeState(Rules(PluginMode.REGION, good_scans=1))
        events = EventRecorder(
            self.client,
            component="accelbind-dra" if self._dra else "accelbind-plugin",
            host=self.name,
            results=NodeMetrics(registry).events,
        )
        self._discovery = Discovery(state, self, events, interval=5.0)
        loops = [events.write_forever()]
        if self._dra:
            self.claims = NodeClaims(self.name, self.client, self._folder, state, events)
            self.publisher = SlicePublisher(
                self.client,
                self.name,
                state,
                self,
                self.claims.book,
                writes=DraMetrics(registry).slice_writes,
            )
            loops += [loop for _, loop in self.publisher.loops()]
            loops += [self.claims.reports.run_forever()]
        self._tasks = [asyncio.create_task(loop) for loop in loops]
        await self._discovery.run_once()
        if self.publisher:
            self.publisher.confirm()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(READY_SECONDS):
                    await self.client.watches.wait()

    async def stop(self) -> None:
        """End as a process that is killed."""
        self.client.watches.clear()
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def change(self, broken: int) -> None:
        """Have so many devices be broken, and read the node."""
        self.broken = broken
        await self._discovery.run_once()

    def device_names(self) -> list[str]:
        """The devices as its slices name them."""
        return [*self._state.ledger.by_name]

    async def prepare(self, claims: Iterable[ClaimRef]) -> None:
        """Prepare claims all at once, and read the node."""
        await self.claims.prepare(claims)
        await self._discovery.run_once()

    async def release(self) -> None:
        """Take all claims back at once, and read the node."""
        await self.claims.release()
        await self._discovery.run_once()

    async def read(self, *, divides: bool) -> World:
        """The devices now, of which none can be divided."""
        del divides
        sightings = tuple(self._sighting(number) for number in range(DEVICES))
        return World(holders={}, cards=Inventory(), types=TypesReading(sightings))

    async def contents(self, inventory: Inventory) -> Contents:
        """Nothing was programmed."""
        del inventory
        return {}

    def _sighting(self, number: int) -> Sighting:
        name = f"npu-{number}"
        device = Device(
            name,
            "device.accelbind.dev/npu",
            (BROKEN,) if number < self.broken else (),
            pci_addresses=(f"0000:{number:02x}:00.0",),
            type="npu",
        )
        return Sighting(("npu", name), (device,))
