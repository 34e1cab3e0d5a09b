"""A node for the DRA driver, and an API server stand-in."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simulator.apiserver.standin import ApiServerStandIn
from simulator.cards import Rack
from tests.plugin.dra.support import Bed


@pytest.fixture
async def bed(
    short_dir: Path,
    rack: Rack,
    anyio_backend: str,  # noqa: ARG001 - async fixtures of anyio need it
) -> AsyncIterator[Bed]:
    """A node without cards, and its cluster."""
    (short_dir / "k/device-plugins").mkdir(parents=True)
    (short_dir / "k/plugins_registry").mkdir()
    (short_dir / "api").mkdir()
    checkpoint = short_dir / "k/device-plugins/kubelet_internal_checkpoint"
    checkpoint.write_text('{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{}},"Checksum":0}')
    async with ApiServerStandIn(short_dir / "api") as api:
        api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "u1"}})
        yield Bed(short_dir, rack, api)
