import errno
import fcntl
from pathlib import Path

import pytest

from services.process.errors import DeviceBusy, HardwareError
from services.programming.lock import card_lock, leaving_cards


def test_a_card_has_one_lock_and_who_waits_in_vain_is_told(tmp_path: Path) -> None:
    with card_lock(tmp_path, "c", seconds=0), card_lock(tmp_path, "d", seconds=0):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["c.lock", "d.lock"]
        busy = pytest.raises(DeviceBusy, match="another process works on it")
        with busy, card_lock(tmp_path, "c", seconds=0.1):
            pytest.fail("two have it")
    with card_lock(tmp_path, "c", seconds=0):
        pass


def test_a_card_that_is_taken_away_is_announced_while_it_is_locked(tmp_path: Path) -> None:
    assert leaving_cards(tmp_path / "none") == frozenset()
    with (
        card_lock(tmp_path, "0000:5e:00.0", seconds=0, takes_away=True),
        card_lock(tmp_path, "d", seconds=0),
    ):
        assert leaving_cards(tmp_path) == {"0000:5e:00.0"}
    assert leaving_cards(tmp_path) == frozenset()
    with card_lock(tmp_path, "0000:5e:00.0", seconds=0):
        assert leaving_cards(tmp_path) == frozenset()


def test_a_folder_that_can_not_be_used_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = r"can't be opened by user .* name another --state-dir"
    refused = pytest.raises(HardwareError, match=said)
    with refused, card_lock(tmp_path / "file" / "locks", "c", seconds=1):
        pytest.fail("there is no lock")


def test_a_cards_name_leads_nowhere_else(tmp_path: Path) -> None:
    with card_lock(tmp_path / "locks", "../../x", seconds=1):
        assert [path.name for path in (tmp_path / "locks").iterdir()] == [".._.._x.lock"]


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", without)
    refused = pytest.raises(HardwareError, match="can't be taken: No locks available")
    with refused, card_lock(tmp_path, "c", seconds=1):
        pytest.fail("there is no lock")
