"""The ledger of a node as it is now, and who is told of its steps."""

import asyncio

from services.node.ledger import Ledger, Rules
from services.node.repairs import Attempts
from services.process.waits import Due, Followers


class NodeState:
    """The ledger of a node in one mode: discovery replaces it, everyone else reads it."""

    def __init__(self, rules: Rules, *, divides: bool = False) -> None:
        self.ledger = Ledger(rules)
        self.divides = divides
        """Whether claims may have shares of one device; otherwise its replicas are offered."""
        self.rescan = Due()
        """To ask for a scan before the interval is over."""
        self.steps = Followers()
        """Whose work is due after each step of the ledger."""
        self.attempts: Attempts = {}
        """Repairs that were tried since the last step of the ledger."""
        self.scanned = asyncio.Event()
        """Set once a scan has not failed."""
