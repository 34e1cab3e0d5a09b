import json
import os
import shutil
from pathlib import Path

import pytest

from services.process.errors import HardwareError
from services.programming.records import UNKNOWN, Mark, Records, closed_mark, write_mark

PROGRAM = "1" * 40
SHOWN = "18b79ffa2ee54aa096ef4230dafacb5f"


@pytest.fixture
def boot(tmp_path: Path) -> Path:
    file = tmp_path / "boot_id"
    file.write_text("first\n")
    return file


@pytest.fixture
def records(tmp_path: Path, boot: Path) -> Records:
    return Records(tmp_path / "records", boot)


def test_what_is_written_is_read_until_something_makes_it_untrue(
    records: Records, boot: Path
) -> None:
    records.write("0000:05:00.0-port0", 17, SHOWN, PROGRAM)
    assert records.read("0000:05:00.0-port0", 17, SHOWN) == PROGRAM
    assert records.read("0000:05:00.0-port1", 17, SHOWN) is None
    assert records.read("0000:05:00.0-port0", 18, SHOWN) is None  # the port's folder is another one
    assert records.read("0000:05:00.0-port0", 17, "3" * 32) is None  # it shows something else
    boot.write_text("second\n")
    assert records.read("0000:05:00.0-port0", 17, SHOWN) is None


def test_a_function_that_was_programmed_replaces_a_program(records: Records) -> None:
    records.write("p", 1, SHOWN, PROGRAM)
    records.write("p", 1, SHOWN, None)
    records.write("p", 1, SHOWN, None)
    assert records.read("p", 1, SHOWN) is None
    assert not records.has_any()


@pytest.mark.parametrize("lost", ["nothing", "record", "lasting"])
def test_unknown_content_stays_unknown_whatever_the_port_shows_and_after_a_reboot(
    tmp_path: Path, boot: Path, lost: str
) -> None:
    """`/run` is lost in a reboot; a driver that is reloaded makes another folder."""
    records = Records(tmp_path / "run/records", boot, durable_dir=tmp_path / "lasting")
    records.write("p", 1, SHOWN, PROGRAM)
    records.distrust("p")
    assert records.has_any()
    if lost == "record":
        shutil.rmtree(tmp_path / "run")
    elif lost == "lasting":
        shutil.rmtree(tmp_path / "lasting")
    boot.write_text("second\n")
    for inode, shown in ((1, SHOWN), (2, SHOWN), (1, "3" * 32)):
        assert records.read("p", inode, shown) == UNKNOWN
    assert records.read("q", 1, SHOWN) is None
    records.write("p", 1, SHOWN, None)
    assert records.read("p", 1, SHOWN) is None


def test_what_older_versions_recorded_as_unknown_is_unknown(
    records: Records, tmp_path: Path
) -> None:
    (tmp_path / "records").mkdir()
    old = {"boot": "first", "inode": 1, "shown": SHOWN, "program": ""}
    (tmp_path / "records/p.json").write_text(json.dumps(old))
    assert records.read("p", 1, SHOWN) == UNKNOWN


def test_a_programming_that_never_began_leaves_the_records_as_they_were(records: Records) -> None:
    for before in (None, PROGRAM, UNKNOWN):
        if before == UNKNOWN:
            records.distrust("p")
        elif before is not None:
            records.write("p", 1, SHOWN, before)
        saved = records.distrust("p")
        assert records.read("p", 1, SHOWN) == UNKNOWN
        records.restore("p", saved)
        assert records.read("p", 1, SHOWN) == before


def test_under_a_mark_only_what_was_programmed_since_is_known(
    records: Records, tmp_path: Path, boot: Path
) -> None:
    records.write("p", 1, SHOWN, PROGRAM)
    write_mark(tmp_path, Mark())  # mode regiondevel
    assert records.has_any()
    records.write("q", 1, SHOWN, None)
    assert [records.read(port, 1, SHOWN) for port in "pq"] == [UNKNOWN, UNKNOWN]
    write_mark(tmp_path, closed_mark())
    assert [records.read(port, 1, SHOWN) for port in "pq"] == [UNKNOWN, UNKNOWN]
    records.write("p", 1, SHOWN, PROGRAM)
    records.write("q", 1, SHOWN, None)
    assert [records.read(port, 1, SHOWN) for port in "pq"] == [PROGRAM, None]
    assert records.read("q", 2, SHOWN) == UNKNOWN  # its card was away
    assert records.read("q", 1, "3" * 32) == UNKNOWN  # somebody else programmed it
    assert records.read("away", 1, SHOWN) == UNKNOWN
    write_mark(tmp_path, closed_mark())  # after another time in mode regiondevel
    assert [records.read(port, 1, SHOWN) for port in "pq"] == [UNKNOWN, UNKNOWN]
    records.write("q", 1, SHOWN, None)
    boot.write_text("second\n")
    assert records.read("q", 1, SHOWN) == UNKNOWN


@pytest.mark.parametrize("content", ["", "{", "[]", '{"since": 7}', '{"since": ""}', "\0\xff"])
def test_a_mark_that_can_not_be_read_leaves_nothing_known(
    records: Records, tmp_path: Path, content: str
) -> None:
    write_mark(tmp_path, closed_mark())
    records.write("p", 1, SHOWN, None)
    (tmp_path / "untrusted.json").write_text(content)
    assert records.read("p", 1, SHOWN) == UNKNOWN


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "7",
        f'{{"boot": "first", "inode": 1, "shown": "{SHOWN}", "program": 7}}',
        "\0\xff",
    ],
)
def test_a_record_that_can_not_be_read_leaves_the_content_unknown(
    records: Records, tmp_path: Path, content: str
) -> None:
    """It may have said so, and an empty one is what a full disk takes."""
    records.write("p", 1, SHOWN, PROGRAM)
    (tmp_path / "records/p.json").write_text(content)
    assert records.read("p", 1, SHOWN) == UNKNOWN


def test_half_a_record_is_never_seen(
    records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records.write("p", 1, SHOWN, PROGRAM)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(HardwareError, match=r"can't be kept in .*No space left"):
            records.write("p", 1, SHOWN, "2" * 40)
    assert records.read("p", 1, SHOWN) == PROGRAM
    assert [path.name for path in (tmp_path / "records").iterdir()] == ["p.json"]


def test_a_full_disk_takes_distrust(
    records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records.write("p", 1, SHOWN, PROGRAM)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        records.distrust("p")
    assert (
        Records(tmp_path / "records", durable_dir=tmp_path / "none").read("p", 1, SHOWN) == UNKNOWN
    )


def test_a_folder_that_can_not_be_written_is_said(tmp_path: Path, boot: Path) -> None:
    (tmp_path / "file").write_text("")
    records = Records(tmp_path / "file", boot, durable_dir=tmp_path / "file")
    with pytest.raises(HardwareError, match="can't be kept in"):
        records.write("p", 1, SHOWN, PROGRAM)
    with pytest.raises(HardwareError, match="can't be kept in"):
        records.distrust("p")
    with pytest.raises(HardwareError, match="boot can't be read"):
        Records(tmp_path / "records", tmp_path / "boot").write("p", 1, SHOWN, PROGRAM)
