"""The devices of a node, found as a plugin with these settings finds them."""

import asyncio
import time
from dataclasses import dataclass, replace

from plugin.settings import PluginSettings
from services.containers.holder_source import HolderSnapshot
from services.devices.hardware.scan import Scanner
from services.devices.model import Device, Inventory
from services.node.ledger import Ledger, step
from services.node.reading import WorldReader, holder_source, rules_of
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError


@dataclass(frozen=True, slots=True)
class FoundDevices:
    """The cards and devices of a node at one moment."""

    holders: HolderSnapshot
    ledger: Ledger

    @property
    def inventory(self) -> Inventory:
        """The cards, and what is wrong with the node."""
        return self.ledger.inventory or Inventory()

    @property
    def devices(self) -> tuple[Device, ...]:
        """Every device, also those that can't be offered."""
        return (*self.ledger.offer.devices(), *self.ledger.offer.not_offered)


class NodeDevices:
    """Finds the devices of a node, as often as it is asked."""

    def __init__(self, settings: PluginSettings) -> None:
        calls = BlockingCalls()
        self._holders = holder_source(settings, calls)
        self._reader = WorldReader(
            settings,
            settings.mode,
            calls,
            scanner=Scanner(settings.root, calls),
            holders=self._holders,
        )
        rules = rules_of(settings, settings.mode, settings.units)
        self._ledger = Ledger(replace(rules, good_scans=1))  # the health of now

    def find(self) -> FoundDevices:
        """The devices now.

        Raises:
            HardwareError: Nothing can be found out about the cards.
        """
        return asyncio.run(self._find())

    async def _find(self) -> FoundDevices:
        holders, world = await self._holders.snapshot(), await self._reader.read()
        if world.cards is None:
            raise HardwareError(world.error)
        self._ledger = step(self._ledger, world, time.monotonic())
        return FoundDevices(holders, self._ledger)
