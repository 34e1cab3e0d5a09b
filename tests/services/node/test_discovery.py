import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from services.devices.model import Inventory
from services.devices.resources import AdvertisedResources
from services.node.ledger import Rules, World
from services.node.reading import Discovery
from services.node.state import NodeState
from tests.services.cards import AF_NLB0, card, world
from tests.services.node.support import Recorder
from tests.support import eventually_async

pytestmark = pytest.mark.anyio


class Setting:
    """A discovery that reads what a test says."""

    def __init__(self) -> None:
        self.world = world(Inventory((card(0),)))
        self.reads = 0
        self.state = NodeState(Rules())
        self.discovery = Discovery(self.state, self, Recorder(), interval=0.01)
        self.due = self.state.follow()

    async def read(self, *, divides: bool) -> World:  # noqa: ARG002 - the protocol's
        self.reads += 1
        return self.world

    async def offer(self) -> AdvertisedResources:
        """The offer after the next step."""
        async with asyncio.timeout(60):
            await self.due.wait()
        return self.state.advertised


async def test_a_failed_scan_is_logged_once_and_the_known_devices_stay(
    capsys: pytest.CaptureFixture[str],
) -> None:
    setting = Setting()
    task = asyncio.create_task(setting.discovery.scan_forever())
    await setting.offer()
    good, failed = setting.world, setting.reads
    setting.world = replace(good, error="no thread for cards", cards=None, types=None)
    await eventually_async(lambda: setting.reads > failed + 3)
    assert setting.state.scan_error == "no thread for cards"
    assert list(setting.state.advertised.resources) == [AF_NLB0]
    setting.world = good
    await eventually_async(lambda: setting.state.scan_error == "")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert capsys.readouterr().out.count("[error    ] scan failed") == 1


async def test_nothing_is_offered_until_it_is_known_who_has_devices() -> None:
    setting = Setting()
    good = setting.world
    setting.world = World("which containers have devices is unknown")
    await setting.discovery.run_once()
    assert (setting.state.advertised.resources, setting.state.scanned.is_set()) == ({}, False)
    assert setting.state.scan_error == "which containers have devices is unknown"
    setting.world = good
    await setting.discovery.run_once()
    assert list((await setting.offer()).resources) == [AF_NLB0]
