"""Ports that are held by processes outside of pods: the card's files are real, the holder too."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.containers.holders import Holder, Holders
from services.devices.hardware.scan import scan
from services.devices.model import PluginMode
from services.node import stray_holders
from services.node.stray_holders import StrayHolders
from services.process.blocking import BlockingCalls
from services.process.errors import DeviceBusy, KubeletError
from services.programming.lock import card_lock
from simulator.cards import CardSpec, Rack
from simulator.driver import SimulatedCalls
from tests.plugin.support import AF, NLB0, REGION, Bed, container, functions
from tests.support import holding

pytestmark = pytest.mark.anyio

PORT = "dfl-port.0"


class Setting:
    """A node whose kubelet is what a test says."""

    def __init__(self, rack: Rack) -> None:
        self.address = rack.add_card(CardSpec())
        self.node = rack.root / "dev" / PORT
        self.locks = rack.root.parent / "locks"
        self.owned: Holders = {}
        self.away = ""
        self.looks = 0
        self.rack = rack
        self.calls = SimulatedCalls()
        self.strays = StrayHolders(
            rack.root,
            locks=self.locks,
            holders=self.holders,
            calls=BlockingCalls(),
            request_rescan=self.look_now,
            driver_calls=self.calls,
        )

    async def holders(self) -> Holders:
        with pytest.raises(DeviceBusy), card_lock(self.locks, self.address, seconds=0.0):
            pass  # nobody starts on the card while the kubelet is asked
        if self.away:
            raise KubeletError(self.away)
        return self.owned

    def look_now(self) -> None:
        self.looks += 1

    async def round(self) -> list[str]:
        self.strays.on_scan(scan(self.rack.root))
        await self.strays.run_once()
        return sorted(self.strays.problems())


@pytest.fixture
def setting(rack: Rack) -> Setting:
    return Setting(rack)


async def test_a_port_counts_as_held_when_it_was_busy_twice_in_a_row_and_heals(
    setting: Setting,
) -> None:
    assert await setting.round() == []
    with capture_logs() as logs:
        with holding(setting.node):
            assert await setting.round() == []
            assert await setting.round() == [PORT]
            assert await setting.round() == [PORT]
        assert await setting.round() == []
    assert setting.looks == 2
    assert [line["log_level"] for line in logs] == ["warning", "info"]
    assert "is in use by process" in logs[0]["reason"]


async def test_a_port_that_a_pod_has_is_not_opened(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []

    def note(path: Path, *, alone: bool = False) -> int:
        opened.append(path)
        return SimulatedCalls().open(path, alone=alone)

    monkeypatch.setattr(setting.calls, "open", note)
    setting.owned = {(AF, PORT): (Holder("ns", "p", "c"),)}
    assert await setting.round() == []
    assert opened == []
    setting.owned = {}
    assert await setting.round() == []
    assert opened == [setting.node]


async def test_a_card_that_somebody_works_on_is_left_alone(setting: Setting) -> None:
    with holding(setting.node), card_lock(setting.locks, setting.address, seconds=0.0):
        for _ in range(2):
            setting.strays.on_scan(scan(setting.rack.root))
            await setting.strays.run_once()
    assert setting.strays.problems() == {}


async def test_what_can_not_be_seen_changes_nothing_and_is_said_once(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    with holding(setting.node), capture_logs() as logs:
        await setting.round()
        assert await setting.round() == [PORT]
        setting.away = "the kubelet is away"
        assert await setting.round() == [PORT]
        assert await setting.round() == [PORT]
        setting.away = ""
        monkeypatch.setattr(setting.calls, "open", denied)
        assert await setting.round() == [PORT]
        assert await setting.round() == [PORT]
    assert [line["log_level"] for line in logs] == ["warning", "info", "info"]
    assert "Operation not permitted" in logs[2]["reason"]


async def test_a_port_that_its_driver_gives_to_nobody_else_is_held(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EBUSY, as the drivers answer a second opener."""

    def busy(*_: object, **__: object) -> int:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(setting.calls, "open", busy)
    await setting.round()
    assert await setting.round() == [PORT]


@pytest.mark.parametrize(("mode", "resource"), [(PluginMode.AF, AF), (PluginMode.REGION, REGION)])
async def test_in_the_plugin_a_held_port_is_unhealthy_unless_its_pod_has_it(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, mode: PluginMode, resource: str
) -> None:
    monkeypatch.setattr(stray_holders, "SOON_SECONDS", 0.02)
    monkeypatch.setattr(stray_holders, "INTERVAL_SECONDS", 0.02)
    rounds, check = asyncio.Event(), StrayHolders.run_once

    async def counted(strays: StrayHolders) -> None:
        await check(strays)
        rounds.set()

    monkeypatch.setattr(StrayHolders, "run_once", counted)
    bed.rack.add_card(CardSpec())
    async with bed.running(mode, healthy_after=1, enforce_mappings="never", programming="none"):
        await bed.offers(1, resource)
        started = await bed.start("p", container("c", resource, 1, functions(NLB0)))
        with holding(bed.rack.root / "dev" / PORT):
            for _ in range(5):
                rounds.clear()
                await rounds.wait()
            assert bed.kubelet.allocatable[resource] == 1
            await bed.kubelet.delete_pod(started)
            await bed.offers(0, resource)
        await bed.offers(1, resource)
