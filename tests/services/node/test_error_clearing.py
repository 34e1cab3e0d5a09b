"""Clearing stale errors: the card's files are real, the driver is the test."""

from threading import Event

import pytest
from structlog.testing import capture_logs

from services.containers.holders import Holders
from services.devices.hardware.scan import scan
from services.node import error_clearing as module
from services.node.error_clearing import ErrorClearing
from services.process.blocking import BlockingCalls
from services.process.errors import KubeletError
from services.programming.error_registers import ClearResult
from simulator.card_faults import Fault
from simulator.cards import CardSpec, Rack
from simulator.driver import SimulatedCalls
from tests.services.node.support import background, scanned
from tests.support import eventually_async, holding

pytestmark = pytest.mark.anyio

ERRORS = CardSpec("opae", faults=(Fault.PORT_ERRORS,))


class Setting:
    """A clearing whose kubelet is what a test says."""

    def __init__(self, rack: Rack) -> None:
        self.rack = rack
        self.held: Holders = {}
        self.away = ""
        self.asked = 0
        self.outcomes: list[str] = []
        self.told: list[tuple[str, str]] = []
        self.looks = 0
        self.clearing = ErrorClearing(
            rack.root,
            locks=rack.root.parent / "locks",
            holders=self.holders,
            calls=BlockingCalls(),
            count=self.outcomes.append,
            request_rescan=self.look_now,
            on_result=lambda port, error: self.told.append((port, error)),
            driver_calls=SimulatedCalls(),
        )

    async def holders(self) -> Holders:
        self.asked += 1
        if self.away:
            raise KubeletError(self.away)
        return self.held

    def look_now(self) -> None:
        self.looks += 1

    def scan(self) -> None:
        self.clearing.on_scan(scanned(scan(self.rack.root)))


@pytest.fixture
def setting(rack: Rack) -> Setting:
    return Setting(rack)


async def test_errors_that_nobody_has_are_cleared_counted_and_looked_at(setting: Setting) -> None:
    setting.rack.add_card(ERRORS)
    async with background(setting.clearing.clear_forever()):
        with capture_logs() as logs:
            setting.scan()
            await eventually_async(lambda: setting.looks == 1)
            setting.scan()  # it came back, or was never away
            await eventually_async(lambda: setting.asked == 2)
    assert setting.outcomes == ["cleared"]
    assert setting.looks == 1
    (line,) = logs
    assert (line["log_level"], line["port"]) == ("warning", "intel-fpga-port.0")


async def test_while_nobody_can_tell_nothing_is_cleared_and_that_is_said_once(
    setting: Setting,
) -> None:
    setting.rack.add_card(ERRORS)
    setting.away = "the kubelet is away"
    async with background(setting.clearing.clear_forever()):
        with capture_logs() as logs:
            for times in (1, 2, 3):
                setting.scan()
                await eventually_async(lambda: setting.asked == times)  # noqa: B023 - awaited here
            assert setting.outcomes == []
            setting.away = ""
            setting.scan()
            await eventually_async(lambda: setting.outcomes == ["cleared"])
    assert [line["log_level"] for line in logs] == [
        "warning",
        "debug",
        "debug",
        "info",
        "warning",
    ]
    assert logs[0]["reason"] == "the kubelet is away"


async def test_a_write_that_hangs_is_left_behind(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = Event()

    def hang(*_: object) -> tuple[ClearResult, str]:
        release.wait(30)
        return ClearResult.CLEARED, ""

    monkeypatch.setattr(module, "clear_errors", hang)
    monkeypatch.setattr(module, "WRITE_SECONDS", 0.05)
    setting.rack.add_card(ERRORS)
    setting.scan()
    with capture_logs() as logs:
        await setting.clearing.run_once()
    release.set()
    assert setting.outcomes == ["hung"]
    assert "clearing the errors of intel-fpga-port.0 hangs" in logs[0]["reason"]


async def test_a_port_that_a_process_has_is_cleared_once_it_is_free(
    setting: Setting,
) -> None:
    """No pod has it by the kubelet's word, but somebody holds it open."""
    setting.rack.add_card(ERRORS)
    with holding(setting.rack.root / "dev/intel-fpga-port.0"):
        for _ in range(2):
            setting.scan()
            await setting.clearing.run_once()
    setting.scan()
    await setting.clearing.run_once()
    assert setting.outcomes == ["busy", "busy", "cleared"]
    assert [error.split(" by ")[0] for _, error in setting.told] == [
        "intel-fpga-port.0 is in use",
        "",
    ], "an Event each time would keep others waiting"
