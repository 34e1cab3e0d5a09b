"""Coroutine tests of this room run on asyncio."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The event loop under tests marked `anyio`."""
    return "asyncio"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of tests are asked directly, whatever the environment says."""
    monkeypatch.setenv("NO_PROXY", "*")
