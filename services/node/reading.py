"""The loop of a node process: reads the node, and takes the ledger a step further.

A reading has the cards, what device types match, and which containers have devices. Each card is
read by itself and may hang (`services.process.blocking`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Final, NoReturn, Protocol, TypeAlias

import structlog
from prometheus_client import Histogram

from services.containers.holder_source import HolderSource
from services.containers.holders import HolderReader, Holders
from services.devices.hardware.afu_ids import AfuIds
from services.devices.hardware.events import FPGA_SUBSYSTEMS
from services.devices.hardware.scan import DRIVERS, Scanner
from services.devices.held import held_functions, held_parts
from services.devices.model import Inventory, PluginMode, TypesReading
from services.devices.resources import DEFAULT_UNITS
from services.devices.types.provider import DeviceTypes
from services.kube.events import EventRecorder
from services.node.events import Change, changes
from services.node.ledger import Rules, World, step
from services.node.settings import NodeSettings
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError
from services.process.outage import Outage
from services.process.problem import Problem
from services.programming.host_state import HostState
from services.programming.rebinding import unbound_cards

FindProblems: TypeAlias = Callable[[], Awaitable[Mapping[str, Problem]]]
"""Finds what is wrong with devices apart from their hardware, by id."""

SPACING: Final = 0.5
"""Of the scan interval: readings that follow each other closer count as one."""


async def no_problems() -> Mapping[str, Problem]:
    """Nothing is wrong."""
    return {}


def rules_of(
    settings: NodeSettings, mode: PluginMode, units: int = DEFAULT_UNITS, *, programs: bool = False
) -> Rules:
    """The rules for a node's devices in a mode, from its settings.

    `units` is their number in mode units. A process that `programs` enables disabled ports.
    """
    return Rules(
        mode,
        units,
        settings.ignored_errors,
        settings.healthy_after,
        settings.scan_interval * SPACING,
        frozenset(driver.name for driver in DRIVERS if driver.programs_virtual),
        clears_errors=settings.clear_errors,
        programs=programs,
        host_root=str(settings.host_root),
    )


def holder_source(
    settings: NodeSettings, calls: BlockingCalls, *, forgets_gone: bool = False
) -> HolderSource:
    """Knows which containers have the devices that are served."""
    return HolderSource(
        kubelet_dir=settings.kubelet_dir,
        pod_logs_dir=settings.pod_logs_dir,
        calls=calls,
        domains=settings.resource_domain if settings.device_types else (),
        forgets_gone=forgets_gone,
    )


class WorldReader:
    """Reads the node of some settings in a mode.

    Args:
        settings: Where the node's files are.
        mode: What is made of cards, if anything.
        calls: Make the reads, and work on cards.
        scanner: Reads the cards.
        holders: The containers that have devices.
        problems: Find what is wrong with devices apart from their hardware.
        seconds: Gets the time that reading the cards took.
    """

    def __init__(
        self,
        settings: NodeSettings,
        mode: PluginMode,
        calls: BlockingCalls,
        *,
        scanner: Scanner,
        holders: HolderReader,
        problems: FindProblems = no_problems,
        seconds: Histogram | None = None,
    ) -> None:
        self._mode = mode
        self._calls = calls
        self._scanner = scanner
        self._holders = holders
        self._problems = problems
        self._seconds = seconds
        self._root = settings.root
        self._host = HostState(settings.state_dir)
        self._afu_ids = AfuIds(settings.root, calls)
        self._types = None
        if settings.device_types is not None:
            self._types = DeviceTypes(
                settings.device_types,
                settings.root,
                calls,
                domains=settings.resource_domain,
                allowed=settings.allow_nodes,
            )

    def subsystems(self) -> frozenset[str]:
        """The subsystems whose uevents ask for a reading."""
        return FPGA_SUBSYSTEMS | (self._types.subsystems if self._types else frozenset())

    async def read(self, *, divides: bool = False) -> World:
        """Read the node once; `divides` says whether claims may have shares of one device."""
        busy = self._calls.busy
        try:
            holders = await self._holders.current()
            (cards, failed), (types, also_failed) = await asyncio.gather(
                self._read_cards(holders), self._read_types(holders, divides=divides)
            )
            # Once more, which costs nothing unless it has changed: what was allocated meanwhile
            # must not be offered as something else.
            holders = await self._holders.current()
        except HardwareError as error:
            return World(str(error))
        return World(
            "; ".join(filter(None, (failed, also_failed))),
            holders,
            self._holders.given,
            cards,
            types,
            busy | self._calls.busy,
            self._calls.abandoned,
            self._host.records.unfinished(),
            self._host.rebinding_cards(),
            await self._problems(),
        )

    async def _read_cards(self, holders: Holders) -> tuple[Inventory | None, str]:
        """The cards, or why they can't be read."""
        if not self._mode.has_cards:
            return Inventory(), ""
        started = perf_counter()
        try:
            inventory = await self._scanner.scan()
            found = {card.address for card in inventory.cards}
            if gone := [each for each in self._host.known_cards() if each not in found]:
                unbound = unbound_cards(self._root, gone, self._host)
                inventory = replace(inventory, problems=(*inventory.problems, *unbound))
            if self._seconds is not None:
                self._seconds.observe(perf_counter() - started)
            if self._mode.names_functions and any(card.functions for card in inventory.cards):
                in_use = held_functions(inventory.cards, held_parts(holders))
                inventory = await self._afu_ids.identify(inventory, in_use)
        except HardwareError as error:
            return None, str(error)
        return inventory, ""

    async def _read_types(
        self, holders: Holders, *, divides: bool
    ) -> tuple[TypesReading | None, str]:
        """The devices that types match, or why they can't be read."""
        if self._types is None:
            return None, ""
        try:
            return await self._types.read(holders, divides=divides), ""
        except HardwareError as error:
            return None, str(error)


log = structlog.get_logger(component="node")


class ReadsWorld(Protocol):
    """Reads a node."""

    async def read(self, *, divides: bool) -> World:
        """Read the node once, as `WorldReader` does."""


class Discovery:
    """Reads the node every `interval` seconds, or on request.

    Each change between two ledgers is logged, and recorded as an Event of the node. After a reading
    that did not fail, the work of all who follow the state is due.
    """

    def __init__(
        self,
        state: NodeState,
        reader: ReadsWorld,
        events: EventRecorder,
        *,
        interval: float,
    ) -> None:
        self._state = state
        self._reader = reader
        self._events = events
        self._interval = interval
        self._outage = Outage(
            log,
            "scan failed, the last known devices stay offered",
            "scans answer again",
            level="error",
        )

    async def scan_forever(self) -> NoReturn:
        """Scan until cancelled, first at once."""
        self._state.rescan.request()
        await self._state.rescan.run_forever(self.run_once, interval=lambda: self._interval)

    async def run_once(self) -> None:
        """Scan once, and take the ledger a step further."""
        state = self._state
        world = await self._reader.read(divides=state.divides)
        world = replace(world, attempts=state.attempts)
        before, state.attempts = state.ledger, {}
        state.ledger = step(before, world, time.monotonic())
        self._outage.update(world.error)
        for change in changes(before, state.ledger):
            report(change, self._events)
        if world.is_known:
            state.scanned.set()
            state.steps.request()


def report(change: Change, events: EventRecorder) -> None:
    """Log a change, and record its Event."""
    write_log = log.warning if change.warning else log.info
    write_log(change.what, subject=change.subject, message=change.message)
    if change.event:
        events.record_on_node(change.subject, change.event, change.message, warning=change.warning)
