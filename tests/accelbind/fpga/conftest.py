"""Locks and records of a test are its own, not those of the machine."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_state_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder of locks and records, unless a test names another."""
    monkeypatch.setenv("ACCELBIND_STATE_DIR", str(tmp_path / "own-state"))
