"""Repairing ports: the cards' files are real, the driver is the test."""

from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import cast

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from services.containers.holders import Holders
from services.devices.hardware.scan import scan
from services.devices.model import Card, Inventory, PluginMode
from services.node import service as module
from services.node.ledger import Rules, step
from services.node.metrics import NodeMetrics
from services.node.repairs import Tried
from services.node.service import Repairing
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import DeviceBusy, DeviceRefused, KubeletError
from services.process.problem import Problem
from services.programming.error_registers import ClearResult
from services.programming.programmer import Programmer
from simulator.card_faults import Fault
from simulator.cards import CardSpec, Rack
from simulator.driver import SimulatedCalls
from tests.services.cards import NLB0, card, port, world
from tests.services.node.support import background
from tests.support import eventually_async, holding

pytestmark = pytest.mark.anyio

ERRORS = CardSpec("opae", faults=(Fault.PORT_ERRORS,))
DISABLED = card(0, port("dfl-port.0", NLB0, Problem("port-disabled", "disabled")))


class Driver(SimulatedCalls):
    """The driver of the cards, which hangs when a test says so."""

    hangs: Event | None = None

    def open(self, path: Path, *, alone: bool = False) -> int:
        if self.hangs is not None:
            self.hangs.wait(30)
        return super().open(path, alone=alone)


class Node:
    """A node whose kubelet and driver are what a test says."""

    def __init__(self, rack: Rack, rules: Rules | None = None) -> None:
        self.rack = rack
        self.state = NodeState(rules or Rules(PluginMode.REGION, enables_ports=True))
        self.away = ""
        self.holders: Holders = {}
        self.enabled: list[str] = []
        self.refusal: Exception | None = None
        self.driver = Driver()
        self.registry = CollectorRegistry()
        self.repairing = Repairing(
            self.state,
            holders=self,
            calls=BlockingCalls(),
            root=rack.root,
            locks=rack.root.parent / "locks",
            driver_calls=self.driver,
            programmer=cast("Programmer", self),
            cleared=NodeMetrics(self.registry).errors_cleared,
        )

    @property
    def outcomes(self) -> dict[str, int]:
        """How often each outcome was counted."""
        found = {
            each: self.registry.get_sample_value(
                "accelbind_errors_cleared_total", {"outcome": each}
            )
            for each in ClearResult
        }
        return {str(each): int(count) for each, count in found.items() if count}

    @property
    def results(self) -> list[Tried]:
        """The outcomes since the last scan."""
        return [*self.state.attempts.values()]

    def enable(self, port: str) -> bool:
        self.enabled.append(port)
        if self.refusal is not None:
            raise self.refusal
        return True

    async def read(self) -> Holders:
        if self.away:
            raise KubeletError(self.away)
        return {}

    async def current(self) -> Holders:
        return await self.read()

    def scan(self, *cards: Card) -> None:
        found = Inventory(cards) if cards else scan(self.rack.root)
        now = replace(world(found), attempts=self.state.attempts)
        self.state.attempts = {}
        self.state.ledger = step(self.state.ledger, now, 0)
        self.state.announce()

    async def repair(self, *cards: Card) -> None:
        self.scan(*cards)
        await self.repairing.run_once()


@pytest.fixture
def node(rack: Rack) -> Node:
    return Node(rack)


async def test_errors_that_nobody_has_are_cleared_once(node: Node) -> None:
    node.rack.add_card(ERRORS)
    async with background(node.repairing.repair_forever()):
        node.scan()
        await eventually_async(lambda: node.outcomes == {"cleared": 1})
        await eventually_async(lambda: node.results == [Tried("intel-fpga-port.0", done=True)])
    node.rack.break_(node.rack.addresses[0], Fault.PORT_ERRORS)  # it came back
    await node.repair()
    assert node.outcomes == {"cleared": 1}


async def test_errors_are_left_where_settings_say_so(rack: Rack) -> None:
    rack.add_card(ERRORS)
    node = Node(rack, Rules(clears_errors=False))
    await node.repair()
    await node.repair(DISABLED)
    assert (node.outcomes, node.enabled) == ({}, [])


async def test_while_the_holders_are_unknown_nothing_is_repaired_which_is_logged_once(
    node: Node,
) -> None:
    node.rack.add_card(ERRORS)
    node.away = "the kubelet is away"
    with capture_logs() as logs:
        for _ in range(3):
            await node.repair()
        assert node.outcomes == {}
        node.away = ""
        await node.repair()
    assert node.outcomes == {"cleared": 1}
    assert [line["log_level"] for line in logs] == ["warning", "debug", "debug", "info"]
    assert logs[0]["reason"] == "the kubelet is away"


async def test_a_write_that_hangs_is_left_behind(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.driver.hangs = Event()
    monkeypatch.setattr(module, "WRITE_SECONDS", 0.05)
    node.rack.add_card(ERRORS)
    await node.repair()
    node.driver.hangs.set()
    assert node.outcomes == {"hung": 1}
    (result,) = node.results
    assert "clearing the errors of intel-fpga-port.0 hangs" in result.error


async def test_a_port_that_a_process_has_is_cleared_once_it_is_free(node: Node) -> None:
    """The kubelet lists no pod with it, but somebody holds it open."""
    node.rack.add_card(ERRORS)
    with holding(node.rack.root / "dev/intel-fpga-port.0"):
        for _ in range(2):
            await node.repair()
            (result,) = node.results
            assert result.error.startswith("intel-fpga-port.0 is in use by ")
    await node.repair()
    assert node.outcomes == {"busy": 2, "cleared": 1}


async def test_a_disabled_card_that_is_busy_is_tried_again_and_one_that_refuses_is_not(
    node: Node,
) -> None:
    for refusal, tried in ((DeviceBusy("open"), 1), (DeviceRefused("no"), 2), (None, 2)):
        node.refusal = refusal
        await node.repair(DISABLED)
        assert len(node.enabled) == tried
    await node.repair(card(0))
    await node.repair(DISABLED)
    assert len(node.enabled) == 3
