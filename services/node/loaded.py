"""Reads what is known of the content of a node's ports, besides the ids that they show."""

from services.devices.dra import PROGRAM_DIGITS, Loaded
from services.devices.model import Inventory
from services.programming.port import PortPlace
from services.programming.programmer import Programmer
from services.programming.records import PortRecords


def read_loaded(inventory: Inventory, programmer: Programmer, records: PortRecords) -> Loaded:
    """Read the records of the ports that a scan found; it may hang in sysfs."""
    places = [PortPlace(card, port, None) for card in inventory.cards for port in card.ports]
    unfinished = records.unfinished()
    contents = programmer.contents(inventory)
    return Loaded(
        frozenset(place.name for place in places if place.record_key in unfinished),
        {port: function for port, function in contents.items() if len(function) == PROGRAM_DIGITS},
    )
