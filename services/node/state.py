"""The ledger of a node as it is now, and the work that is due after each of its steps."""

import asyncio
from collections.abc import Mapping
from weakref import WeakSet

from services.devices.dra import DraDevice
from services.devices.model import Inventory, PluginMode
from services.devices.resources import AdvertisedResources
from services.node.ledger import Ledger, Rules
from services.node.repairs import Attempts
from services.process.waits import Due


class NodeState:
    """The ledger of a node in one mode: discovery replaces it, everyone else reads it."""

    def __init__(self, rules: Rules, *, divides: bool = False) -> None:
        self.ledger = Ledger(rules)
        self.divides = divides
        """Whether claims may have shares of one device; otherwise its replicas are offered."""
        self.rescan = Due()
        """To ask for a scan before the interval is over."""
        self.attempts: Attempts = {}
        """Repairs that were tried since the last step of the ledger."""
        self.scanned = asyncio.Event()
        """Set once a scan has not failed."""
        self._followers = WeakSet[Due]()  # that of a stream goes with the stream

    def follow(self) -> Due:
        """Work that is due after each step of the ledger."""
        due = Due()
        self._followers.add(due)
        return due

    def announce(self) -> None:
        """Have the work of all who follow done."""
        for due in self._followers:
            due.request()

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
    def by_name(self) -> Mapping[str, DraDevice]:
        """The same by their names in slices."""
        return self.ledger.by_name

    @property
    def scan_error(self) -> str:
        """Why the last scan failed; empty if it didn't."""
        return self.ledger.error
