from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simulator.apiserver.standin import ApiServerStandIn
from tests.certs.cluster import apply_manifests
from tests.services.kube.conftest import no_proxy

__all__ = ["no_proxy"]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServerStandIn]:
    """An API server in which the manifests have just been applied."""
    async with ApiServerStandIn(tmp_path) as standin:
        apply_manifests(standin)
        yield standin
