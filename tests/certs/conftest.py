from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simulator.apiserver.standin import ApiServerStandIn
from tests.certs.cluster import apply_manifests


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of tests are asked directly, whatever the environment says."""
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServerStandIn]:
    """An API server in which the manifests have just been applied."""
    async with ApiServerStandIn(tmp_path) as standin:
        apply_manifests(standin)
        yield standin
