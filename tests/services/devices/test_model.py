from dataclasses import replace

import pytest

from services.devices.model import Card, Inventory, PluginMode
from tests.services.cards import card


def test_a_card_is_at_the_address_of_its_function() -> None:
    assert card(0).address == "0000:5e:00.0"
    assert replace(card(0), pci=None).address == ""


def test_modes_are_spelled_as_on_the_command_line() -> None:
    assert [str(mode) for mode in PluginMode] == ["af", "region", "regiondevel", "units", "bdf"]


def test_equal_finds_are_equal_and_nothing_can_be_changed() -> None:
    assert Inventory((card(0),)) == Inventory((card(0),))
    assert Card("dfl", "region0", None, None) != card(0)
    with pytest.raises(AttributeError):
        card(0).name = "region1"  # type: ignore[misc]
