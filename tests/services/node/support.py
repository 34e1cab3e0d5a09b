"""What the tests of this room share."""

from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry

from services.containers.holders import Holders
from services.devices.model import Inventory, PluginMode
from services.devices.resources import AdvertisedResources
from services.kube.events import EventRecord, EventRecorder
from services.node.ledger import Rules
from services.node.metrics import NodeMetrics
from services.node.state import NodeState


class Recorder(EventRecorder):
    """Keeps what is recorded on node n1."""

    def __init__(self) -> None:
        results = NodeMetrics(CollectorRegistry()).events
        super().__init__(None, component="test", host="n1", results=results)
        self.records: list[EventRecord] = []

    def record(self, event: EventRecord) -> None:
        self.records.append(event)


def scanned(advertised: AdvertisedResources | None = None) -> NodeState:
    """The state of a node of mode af after a scan."""
    state = NodeState(Rules(PluginMode.AF))
    set_state(state, Inventory(), advertised)
    return state


def set_state(
    state: NodeState,
    inventory: Inventory | None = None,
    advertised: AdvertisedResources | None = None,
    error: str = "",
    holders: Holders | None = None,
) -> None:
    """Replace what is known of a node."""
    known = state.ledger
    state.ledger = replace(
        known,
        error=error,
        inventory=known.inventory if inventory is None else inventory,
        offer=known.offer if advertised is None else advertised,
        holders=known.holders if holders is None else holders,
    )
    state.steps.request()


def shown(logs: Sequence[MutableMapping[str, Any]]) -> list[str]:
    """The messages that were logged, those for debugging apart."""
    return [each["event"] for each in logs if each["log_level"] != "debug"]
