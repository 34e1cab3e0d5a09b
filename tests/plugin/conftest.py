"""A rack of synthetic cards, a kubelet stand-in, and the plugin between them in this process."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.containers import holder_source
from simulator.cards import Rack
from simulator.driver import DriverStandIn
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import Bed, Pods


@pytest.fixture
def rack(short_dir: Path) -> Rack:
    """An empty rack: cards go in as a test needs them."""
    return Rack(short_dir / "root")


@pytest.fixture
async def kubelet(
    short_dir: Path,
    anyio_backend: str,  # noqa: ARG001 - async fixtures of anyio need it
) -> AsyncIterator[KubeletStandIn]:
    """A kubelet stand-in that runs and retries at once."""
    async with KubeletStandIn(short_dir / "k", node_name="n1", retry_seconds=0.05) as standin:
        yield standin


@pytest.fixture
def bed(short_dir: Path, rack: Rack, kubelet: KubeletStandIn) -> Bed:
    """All of it, for plugins in this process."""
    return Bed(short_dir, rack, kubelet, Pods())


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let plugins in this process notice soon that a pod has ended."""
    monkeypatch.setattr(holder_source, "RENEW_SECONDS", 0.1)
    monkeypatch.setattr(holder_source, "POLL_SECONDS", 0.05)


@pytest.fixture
def driver(rack: Rack) -> Iterator[DriverStandIn]:
    """What the ioctls of the rack's cards do."""
    with DriverStandIn(rack.root) as driver:
        yield driver
