"""What a DRA driver consists of, composed once, top to bottom."""

from collections.abc import Coroutine, Iterable, Iterator
from typing import Any

import structlog

from dra.book import FOLDER as CLAIMS
from dra.book import ClaimBook, ClaimEntry, ClaimHolders
from dra.claim_files import CdiClaimFiles
from dra.claim_use import ClaimUse
from dra.driver import Driver, NodeDevices
from dra.leftover_claims import LeftoverClaims
from dra.leftover_resources import LeftoverResources
from dra.metrics import DraMetrics
from dra.preparation import WORK_SECONDS, Preparation, Surroundings
from dra.publisher import SlicePublisher
from dra.registration import Registration
from dra.settings import DraSettings, Programming
from dra.upkeep import ClaimUpkeep
from services.containers.holders import Holders
from services.containers.pod_source import ApiServerPods
from services.devices.dra import DRIVER, DraDevice, held_by_plugin
from services.devices.model import PluginMode
from services.kube.connection import ApiConnection
from services.kubelet.checkpoint import KubeletFiles
from services.kubelet.sockets import dra_registration, dra_socket, plugins_folder
from services.node.kept_files import Kept
from services.node.kubelet_folder import KubeletFolder
from services.node.process_parts import NodeProcess
from services.node.reading import holder_source
from services.node.service import NodeService
from services.node.start_gate import record_programming
from services.process.errors import HardwareError, KubeletError
from services.process.outage import Outage
from services.process.text import listing
from services.programming.ioctls import KERNEL, DriverCalls
from services.programming.records import FOLDER, PortRecords

log = structlog.get_logger(component="dra")


