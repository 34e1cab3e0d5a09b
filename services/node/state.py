"""What is known of a node now, in one place: discovery writes it, everyone else reads it.

Each value is immutable and replaced as a whole, so threads may read it too.
"""

import asyncio

from services.devices.model import Inventory, PluginMode
from services.devices.resources import nothing_advertised


class NodeState:
    """The latest state of a node."""

    def __init__(self, mode: PluginMode) -> None:
        self.inventory: Inventory | None = None
        """What the last scan found; None before the first."""
        self.advertised = nothing_advertised(mode)
        """The devices that the node offers."""
        self.scan_error = ""
        """Why the last scan failed; empty if it didn't."""
        self.rescan = asyncio.Event()
        """Set to ask for a scan before the interval is over; several requests are one scan."""

    def start_mode(self, mode: PluginMode) -> None:
        """Forgets what was known in the mode before."""
        self.inventory, self.advertised, self.scan_error = None, nothing_advertised(mode), ""

    def request_rescan(self) -> None:
        """Asks for a scan soon."""
        self.rescan.set()
