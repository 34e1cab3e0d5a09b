"""The API server that commands look at."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simulator.apiserver.standin import ApiServerStandIn


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServerStandIn]:
    async with ApiServerStandIn(tmp_path) as running:
        yield running
