import pytest


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of tests are asked directly, whatever the environment says."""
    monkeypatch.setenv("NO_PROXY", "*")
