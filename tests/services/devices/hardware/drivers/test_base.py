"""Names that a driver gives out by number, and the files that are below them."""

from pathlib import Path

import pytest

from services.devices.hardware.drivers.base import FilePattern, Numbered
from services.devices.hardware.sysfs import Sysfs

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


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("afu_id", ["afu_id"]),
        ("errors/errors", ["errors/errors"]),
        ("a.*/b/c*/id", ["a.2/b/c1/id", "a.2/b/c11/id", "a.10/b/c3/id"]),
        ("a.*", ["a.2", "a.10"]),
        ("a.*/none*/id", []),
        ("none/b*/id", []),
    ],
)
def test_files_are_found_by_the_numbers_on_their_way(
    tmp_path: Path, pattern: str, found: list[str]
) -> None:
    for folder in ("a.10/b/c3", "a.2/b/c11", "a.2/b/c1", "a.2/b/cx", "a.x/b/c1"):
        (tmp_path / "sys/part" / folder).mkdir(parents=True)
    paths = FilePattern(pattern).find(Sysfs(tmp_path), "/sys/part")
    assert paths == [f"/sys/part/{each}" for each in found]
