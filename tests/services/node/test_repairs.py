from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from services.containers.holders import Given, Holders
from services.devices.hardware.scan import scan
from services.devices.held import held_parts
from services.devices.model import Card, Inventory, PluginMode, Port
from services.node import service as module
from services.node.ledger import Rules, step
from services.node.metrics import NodeMetrics
from services.node.repairs import (
    MAX_VALUES,
    Attempts,
    Tried,
    clearing,
    enabling,
    repairs,
    still_tried,
)
from services.node.service import Repairing
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import DeviceBusy, DeviceRefused, KubeletError
from services.process.problem import Problem
from services.programming.error_registers import ClearResult
from services.programming.host_state import HostState
from services.programming.programmer import Programmer
from simulator.card_faults import Fault
from simulator.cards import CardSpec, Rack
from simulator.driver import SimulatedCalls
from tests.services.cards import BAD, NLB0, advertise, card, port, virtual, world
from tests.support import background, eventually_async, holding

DEAD = Problem("afu-id-all-f", "afu_id of dfl-port.0 is all f: the card's firmware has crashed")
SILENT = Problem("port-errors-unreadable", "errors/errors of dfl-port.0 can't be read: I/O error")
OFF = Problem("card-unreadable", "/sys/class/fpga_region/region0 can't be listed: I/O error")
NOTHING: Attempts = {}
DISABLED = Problem("port-disabled", "dfl-port.0 is disabled")


def broken(name: str = "dfl-port.0", value: int | None = 0x40, *problems: Problem) -> Port:
    """A port with errors."""
    return replace(port(name, NLB0, BAD, *problems), errors=value)


def faulty(value: int | None = 0x40, *problems: Problem, index: int = 0) -> Card:
    """A card whose port has errors."""
    return card(index, broken(f"dfl-port.{index}", value, *problems))


class Node:
    """A node that is read and repaired again and again."""

    def __init__(self) -> None:
        self.tried: Attempts = NOTHING
        self.enabled: list[str] = []

    def look(self, *cards: Card, allocated: Collection[str] = ()) -> list[str]:
        """The errors that are cleared, which then count as tried."""
        held = held_parts([("r", each) for each in allocated])
        self.tried = still_tried(self.tried, Inventory(cards), held)
        todo = repairs(Inventory(cards), held, self.tried)
        done = [(clearing(*each), each[1]) for each in todo.errors]
        done += [(enabling(card), port) for card, port in todo.disabled]
        self.tried = {**self.tried, **{each: Tried(port.name, True) for each, port in done}}
        self.enabled = [port.name for _, port in todo.disabled]
        return [f"{port.name}={port.errors:#x}" for _, port in todo.errors]


def test_a_port_that_makes_up_ever_new_errors_is_left_alone_in_the_end() -> None:
    node = Node()
    cleared = [node.look(faulty(1 << bit)) for bit in range(2 * MAX_VALUES)]
    assert [len(each) for each in cleared] == [1] * MAX_VALUES + [0] * MAX_VALUES


@pytest.mark.parametrize(
    "card_",
    [
        *(card(0), faulty(0), faulty(2**64 - 1), faulty(0x40, DEAD), faulty(0x40, SILENT)),
        # The region of the port is unknown.
        *(replace(faulty(), fme=None), virtual(card(0), 1, broken("dfl-port.1"))),
    ],
)
def test_ports_without_errors_or_answers_are_not_cleared(card_: Card) -> None:
    assert Node().look(card_) == []


@pytest.mark.parametrize(
    "mode", [PluginMode.AF, PluginMode.REGION, PluginMode.REGIONDEVEL, PluginMode.BDF]
)
def test_the_ids_of_every_mode_are_understood(mode: PluginMode) -> None:
    physical = card(0, broken("dfl-port.0"), replace(broken("dfl-port.2"), number=1))
    cards = physical, virtual(physical, 1, broken("dfl-port.1")), card(2, broken("dfl-port.3"))
    devices = list(advertise(Inventory(cards), mode).devices())
    assert len(devices) >= 2
    assert Node().look(*cards, allocated=[device.id for device in devices]) == []
    for device in devices:
        others = [each.id for each in devices if each is not device]
        cleared = Node().look(*cards, allocated=others)
        nodes = {node.name for node in device.nodes}
        assert {each.partition("=")[0] for each in cleared} <= nodes
        assert cleared or mode is PluginMode.BDF  # where ports of one function count together


