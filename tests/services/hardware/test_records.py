import os
from pathlib import Path

import pytest

from services.domain.errors import HardwareError
from services.hardware.records import Records

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


def test_what_is_forgotten_is_gone_and_may_be_forgotten_twice(records: Records) -> None:
    records.write("p", 1, SHOWN, PROGRAM)
    records.forget("p")
    records.forget("p")
    assert records.read("p", 1, SHOWN) is None


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
def test_a_record_that_is_none_counts_for_nothing(
    records: Records, tmp_path: Path, content: str
) -> None:
    records.write("p", 1, SHOWN, PROGRAM)
    (tmp_path / "records/p.json").write_text(content)
    assert records.read("p", 1, SHOWN) is None


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


def test_a_folder_that_can_not_be_written_is_said(tmp_path: Path, boot: Path) -> None:
    (tmp_path / "file").write_text("")
    records = Records(tmp_path / "file", boot)
    with pytest.raises(HardwareError, match="can't be kept in"):
        records.write("p", 1, SHOWN, PROGRAM)
    with pytest.raises(HardwareError, match="can't be kept in"):
        records.forget("p")
    with pytest.raises(HardwareError, match="boot can't be read"):
        Records(tmp_path / "records", tmp_path / "boot").write("p", 1, SHOWN, PROGRAM)


def test_all_can_be_forgotten_at_once(records: Records, tmp_path: Path) -> None:
    records.forget_all()
    assert not records.has_any()
    for port in ("p", "q"):
        records.write(port, 1, SHOWN, PROGRAM)
    assert records.has_any()
    records.forget_all()
    assert [records.read(port, 1, SHOWN) for port in ("p", "q")] == [None, None]
    (tmp_path / "records/folder").mkdir()
    with pytest.raises(HardwareError, match="can't be kept in"):
        records.forget_all()
