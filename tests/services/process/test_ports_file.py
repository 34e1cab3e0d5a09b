import json
from pathlib import Path

import pytest

from services.process.errors import WorldError
from services.process.ports_file import write_ports


def test_ports_are_written_whole_and_replace_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "ports.json"
    path.write_text("old")
    write_ports(path, {"metrics": 2, "admission": 1})
    assert json.loads(path.read_text()) == {"admission": 1, "metrics": 2}
    assert [file.name for file in tmp_path.iterdir()] == ["ports.json"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_no_path_means_nothing_to_write() -> None:
    write_ports(None, {"metrics": 2})
    assert write_ports.__doc__


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match=r"can't write the ports file .*: No such file"):
        write_ports(tmp_path / "none" / "ports.json", {})


def test_a_failure_leaves_no_scratch_file(tmp_path: Path) -> None:
    (tmp_path / "ports.json").mkdir()
    with pytest.raises(WorldError, match="can't write"):
        write_ports(tmp_path / "ports.json", {})
    assert [file.name for file in tmp_path.iterdir()] == ["ports.json"]
