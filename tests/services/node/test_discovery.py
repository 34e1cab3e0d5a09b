import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from services.containers.holders import Holder, Holders
from services.devices.damping import Damping
from services.devices.hardware.afu_ids import AfuIds
from services.devices.model import Inventory, PluginMode, Problem
from services.devices.resources import AdvertisedResources
from services.node.discovery import Discovery
from services.node.fpga import FpgaProvider
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError
from tests.services.cards import AF_NLB0, NLB0, card, port
from tests.support import eventually_async

pytestmark = pytest.mark.anyio


def one_card(afu: str = NLB0, *problems: Problem) -> Inventory:
    return Inventory((card(0, port("dfl-port.0", afu, *problems)),))


class Setting:
    """A discovery whose scans are what a test says."""

    def __init__(self) -> None:
        self.found: Callable[[], Inventory] = one_card
        self.held: Holders | None = {}
        self.scans = 0
        self.trees: list[AdvertisedResources] = []
        self.seconds: list[float] = []
        self.state = NodeState(PluginMode.AF)
        fpga = FpgaProvider(
            PluginMode.AF,
            units=3,
            scan=self.scan,
            calls=BlockingCalls(),
            ignored_errors={},
            holders=self.holders,
            afu_ids=AfuIds(Path("/nowhere"), BlockingCalls()),
            observe_seconds=self.seconds.append,
        )
        self.discovery = Discovery(
            self.state,
            [fpga],
            interval=0.01,
            damping=Damping(good_scans=2),
            holders=self.holders,
            on_scan=[self.on_scan],
        )

    async def holders(self) -> Holders:
        if self.held is None:
            raise HardwareError("which containers have devices is unknown")
        return self.held

    async def run_once(self) -> None:
        await self.discovery.run_once()

    async def run(self) -> None:
        await self.discovery.scan_forever()

    def on_scan(self, state: NodeState) -> None:
        assert state is self.state
        self.trees.append(state.advertised)

    async def scan(self) -> Inventory:
        self.scans += 1
        return self.found()


async def test_a_look_scans_applies_and_remembers() -> None:
    setting = Setting()
    await setting.run_once()
    assert setting.trees == [setting.state.advertised]
    assert list(setting.state.advertised.resources) == [AF_NLB0]
    setting.found = lambda: one_card("", Problem("afu-id-empty", "m"))
    await setting.run_once()
    kept = setting.state.advertised.resources[AF_NLB0]["dfl-port.0"]
    assert not kept.healthy
    assert len(setting.seconds) == 2


async def test_a_device_that_was_lost_is_trusted_again_after_some_scans() -> None:
    setting = Setting()
    health = []
    for problems in ((), (Problem("port-errors", "m"),), (), ()):
        setting.found = lambda problems=problems: one_card(NLB0, *problems)  # type: ignore[misc]
        await setting.run_once()
        (device,) = setting.trees[-1].devices()
        health.append((device.healthy, [reason.reason for reason in device.reasons]))
    assert health == [
        (True, []),
        (False, ["port-errors"]),
        (False, ["recovering"]),
        (True, []),
    ]


async def test_a_port_that_a_container_has_under_another_resource_is_unhealthy() -> None:
    setting = Setting()
    setting.held = {(f"{AF_NLB0}-before", "dfl-port.0"): (Holder("ns", "p", "c"),)}
    await setting.run_once()
    (device,) = setting.trees[-1].devices()
    assert [reason.reason for reason in device.reasons] == ["held-as-other-resource"]
    # The kubelet doesn't count the devices of claims, which may have them as other resources.
    setting.held = {(f"{AF_NLB0}-before", "dfl-port.0"): (Holder("ns", "", "", claim="c"),)}
    await setting.run_once()
    (device,) = setting.trees[-1].devices()
    assert device.healthy


async def test_a_scan_that_fails_is_said_once_and_what_was_known_stays(
    capsys: pytest.CaptureFixture[str],
) -> None:
    setting = Setting()
    task = asyncio.create_task(setting.run())
    await eventually_async(lambda: setting.trees)

    def fail() -> Inventory:
        raise HardwareError("no thread for cards")

    setting.found = fail
    failed = setting.scans
    await eventually_async(lambda: setting.scans > failed + 3)
    assert setting.state.scan_error == "no thread for cards"
    assert list(setting.state.advertised.resources) == [AF_NLB0]
    known = len(setting.trees)
    setting.found = one_card
    await eventually_async(lambda: len(setting.trees) > known)
    assert setting.state.scan_error == ""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert capsys.readouterr().out.count("[error    ] scan failed") == 1


async def test_a_scan_that_finds_no_change_leaves_what_is_advertised() -> None:
    setting = Setting()
    for _ in range(5):
        await setting.run_once()
    assert setting.trees[1] is setting.trees[4]


async def test_nothing_is_offered_until_it_is_known_who_has_devices() -> None:
    setting = Setting()
    setting.held = None
    await setting.discovery.run_once()
    assert not setting.trees
    assert setting.state.scan_error == "which containers have devices is unknown"
    setting.held = {}
    await setting.discovery.run_once()
    assert len(setting.trees) == 1
    assert setting.state.scan_error == ""
