"""The part of a process that reads and repairs a node's cards, whatever kubelet API offers them.

`services.node.repairs` decides which ports are repaired, beside the readings.
"""

from collections.abc import Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import structlog
from prometheus_client import Counter

from services.bitstreams.storage import BitstreamStorage
from services.containers.holders import HolderReader, Holders
from services.devices.hardware.events import follow_card_events
from services.devices.hardware.scan import Scanner
from services.devices.hardware.sensor_reader import SensorReader
from services.devices.held import held_parts
from services.devices.model import Card, Inventory, Port
from services.kube.events import EventRecorder
from services.node.metrics import NodeCollector, NodeMetrics
from services.node.reading import Discovery, FindProblems, WorldReader, no_problems
from services.node.regions import WORK_SECONDS, RegionProgramming
from services.node.repairs import Attempt, Repairs, Tried, clearing, enabling, repairs
from services.node.settings import NodeSettings
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import AccelbindError, DeviceBusy, HardwareError
from services.process.outage import Outage
from services.programming.error_registers import ClearResult, clear_errors
from services.programming.host_state import HostState
from services.programming.ioctls import DriverCalls
from services.programming.programmer import Programmer

WRITE_SECONDS: Final = 5.0
"""For clearing errors, which may hang in the card's driver."""

ENABLE_SECONDS: Final = 20.0
"""For a card, whose lock somebody else may hold for half of that."""

log = structlog.get_logger(component="node")


class Repairing:
    """Clears errors that containers left in ports, and enables ports that are disabled.

    Args:
        state: What is known of the node; the attempts are noted there.
        holders: Which containers have devices.
        calls: Make the calls.
        root: The host's root.
        host: Has the cards' locks.
        driver_calls: Open ports.
        programmer: Rebinds the driver of a port's card, if the port is still disabled.
        cleared: Counts the outcomes of clearings.
    """

    def __init__(
        self,
        state: NodeState,
        *,
        holders: HolderReader,
        calls: BlockingCalls,
        root: Path,
        host: HostState,
        driver_calls: DriverCalls,
        programmer: Programmer,
        cleared: Counter,
    ) -> None:
        self._state = state
        self._holders = holders
        self._calls = calls
        self._root = root
        self._host = host
        self._driver_calls = driver_calls
        self._programmer = programmer
        self._cleared = cleared
        self._due = state.steps.follow()
        self._outage = Outage(
            log,
            "ports are not repaired: the holders are unknown",
            "ports are repaired again: the holders are known",
        )

    async def repair_forever(self) -> NoReturn:
        """Repair after each step of the ledger, until cancelled."""
        await self._due.run_forever(self.run_once)

    async def run_once(self) -> None:
        """Repair each port that can be repaired now."""
        if self._todo({}) == Repairs():
            return
        try:
            todo = self._todo(await self._holders.read())
        except AccelbindError as error:
            self._outage.failed(str(error))
            return
        self._outage.ended()
        for card, port in todo.errors:
            await self._clear(card, port)
        for card, port in todo.disabled:
            await self._rebind(card, port)

    def _todo(self, holders: Holders) -> Repairs:
        ledger = self._state.ledger
        tried = {**ledger.tried, **self._state.attempts}
        found = repairs(ledger.inventory or Inventory(), held_parts(holders), tried)
        rules = ledger.rules
        return Repairs(
            found.errors if rules.clears_errors else (),
            found.disabled if rules.programs else (),
        )

    def _note(self, attempt: Attempt, outcome: Tried) -> None:
        self._state.attempts = {**self._state.attempts, attempt: outcome}

    async def _clear(self, card: Card, port: Port) -> None:
        """Try to clear the errors of a port."""
        try:
            outcome, detail = await self._calls.run(
                f"errors of {port.name}",
                partial(clear_errors, self._root, card, port, self._host, self._driver_calls),
                timeout=WRITE_SECONDS,
                what=f"clearing the errors of {port.name}",
            )
        except HardwareError as error:
            outcome, detail = ClearResult.HUNG, str(error)
        self._cleared.labels(outcome).inc()
        is_cleared, is_busy = outcome is ClearResult.CLEARED, outcome is ClearResult.BUSY
        self._note(clearing(card, port), Tried(port.name, is_cleared, detail, is_busy))
        if is_cleared:
            self._state.rescan.request()

    async def _rebind(self, card: Card, port: Port) -> None:
        done, reason = False, ""
        try:
            done = await self._calls.run(
                card.work_key,
                partial(self._programmer.enable, port.name),
                timeout=ENABLE_SECONDS,
                what=f"enabling {port.name}",
            )
        except DeviceBusy:
            return  # tried again after the next scan
        except AccelbindError as error:
            reason = str(error)
        self._note(enabling(card), Tried(port.name, done, reason))
        if not reason:
            self._state.rescan.request()


class NodeService:
    """Looks after a node's cards in one mode, as the rules of its ledger say.

    `problems` find what else is wrong with devices.
    """

    def __init__(
        self,
        settings: NodeSettings,
        state: NodeState,
        *,
        calls: BlockingCalls,
        driver_calls: DriverCalls,
        holders: HolderReader,
        metrics: NodeMetrics,
        events: EventRecorder,
        problems: FindProblems = no_problems,
    ) -> None:
        self._settings = settings
        self._calls = calls
        self._metrics = metrics
        self.state = state
        self.scanner = Scanner(settings.root, calls)
        self.collector = NodeCollector(
            self.state,
            self.scanner,
            SensorReader(settings.root, calls),
        )
        self._programmer = Programmer(
            settings.root,
            settings.state_dir,
            scan_cards=self.scanner.scan_sync,
            clocks=settings.user_clock,
            calls=driver_calls,
            rebinds=True,
        )
        self._repairing = Repairing(
            self.state,
            holders=holders,
            calls=calls,
            root=settings.root,
            host=HostState(settings.state_dir),
            driver_calls=driver_calls,
            programmer=self._programmer,
            cleared=metrics.errors_cleared,
        )
        self._reader = WorldReader(
            settings,
            state.ledger.rules.mode,
            calls,
            scanner=self.scanner,
            holders=holders,
            problems=problems,
            seconds=metrics.scan_seconds,
        )
        self._discovery = Discovery(
            self.state,
            self._reader,
            events,
            interval=settings.scan_interval,
        )

    def region_programming(self, *, work_seconds: float = WORK_SECONDS) -> RegionProgramming:
        """The region programmer; `work_seconds` limits the work on one card."""
        settings = self._settings
        return RegionProgramming(
            programmer=self._programmer,
            storage=BitstreamStorage(settings.bitstreams),
            calls=self._calls,
            scanner=self.scanner,
            node=settings.node_name,
            metrics=self._metrics,
            rescan=self.state.rescan,
            work_seconds=work_seconds,
        )

    def loops(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """The loops that serve the node, by name."""
        yield "discovery", self._discovery.scan_forever()
        if self.state.ledger.rules.mode.has_cards:
            yield "repairs", self._repairing.repair_forever()
        if self.state.ledger.rules.mode.has_cards or self._settings.device_types is not None:
            # Those of device types change with their files.
            yield (
                "card events",
                follow_card_events(self.state.rescan, self._reader.subsystems),
            )
