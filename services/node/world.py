"""One reading of a node, which `services.node.reading` makes and `services.node.ledger` digests."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.containers.holders import Holders
from services.devices.model import Inventory, Reading
from services.node.repairs import Attempts
from services.process.problem import Problem


@dataclass(frozen=True, slots=True)
class World:
    """One reading of a node."""

    error: str = ""
    """Why something could not be read; empty if everything was."""
    holders: Holders | None = None
    """The containers that have devices; None if that is unknown, so that nothing may change."""
    cards: Inventory | None = None
    """None if the cards could not be read."""
    types: Reading | None = None
    """None if there are no device types, or they could not be read."""
    busy: frozenset[str] = frozenset()
    """Keys of calls that ran while the cards were read."""
    stuck: Mapping[str, float] = field(default_factory=dict)
    """Keys of calls that were given up, and seconds since then."""
    unfinished: frozenset[str] = frozenset()
    """Records of ports whose programming began and has not succeeded."""
    leaving: frozenset[str] = frozenset()
    """Locks of cards that are about to be taken away."""
    problems: Mapping[str, Problem] = field(default_factory=dict)
    """Problems known from elsewhere, by the id of a device."""
    attempts: Attempts = field(default_factory=dict)
    """Repairs that were tried since the last reading."""

    @property
    def is_known(self) -> bool:
        """Whether enough was read to change anything."""
        return self.holders is not None and (self.cards is not None or self.types is not None)
