"""What a process knows and does about a node's cards, whatever kubelet API offers its devices."""

from collections.abc import Coroutine, Iterator
from typing import Any

from services.bitstreams.storage import BitstreamStorage
from services.containers.holders import HolderReader
from services.devices.hardware.events import follow_card_events
from services.devices.hardware.scan import Scanner
from services.devices.hardware.sensor_reader import SensorReader
from services.devices.model import PluginMode
from services.devices.resources import DEFAULT_UNITS
from services.node.discovery import Discovery
from services.node.error_clearing import ErrorClearing
from services.node.metrics import NodeCollector, NodeMetrics
from services.node.port_enabling import PortEnabling
from services.node.reading import FindProblems, WorldReader, no_problems, rules_of
from services.node.regions import WORK_SECONDS, RegionProgramming
from services.node.reports import NodeReports
from services.node.settings import NodeSettings
from services.node.state import NodeState, OnScan
from services.process.blocking import BlockingCalls
from services.programming.ioctls import DriverCalls
from services.programming.lock import LOCKS
from services.programming.programmer import Programmer
from services.programming.records import PortRecords


class NodeService:
    """Looks after a node's cards in one mode.

    `units` is their number in mode units. `problems` find what else is wrong with devices.
    """

    def __init__(
        self,
        settings: NodeSettings,
        mode: PluginMode,
        *,
        calls: BlockingCalls,
        driver_calls: DriverCalls,
        holders: HolderReader,
        metrics: NodeMetrics,
        reports: NodeReports,
        records: PortRecords,
        problems: FindProblems = no_problems,
        units: int = DEFAULT_UNITS,
    ) -> None:
        self._settings = settings
        self._calls = calls
        self._driver_calls = driver_calls
        self._metrics = metrics
        self.state = NodeState(rules_of(settings, mode, units))
        self.scanner = Scanner(settings.root, calls)
        self.collector = NodeCollector(
            self.state,
            self.scanner,
            SensorReader(settings.root, calls),
            lambda: holders.holders,
        )
        self._read_holders = holders.read
        self._enabling: PortEnabling | None = None
        self._clearing = None
        if settings.clear_errors and mode.has_cards:
            self._clearing = ErrorClearing(
                settings.root,
                locks=settings.state_dir / LOCKS,
                holders=holders.read,
                calls=calls,
                count=lambda outcome: metrics.errors_cleared.labels(outcome).inc(),
                request_rescan=self.state.rescan.request,
                on_result=reports.errors_cleared,
                driver_calls=driver_calls,
            )
        clearing = (self._clearing.on_scan,) if self._clearing else ()
        self._reader = WorldReader(
            settings,
            mode,
            calls,
            scanner=self.scanner,
            holders=holders.current,
            records=records,
            problems=problems,
            observe_seconds=metrics.scan_seconds.observe,
        )
        self._on_scan = [reports.on_scan, *clearing]
        self._discovery = Discovery(
            self.state,
            self._reader.read,
            interval=settings.scan_interval,
            on_scan=self._on_scan,
        )

    def follow(self, on_scan: OnScan) -> None:
        """Call somebody after each scan, behind the reports and those that follow already."""
        self._on_scan.append(on_scan)

    def region_programming(
        self, *, work_seconds: float = WORK_SECONDS, programs: bool = True
    ) -> RegionProgramming:
        """The region programmer; `work_seconds` limits the work on one card.

        Without `programs` it only verifies. With it, ports that are disabled are enabled.
        """
        settings = self._settings
        programmer = Programmer(
            settings.root,
            settings.state_dir,
            scan_cards=self.scanner.scan_sync,
            clocks=settings.user_clock,
            calls=self._driver_calls,
            rebinds=True,
        )
        if programs:
            self._enabling = PortEnabling(
                enable=programmer.enable,
                holders=self._read_holders,
                calls=self._calls,
                request_rescan=self.state.rescan.request,
            )
            self._on_scan.append(self._enabling.on_scan)
        return RegionProgramming(
            programmer=programmer,
            storage=BitstreamStorage(settings.bitstreams),
            calls=self._calls,
            scan=self.scanner.scan,
            node=settings.node_name,
            metrics=self._metrics,
            on_done=self.state.rescan.request,
            work_seconds=work_seconds,
        )

    def loops(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What runs while the node is looked after, by name."""
        yield "discovery", self._discovery.scan_forever()
        if self._clearing is not None:
            yield "error clearing", self._clearing.clear_forever()
        if self._enabling is not None:
            yield "port enabling", self._enabling.enable_forever()
        if self.state.mode.has_cards or self._settings.device_types is not None:
            # Those of device types change with their files.
            yield (
                "card events",
                follow_card_events(self.state.rescan.request, self._reader.subsystems),
            )
