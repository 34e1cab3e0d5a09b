"""What a DRA driver consists of, composed once, top to bottom."""

from collections.abc import Coroutine, Iterator
from typing import Any

from dra.book import FOLDER as CLAIMS
from dra.book import ClaimBook, ClaimEntry, ClaimHolders
from dra.claim_files import CdiClaimFiles
from dra.claim_use import ClaimUse
from dra.driver import Driver
from dra.leftover_claims import LeftoverClaims
from dra.leftover_resources import LeftoverResources
from dra.metrics import DraMetrics
from dra.preparation import WORK_SECONDS, Preparation, Surroundings
from dra.publisher import SlicePublisher
from dra.registration import Registration
from dra.settings import DraSettings, Programming
from dra.upkeep import ClaimUpkeep
from services.containers.pod_source import ApiServerPods
from services.devices.dra import DRIVER
from services.devices.model import PluginMode
from services.kube.connection import ApiConnection
from services.kubelet.checkpoint import KubeletFiles
from services.kubelet.sockets import dra_registration, dra_socket
from services.node.kept_files import Kept
from services.node.pod_events import record_programming
from services.node.process_parts import NodeProcess
from services.node.reading import holder_source, rules_of
from services.node.service import NodeService
from services.node.state import NodeState
from services.programming.ioctls import KERNEL, DriverCalls
from services.programming.records import FOLDER, PortRecords


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
        super().__init__(
            "dra",
            settings,
            connection,
            folders=written,
            driver_calls=driver_calls,
            version=version,
        )
        self.settings = settings
        self.connection = connection
        self.metrics = DraMetrics(self.registry)
        self.records = PortRecords(settings.state_dir / FOLDER)
        self.plugin_holders = holder_source(settings, self.calls, forgets_gone=True)
        self.book = ClaimBook(settings.state_dir / CLAIMS)
        self.holders = ClaimHolders(self.book, self.plugin_holders)
        programs = settings.programming is Programming.ON_PREPARE
        self.state = NodeState(rules_of(settings, PluginMode.REGION, programs=programs))
        self.leftover_claims = self._leftover_claims(driver_calls)
        self.node = NodeService(
            settings,
            self.state,
            calls=self.calls,
            driver_calls=driver_calls,
            holders=self.holders,
            metrics=self.node_metrics,
            events=self.events,
            records=self.records,
            problems=self.leftover_claims.problems,
        )
        self.registry.register(self.node.collector)
        self.regions = self.node.region_programming(work_seconds=WORK_SECONDS)
        self.publisher = self._publisher()
        self._files = self._claim_files()
        self.preparation = self._preparation()
        self.upkeep = ClaimUpkeep(
            self.book, self._files, self.preparation, self.state, kept=self.files
        )
        self.leftover_resources = self._leftover_resources()
        self.driver = Driver(
            self.preparation,
            self.state,
            self.book,
            pool=settings.node_name,
            metrics=self.metrics,
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
            state=self.state,
            regions=self.regions,
            book=self.book,
            programmable=settings.programming is Programming.ON_PREPARE,
            writes=self.metrics.slice_writes,
        )

    def _claim_files(self) -> CdiClaimFiles:
        settings = self.settings
        return CdiClaimFiles(
            settings.cdi_dir,
            host_root=str(settings.host_root),
            calls=self.calls,
            state=self.state,
            root=settings.root,
        )

    def _leftover_resources(self) -> LeftoverResources:
        settings = self.settings
        return LeftoverResources(
            self.folder,
            settings.kubelet_dir,
            KubeletFiles(settings.kubelet_dir, settings.pod_logs_dir, self.calls),
            self.state,
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
                self.state,
                self.plugin_holders,
                settings.enforce_mappings,
                programs=settings.programming is Programming.ON_PREPARE,
            ),
            report=lambda claim, done: record_programming(
                self.events, claim.pod, str(claim.ref), done
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
            state=self.state,
        )
        return LeftoverClaims(self.book, use)

    async def end_leftover(self, entry: ClaimEntry) -> None:
        """Give back a claim that nobody knows and uses."""
        if await self.preparation.end_leftover(entry):
            self.metrics.unprepared.labels("leftover").inc()

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
            self.plugin_holders.follow_forever(self.state.rescan, self.leftover_resources.resend),
        )
