"""Problems of ports that depend on the node's mode, and on what was programmed into them."""

from collections.abc import Mapping
from typing import Final

from services.devices.model import Inventory, PluginMode, Problem
from services.programming.port import PortPlace
from services.programming.records import PortRecords

UNFINISHED: Final = "programming-unfinished"
RELEASED: Final = "port-released"


def port_problems(
    inventory: Inventory, mode: PluginMode, records: PortRecords
) -> Mapping[str, Problem]:
    """Why ports can't be used in a mode, by the port's name."""
    places = [PortPlace(card, port, None) for card in inventory.cards for port in card.ports]
    if mode is PluginMode.REGION:
        # No record counts for a port that can't be programmed, so no container starts on it.
        return {place.name: _released(place) for place in places if place.is_released}
    if mode in (PluginMode.AF, PluginMode.BDF):
        unfinished = records.unfinished()
        return {
            place.name: Problem(
                UNFINISHED, f"programming {place.name} has begun and has not succeeded"
            )
            for place in places
            if place.record_key in unfinished
        }
    return {}


def _released(place: PortPlace) -> Problem:
    return Problem(
        RELEASED,
        f"{place.name} is released to virtual function {place.card.address}, and the in-tree driver"
        " programs only ports of the physical function",
    )
