"""The part of a process that reads and repairs a node's cards, whatever kubelet API offers them."""

from collections.abc import Coroutine, Iterator
from typing import Any

from services.bitstreams.storage import BitstreamStorage
from services.containers.holders import HolderReader
from services.devices.hardware.events import follow_card_events
from services.devices.hardware.scan import Scanner
from services.devices.hardware.sensor_reader import SensorReader
from services.kube.events import EventRecorder
from services.node.discovery import Discovery
from services.node.metrics import NodeCollector, NodeMetrics
from services.node.reading import FindProblems, WorldReader, no_problems
from services.node.regions import WORK_SECONDS, RegionProgramming
from services.node.repairing import Repairing
from services.node.settings import NodeSettings
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.programming.ioctls import DriverCalls
from services.programming.lock import LOCKS
from services.programming.programmer import Programmer
from services.programming.records import PortRecords


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
        records: PortRecords,
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
            locks=settings.state_dir / LOCKS,
            driver_calls=driver_calls,
            programmer=self._programmer,
            cleared=metrics.errors_cleared,
        )
        self._reader = WorldReader(
            settings,
            state.mode,
            calls,
            scanner=self.scanner,
            holders=holders,
            records=records,
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
        if self.state.mode.has_cards:
            yield "repairs", self._repairing.repair_forever()
        if self.state.mode.has_cards or self._settings.device_types is not None:
            # Those of device types change with their files.
            yield (
                "card events",
                follow_card_events(self.state.rescan, self._reader.subsystems),
            )
