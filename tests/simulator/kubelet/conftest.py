"""The event loop and a running kubelet for the tests of this room."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simulator.kubelet.standin import KubeletStandIn

RETRY_SECONDS = 0.02


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def anyio_backend() -> str:
    """The event loop under tests marked `anyio`."""
    return "asyncio"


@pytest.fixture
def clock() -> Clock:
    """The clock of the `kubelet` fixture."""
    return Clock()


@pytest.fixture
async def kubelet(
    short_dir: Path,
    clock: Clock,
    anyio_backend: str,  # noqa: ARG001 - async fixtures of anyio need it
) -> AsyncIterator[KubeletStandIn]:
    """A kubelet stand-in that runs and retries at once."""
    standin = KubeletStandIn(short_dir, node_name="n1", retry_seconds=RETRY_SECONDS, clock=clock)
    async with standin:
        yield standin
