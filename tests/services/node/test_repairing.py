"""Repairing ports: the cards' files are real, the driver is the test."""

from dataclasses import replace
from threading import Event

import pytest
from structlog.testing import capture_logs

from services.containers.holders import Holders
from services.devices.hardware.scan import scan
from services.devices.model import Card, Inventory, PluginMode, Port, Problem
from services.node import repairing as module
from services.node.ledger import Rules, step
from services.node.repairing import Repairing
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import DeviceBusy, DeviceRefused, KubeletError
from services.programming.error_registers import ClearResult, clear_errors
from simulator.card_faults import Fault
from simulator.cards import CardSpec, Rack
from simulator.driver import SimulatedCalls
from tests.services.cards import NLB0, card, port, world
from tests.services.node.support import background
from tests.support import eventually_async, holding

pytestmark = pytest.mark.anyio

ERRORS = CardSpec("opae", faults=(Fault.PORT_ERRORS,))
DISABLED = card(0, port("dfl-port.0", NLB0, Problem("port-disabled", "disabled")))


class Node:
    """A node whose kubelet and driver are what a test says."""

    def __init__(self, rack: Rack, rules: Rules | None = None) -> None:
        self.rack = rack
        self.state = NodeState(rules or Rules(PluginMode.REGION, enables_ports=True))
        self.away = ""
        self.asked = 0
        self.outcomes: list[str] = []
        self.results: list[tuple[str, str]] = []
        self.enabled: list[str] = []
        self.refusal: Exception | None = None
        self.hangs: Event | None = None
        self.repairing = Repairing(
            self.state,
            holders=self._holders,
            calls=BlockingCalls(),
            clear=self._clear,
            enable=self._enable,
            count=self.outcomes.append,
            on_result=lambda port, error: self.results.append((port, error)),
        )

    def _clear(self, card: Card, port: Port) -> tuple[ClearResult, str]:
        if self.hangs is not None:
            self.hangs.wait(30)
        root = self.rack.root
        return clear_errors(root, card, port, root.parent / "locks", SimulatedCalls())

    def _enable(self, port: str) -> bool:
        self.enabled.append(port)
        if self.refusal is not None:
            raise self.refusal
        return True

    async def _holders(self) -> Holders:
        self.asked += 1
        if self.away:
            raise KubeletError(self.away)
        return {}

    def scan(self, *cards: Card) -> None:
        found = Inventory(cards) if cards else scan(self.rack.root)
        now = replace(world(found), attempts=self.state.attempts)
        self.state.attempts = frozenset()
        self.state.ledger = step(self.state.ledger, now, 0)
        self.state.announce()

    async def repair(self, *cards: Card) -> None:
        self.scan(*cards)
        await self.repairing.run_once()


@pytest.fixture
def node(rack: Rack) -> Node:
    return Node(rack)


async def test_errors_that_nobody_has_are_cleared_counted_and_logged_once(node: Node) -> None:
    node.rack.add_card(ERRORS)
    async with background(node.repairing.repair_forever()):
        with capture_logs() as logs:
            node.scan()
            await eventually_async(lambda: node.outcomes == ["cleared"])
            assert node.results == [("intel-fpga-port.0", "")]
    node.rack.break_(node.rack.addresses[0], Fault.PORT_ERRORS)  # it came back
    await node.repair()
    assert node.outcomes == ["cleared"]
    (line,) = logs
    assert (line["log_level"], line["port"]) == ("warning", "intel-fpga-port.0")


async def test_errors_are_left_where_settings_say_so(rack: Rack) -> None:
    rack.add_card(ERRORS)
    node = Node(rack, Rules(clears_errors=False))
    await node.repair()
    await node.repair(DISABLED)
    assert (node.outcomes, node.enabled) == ([], [])


async def test_while_the_holders_are_unknown_nothing_is_repaired_which_is_logged_once(
    node: Node,
) -> None:
    node.rack.add_card(ERRORS)
    node.away = "the kubelet is away"
    with capture_logs() as logs:
        for _ in range(3):
            await node.repair()
        assert node.outcomes == []
        node.away = ""
        await node.repair()
    assert node.outcomes == ["cleared"]
    levels = [line["log_level"] for line in logs]
    assert levels == ["warning", "debug", "debug", "info", "warning"]
    assert logs[0]["reason"] == "the kubelet is away"


async def test_a_write_that_hangs_is_left_behind(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.hangs = Event()
    monkeypatch.setattr(module, "WRITE_SECONDS", 0.05)
    node.rack.add_card(ERRORS)
    with capture_logs() as logs:
        await node.repair()
    node.hangs.set()
    assert node.outcomes == ["hung"]
    assert "clearing the errors of intel-fpga-port.0 hangs" in logs[0]["reason"]


async def test_a_port_that_a_process_has_is_cleared_once_it_is_free(node: Node) -> None:
    """The kubelet lists no pod with it, but somebody holds it open."""
    node.rack.add_card(ERRORS)
    with holding(node.rack.root / "dev/intel-fpga-port.0"):
        for _ in range(2):
            await node.repair()
    await node.repair()
    assert node.outcomes == ["busy", "busy", "cleared"]
    assert [error.split(" by ")[0] for _, error in node.results] == [
        "intel-fpga-port.0 is in use",
        "",
    ], "an Event each time would keep others waiting"


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
