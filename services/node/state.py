"""The ledger of a node, and who is interested in each scan."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from services.devices.model import Inventory, PluginMode
from services.devices.resources import AdvertisedResources
from services.node.ledger import Ledger, Rules
from services.node.repairs import Attempts
from services.process.due import Due


class NodeState:
    """The ledger of a node in one mode: discovery replaces it, everyone else reads it."""

    def __init__(self, rules: Rules) -> None:
        self.ledger = Ledger(rules)
        self.rescan = Due()
        """To ask for a scan before the interval is over."""
        self.attempts: Attempts = frozenset()
        """Repairs that were tried since the last step of the ledger."""
        self.scanned = asyncio.Event()
        """Set once a scan has not failed."""

    @property
    def mode(self) -> PluginMode:
        """The mode of the node."""
        return self.ledger.rules.mode

    @property
    def inventory(self) -> Inventory | None:
        """The cards, and what is wrong with the node; None before the first scan."""
        return self.ledger.inventory

    @property
    def advertised(self) -> AdvertisedResources:
        """The devices that the node offers."""
        return self.ledger.offer

    @property
    def scan_error(self) -> str:
        """Why the last scan failed; empty if it didn't."""
        return self.ledger.error


OnScan: TypeAlias = Callable[[NodeState], None]
"""What is called after each scan that didn't fail; it only takes note."""