class DraParts(NodeProcess):
    """What serves a node's devices to DRA; an empty version is looked up."""

    def __init__(
        self,
        settings: DraSettings,
        connection: ApiConnection,
        *,
        driver_calls: DriverCalls = KERNEL,
        version: str = "",
    ) -> None:
        folder = settings.kubelet_dir
        written = [
            settings.cdi_dir,
            dra_socket(folder, DRIVER).parent,
            dra_registration(folder, DRIVER).parent,
        ]
        super().__init__("dra", settings, connection, version, folders=written)
        self.settings = settings
        self.connection = connection
        self.metrics = DraMetrics(self.registry)
        self.folder = KubeletFolder(plugins_folder(settings.kubelet_dir))
        self.records = PortRecords(settings.state_dir / FOLDER)
        self.plugin_holders = holder_source(settings, self.calls, forgets_gone=True)
        self._last_holders: Holders | None = None
        self._renamed = Outage(
            log,
            "devices aren't published, since claims have them by earlier names",
            "no claim has a device by an earlier name",
            level="info",
        )
        self.book = ClaimBook(settings.state_dir / CLAIMS)
        self.holders = ClaimHolders(self.book, self.plugin_holders)
        self.devices = NodeDevices(self.book)
        self.leftover_claims = self._leftover_claims(driver_calls)
        self.node = NodeService(
            settings,
            PluginMode.REGION,
            calls=self.calls,
            driver_calls=driver_calls,
            holders=self.holders,
            metrics=self.node_metrics,
            reports=self.reports,
            records=self.records,
            problems=self.leftover_claims.problems,
            programs=settings.programming is Programming.ON_PREPARE,
        )
        self.node.follow(self.devices.on_scan)
        self.registry.register(self.node.collector)
        self.regions = self.node.region_programming(work_seconds=WORK_SECONDS)
        self.publisher = self._publisher()
        self.node.follow(self.publisher.on_scan)
        self._files = self._claim_files()
        self.preparation = self._preparation()
        self.upkeep = ClaimUpkeep(self.book, self._files, self.preparation, kept=self.files)
        self.node.follow(self.upkeep.on_scan)
        self.leftover_resources = self._leftover_resources()
        self.driver = Driver(
            self.preparation, self.devices, pool=settings.node_name, metrics=self.metrics
        )
        self.registration = Registration(
            settings.kubelet_dir,
            self.driver,
            on_answer=self._answered,
            on_lost=lambda path: self.files.restored(Kept.SOCKET, path, "it is missing"),
        )

    def _publisher(self) -> SlicePublisher:
        settings = self.settings
        return SlicePublisher(
            self.connection,
            settings.node_name,
            state=self.node.state,
            programmed=self.regions.contents,
            held=self.book.committed,
            taken=self._taken,
            programmable=settings.programming is Programming.ON_PREPARE,
            count=lambda outcome: self.metrics.slice_writes.labels(outcome).inc(),
        )

    def _claim_files(self) -> CdiClaimFiles:
        settings = self.settings
        return CdiClaimFiles(
            settings.cdi_dir,
            host_root=str(settings.host_root),
            calls=self.calls,
            devices=lambda: self.devices.by_name,
            root=settings.root,
        )

    def _leftover_resources(self) -> LeftoverResources:
        settings = self.settings
        return LeftoverResources(
            self.folder,
            settings.kubelet_dir,
            KubeletFiles(settings.kubelet_dir, settings.pod_logs_dir, self.calls),
            lambda: self.node.state.advertised.resources,
        )

    def _preparation(self) -> Preparation:
        settings = self.settings
        return Preparation(
            self.book,
            self.regions,
            self._files,
            Surroundings(
                settings.node_name,
                ApiServerPods(self.connection),
                lambda: self.devices.by_name,
                self._plugin_devices,
                settings.enforce_mappings,
                programs=settings.programming is Programming.ON_PREPARE,
            ),
            on_change=self.node.state.rescan.request,
            report=lambda claim, done: record_programming(
                self.record_event, claim.pod, str(claim.ref), done
            ),
        )

    def _leftover_claims(self, driver_calls: DriverCalls) -> LeftoverClaims:
        settings = self.settings
        use = ClaimUse(
            settings.kubelet_dir,
            settings.root,
            settings.node_name,
            calls=self.calls,
            driver_calls=driver_calls,
            source=ApiServerPods(self.connection),
            devices=lambda: self.devices.by_name,
        )
        return LeftoverClaims(self.book, use)

    async def end_leftover(self, entry: ClaimEntry) -> None:
        """Give back a claim that nobody knows and uses."""
        if await self.preparation.end_leftover(entry):
            self.metrics.unprepared.labels("leftover").inc()

    async def _plugin_devices(self) -> frozenset[str]:
        """The devices that pods still have from the device plugin."""
        return held_by_plugin(self.devices.by_name.values(), await self.plugin_holders.read())

    async def _taken(self, found: Iterable[DraDevice]) -> frozenset[str]:
        """The devices that aren't free, although no claim has them by their names."""
        renamed = self.book.renamed({each.name: each for each in found})
        whose = [f"{device} (of {claim})" for device, claim in sorted(renamed.items())]
        self._renamed.update(listing(whose) if whose else "")
        return held_by_plugin(found, await self._known_holders()).union(renamed)

    async def _known_holders(self) -> Holders:
        """Which pods have devices from the device plugin.

        A kubelet that starts deletes the slices before it says so: then what it said last counts.
        """
        try:
            self._last_holders = await self.plugin_holders.read()
        except (KubeletError, HardwareError):
            if self._last_holders is None:
                raise
        return self._last_holders

    def _answered(self, error: str) -> None:
        self.metrics.registrations.labels("failed" if error else "ok").inc()
        if not error:
            self.publisher.confirm()

    def loops(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What runs while the driver serves, by name."""
        yield from super().loops()
        yield from self.node.loops()
        yield from self.publisher.loops()
        yield "claims", self.upkeep.run_forever()
        yield "leftover claims", self.leftover_claims.run_forever(self.end_leftover)
        yield "leftover resources", self.leftover_resources.withdraw_forever()
        yield (
            "holders",
            self.plugin_holders.follow_forever(
                self.node.state.rescan.request, self.leftover_resources.resend
            ),
        )