def test_a_card_that_fails_for_a_while_is_remembered_and_one_that_is_gone_is_not() -> None:
    node = Node()
    assert node.look(faulty()) == ["dfl-port.0=0x40"]
    assert node.look(replace(faulty(), fme=None, ports=(), failure=OFF)) == []
    assert node.look(faulty()) == []
    assert node.look() == []
    assert node.tried == NOTHING
    assert node.look(faulty()) == ["dfl-port.0=0x40"]


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([0, 1, 2, 3, None]), min_size=3, max_size=3),
            st.sets(st.sampled_from([0, 1, 2])),
        ),
        max_size=40,
    )
)
def test_no_port_is_cleared_twice_of_a_value_while_nobody_has_it_nor_ever_while_somebody_does(
    scans: list[tuple[list[int | None], set[int]]],
) -> None:
    """Each scan: the errors of three ports (None: the card is away), and which are allocated."""
    node = Node()
    done: dict[int, set[str]] = {0: set(), 1: set(), 2: set()}
    for errors, owned in scans:
        cards = [faulty(value, index=n) for n, value in enumerate(errors) if value is not None]
        cleared = node.look(*cards, allocated=[f"dfl-port.{n}" for n in owned])
        for n, value in enumerate(errors):
            mine = [each for each in cleared if each.startswith(f"dfl-port.{n}=")]
            if value is None or n in owned:
                assert mine == []
                done[n].clear()
            else:
                expected = {f"dfl-port.{n}={value:#x}"} - done[n] if value else set()
                assert set(mine) == expected
                done[n] |= expected
    assert len({(place, name) for place, name, _ in node.tried}) <= 3


def test_a_card_with_a_disabled_port_is_rebound_once_each_time_while_nobody_has_a_part() -> None:
    node = Node()

    def enabled(*problems: Problem, allocated: Collection[str] = ()) -> list[str]:
        ports = port("dfl-port.0", NLB0, *problems), port("dfl-port.1", number=1)
        node.look(card(0, *ports), allocated=allocated)
        return node.enabled

    assert enabled(BAD) == []
    for device in ("dfl-fme.0", "dfl-port.1"):
        assert enabled(DISABLED, allocated=[device]) == []
    assert enabled(DISABLED) == ["dfl-port.0"]
    assert enabled(DISABLED) == enabled() == []
    assert enabled(DISABLED) == ["dfl-port.0"]


# The loop that repairs: the cards' files are real, the driver is the test

ERRORS = CardSpec("opae", faults=(Fault.PORT_ERRORS,))
DISABLED_CARD = card(0, port("dfl-port.0", NLB0, DISABLED))


class Driver(SimulatedCalls):
    """The driver of the cards, which hangs when a test says so."""

    hangs: Event | None = None

    def open(self, path: Path, *, alone: bool = False) -> int:
        if self.hangs is not None:
            self.hangs.wait(30)
        return super().open(path, alone=alone)


class RepairedNode:
    """A node whose kubelet and driver are what a test says."""

    def __init__(self, rack: Rack, rules: Rules | None = None) -> None:
        self.rack = rack
        self.state = NodeState(rules or Rules(PluginMode.REGION, programs=True))
        self.away = ""
        self.holders: Holders = {}
        self.given: frozenset[Given] = frozenset()
        self.enabled: list[str] = []
        self.refusal: Exception | None = None
        self.driver = Driver()
        self.registry = CollectorRegistry()
        self.repairing = Repairing(
            self.state,
            holders=self,
            calls=BlockingCalls(),
            root=rack.root,
            host=HostState(rack.root.parent),
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
        self.state.steps.request()

    async def repair(self, *cards: Card) -> None:
        self.scan(*cards)
        await self.repairing.run_once()


@pytest.fixture
def node(rack: Rack) -> RepairedNode:
    return RepairedNode(rack)


async def test_errors_that_nobody_has_are_cleared_once(node: RepairedNode) -> None:
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
    node = RepairedNode(rack, Rules(clears_errors=False))
    await node.repair()
    await node.repair(DISABLED_CARD)
    assert (node.outcomes, node.enabled) == ({}, [])


async def test_while_the_holders_are_unknown_nothing_is_repaired_which_is_logged_once(
    node: RepairedNode,
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
    node: RepairedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.driver.hangs = Event()
    monkeypatch.setattr(module, "WRITE_SECONDS", 0.05)
    node.rack.add_card(ERRORS)
    await node.repair()
    node.driver.hangs.set()
    assert node.outcomes == {"hung": 1}
    (result,) = node.results
    assert "clearing the errors of intel-fpga-port.0 hangs" in result.error


async def test_a_port_that_a_process_has_is_cleared_once_it_is_free(node: RepairedNode) -> None:
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
    node: RepairedNode,
) -> None:
    for refusal, tried in ((DeviceBusy("open"), 1), (DeviceRefused("no"), 2), (None, 2)):
        node.refusal = refusal
        await node.repair(DISABLED_CARD)
        assert len(node.enabled) == tried
    await node.repair(card(0))
    await node.repair(DISABLED_CARD)
    assert len(node.enabled) == 3
