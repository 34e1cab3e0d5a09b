"""The event loop and a running kubelet for the tests of this room."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simulator.kubelet.standin import KubeletStandIn

RETRY_SECONDS = 0.02


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def kubelet(
    short_dir: Path,
    anyio_backend: str,  # noqa: ARG001 - async fixtures of anyio need it
) -> AsyncIterator[KubeletStandIn]:
    standin = KubeletStandIn(short_dir, node_name="n1", retry_seconds=RETRY_SECONDS)
    async with standin:
        yield standin
