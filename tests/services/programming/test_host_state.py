import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from services.process.errors import DeviceBusy, HardwareError
from services.programming.host_state import HostState, PortRecords

PROGRAM = "1" * 40
SHOWN = "18b79ffa2ee54aa096ef4230dafacb5f"


@pytest.fixture
def boot(tmp_path: Path) -> Path:
    file = tmp_path / "boot_id"
    file.write_text("first\n")
    return file


@pytest.fixture
def host(tmp_path: Path, boot: Path) -> HostState:
    return HostState(tmp_path, boot)


@pytest.fixture
def records(host: HostState) -> PortRecords:
    return host.records


def function(records: PortRecords, port: str = "p", inode: int = 1, shown: str = SHOWN) -> str:
    record = records.read(port, inode, shown)
    return record.function if record else ""


def full(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_record_counts_while_boot_folder_and_shown_id_agree(
    records: PortRecords, boot: Path
) -> None:
    records.empty("p")
    records.write("p", 1, SHOWN, PROGRAM)
    assert function(records) == PROGRAM
    assert function(records, port="q") == ""
    assert function(records, inode=2) == ""
    assert function(records, shown="3" * 32) == ""
    boot.write_text("second\n")
    assert function(records) == ""
    boot.unlink()
    assert function(records) == ""


def test_an_emptied_record_says_that_programming_has_begun_until_it_is_written(
    records: PortRecords, boot: Path
) -> None:
    assert records.unfinished() == frozenset()
    for port in "pq":
        records.empty(port)
    records.write("q", 1, SHOWN, PROGRAM)
    assert records.unfinished() == {"p"}
    records.empty("q")
    assert function(records, port="q") == ""
    boot.write_text("second\n")
    assert records.unfinished() == {"p", "q"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\xff",
        b"[" * 5000,
        json.dumps({"boot": "first", "inode": 1, "shown": SHOWN, "program": PROGRAM}).encode(),
        json.dumps({"boot": "first", "inode": 1, "shown": SHOWN, "function": 7}).encode(),
    ],
)
def test_a_record_that_can_not_be_read_does_not_count(
    records: PortRecords, tmp_path: Path, content: bytes
) -> None:
    records.empty("p")
    (tmp_path / "ports/p.json").write_bytes(content)
    assert function(records) == ""


def test_a_full_disk_takes_the_emptying_and_leaves_the_record_empty(
    records: PortRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records.empty("p")
    records.write("p", 1, SHOWN, PROGRAM)
    monkeypatch.setattr(os, "fsync", full)
    records.empty("p")
    with pytest.raises(HardwareError, match=r"can't be kept: .*No space left"):
        records.write("p", 1, SHOWN, PROGRAM)
    assert records.unfinished() == {"p"}
    assert [path.name for path in (tmp_path / "ports").iterdir()] == ["p.json"]


def test_records_that_can_not_be_kept_are_errors(records: PortRecords, tmp_path: Path) -> None:
    (tmp_path / "ports").write_text("")
    calls: list[tuple[Any, ...]] = [(records.empty, "p"), (records.write, "p", 1, SHOWN, PROGRAM)]
    for call, *arguments in calls:
        with pytest.raises(HardwareError, match="can't be kept"):
            call(*arguments)
    (tmp_path / "ports").unlink()
    (tmp_path / "ports/p.json").mkdir(parents=True)
    with pytest.raises(HardwareError, match="can't be kept"):
        records.delete_all()


def test_a_card_has_one_lock_and_who_waits_in_vain_is_told(host: HostState, tmp_path: Path) -> None:
    with host.lock_card("c", seconds=0), host.lock_card("d", seconds=0):
        assert sorted(path.name for path in (tmp_path / "locks").iterdir()) == ["c.lock", "d.lock"]
        busy = pytest.raises(DeviceBusy, match="another process works on it")
        with busy, host.lock_card("c", seconds=0.1):
            pytest.fail("two have it")
    with host.lock_card("c", seconds=0):
        pass


def test_a_rebind_is_announced_while_the_card_is_locked(host: HostState, tmp_path: Path) -> None:
    assert HostState(tmp_path / "none").rebinding_cards() == frozenset()
    with (
        host.lock_card("0000:5e:00.0", seconds=0, rebinding=True),
        host.lock_card("d", seconds=0),
    ):
        assert host.rebinding_cards() == {"0000:5e:00.0"}
    assert host.rebinding_cards() == frozenset()
    with host.lock_card("0000:5e:00.0", seconds=0):
        assert host.rebinding_cards() == frozenset()


def test_a_folder_that_can_not_be_used_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = r"can't be opened by user .* name another --state-dir"
    refused = pytest.raises(HardwareError, match=said)
    with refused, HostState(tmp_path / "file").lock_card("c", seconds=1):
        pytest.fail("there is no lock")


def test_a_cards_name_leads_nowhere_else(host: HostState, tmp_path: Path) -> None:
    with host.lock_card("../../x", seconds=1):
        assert [path.name for path in (tmp_path / "locks").iterdir()] == [".._.._x.lock"]


def test_a_file_system_without_locks_is_named(
    host: HostState, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", without)
    refused = pytest.raises(HardwareError, match="can't be taken: No locks available")
    with refused, host.lock_card("c", seconds=1):
        pytest.fail("there is no lock")
