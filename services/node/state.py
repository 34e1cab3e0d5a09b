"""What is known of a node now, and who is interested in each scan."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from services.devices.model import Inventory, PluginMode
from services.devices.resources import NOTHING_ADVERTISED, AdvertisedResources
from services.process.due import Due


class NodeState:
    """What is known of a node in one mode: discovery writes it, everyone else reads it.

    Each value is immutable and replaced as a whole, so threads may read it too.
    """

    def __init__(self, mode: PluginMode) -> None:
        self.mode = mode
        self.inventory: Inventory | None = None
        """What the last scan found; None before the first."""
        self.advertised: AdvertisedResources = NOTHING_ADVERTISED
        """The devices that the node offers."""
        self.scan_error = ""
        """Why the last scan failed; empty if it didn't."""
        self.rescan = Due()
        """To ask for a scan before the interval is over."""
        self.scanned = asyncio.Event()
        """Set once a scan has not failed."""


OnScan: TypeAlias = Callable[[NodeState], None]
"""What is called after each scan that didn't fail; it only takes note."""
