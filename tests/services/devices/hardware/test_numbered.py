"""Names that a driver gives out by number."""

import pytest

from services.devices.hardware.numbered import Numbered

PORT = Numbered("dfl-port.")
OTHERS = ["dfl-port.", "dfl-port.x", "dfl-portx3", "adfl-port.3", "dfl-port.3a", "dfl-port.3\n"]


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_called_otherwise_is_none(name: str) -> None:
    assert not PORT.is_one(name)
    assert PORT.among([name]) == []
    assert not PORT.is_on(f"../{name}/region0")


def test_names_are_found_among_others_and_ordered_by_number() -> None:
    assert PORT.is_one("dfl-port.3")
    assert PORT.among(["dfl-port.10", "uevent", "dfl-port.9", "dfl-port.0", "dfl-fme.0"]) == [
        "dfl-port.0",
        "dfl-port.9",
        "dfl-port.10",
    ]
    assert PORT.among([]) == []


def test_a_number_has_nine_digits_at_most() -> None:
    assert PORT.among(["dfl-port.123456789", "dfl-port.1234567890"]) == ["dfl-port.123456789"]


@pytest.mark.parametrize("path", ["dfl-port.1", "../../x/dfl-port.1/y", "/dfl-port.1"])
def test_a_part_of_a_path_is_found(path: str) -> None:
    assert PORT.is_on(path)
