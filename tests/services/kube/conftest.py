"""Tests speak to servers of their own, past any proxy."""

import pytest


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of tests are asked directly, whatever the environment says."""
    monkeypatch.setenv("NO_PROXY", "*")
