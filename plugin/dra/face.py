"""The face of a node for DRA: publishes its devices, and prepares the claims that get them.

What was prepared stays prepared when the process ends: the next one finds it on the disk.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import grpc.aio

from plugin.dra.book import FOLDER as CLAIMS
from plugin.dra.book import ClaimBook, ClaimEntry, ClaimHolders
from plugin.dra.claim_files import METADATA, CdiClaimFiles
from plugin.dra.claim_reports import ClaimReports
from plugin.dra.claim_use import ClaimUse
from plugin.dra.driver import ClaimService
from plugin.dra.leftover_claims import LeftoverClaims
from plugin.dra.leftover_resources import LeftoverResources
from plugin.dra.metrics import DraMetrics
from plugin.dra.preparation import WORK_SECONDS, Preparation, Surroundings
from plugin.dra.publisher import SlicePublisher
from plugin.dra.registration import DraRegistration
from plugin.dra.upkeep import ClaimUpkeep
from plugin.node_process import NodeProcess
from plugin.settings import PluginSettings
from services.containers.holders import Holders
from services.containers.pod_source import ApiServerPods
from services.devices.dra import DRIVER
from services.kube.client import ClusterClient
from services.kubelet import dra_pb2 as pb
from services.kubelet.checkpoint import KubeletFiles
from services.kubelet.dra_pb2_grpc import DRAPluginStub
from services.kubelet.sockets import dial, dra_registration, dra_socket
from services.node.kept_files import Kept
from services.node.last_mode import ModeKeeper, enter_mode
from services.node.reading import holder_source, rules_of
from services.node.regions import record_programming
from services.node.service import NodeService
from services.node.state import NodeState
from services.process.text import count
from services.programming.host_state import HostState

CALL_SECONDS: Final = 2.0
"""For our socket to answer a probe."""

NOT_CHECKED: Final = "the claims of this node are not checked yet"


def written_folders(settings: PluginSettings) -> list[Path | None]:
    """The folders that a driver writes to, besides the state folder."""
    folder = settings.kubelet_dir
    sockets = dra_socket(folder, DRIVER), dra_registration(folder, DRIVER)
    return [settings.cdi_dir, *(each.parent for each in sockets)]


class DraDriver:
    """Serves a node's devices to DRA.

    Raises:
        KubeletError: The path of the kubelet's folder is too long for sockets in it.
    """

    def __init__(
        self, settings: PluginSettings, process: NodeProcess, connection: ClusterClient
    ) -> None:
        self.metrics = DraMetrics(process.registry)
        self._settings = settings
        self._process = process
        self._connection = connection
        self.plugin_holders = holder_source(settings, process.calls, forgets_gone=True)
        self.book = ClaimBook(settings.state_dir / CLAIMS)
        self._holders = ClaimHolders(self.book, self.plugin_holders)
        # All that regions offer: a claim says what it is for.
        rules = rules_of(settings, settings.dra_mode, programs=settings.programs)
        # Until the API server says otherwise, as for the claims that are here.
        self.state = NodeState(rules, divides=not self.book.has_only_replicas())
        self.leftover_claims = self._leftover_claims()
        self.node = NodeService(
            settings,
            self.state,
            calls=process.calls,
            driver_calls=process.driver_calls,
            holders=self._holders,
            metrics=process.node_metrics,
            events=process.events,
            problems=self.leftover_claims.problems,
        )
        process.registry.register(self.node.collector)
        self.regions = self.node.region_programming(work_seconds=WORK_SECONDS)
        self.publisher = self._publisher()
        self._files = CdiClaimFiles(
            settings.claims_dir,
            settings.state_dir / METADATA,
            pool=settings.node_name,
            host_root=str(settings.host_root),
            calls=process.calls,
            state=self.state,
            root=settings.root,
        )
        self.preparation = self._preparation()
        self.upkeep = ClaimUpkeep(
            self.book, self._files, self.preparation, self.state, kept=process.files
        )
        self.reports = ClaimReports(connection, self.book, self.state, pool=settings.node_name)
        self.leftover_resources = LeftoverResources(
            process.folder,
            settings.kubelet_dir,
            KubeletFiles(settings.kubelet_dir, settings.pod_logs_dir, process.calls),
            self.state,
        )
        self.driver = ClaimService(
            self.preparation,
            self.state,
            self.book,
            pool=settings.node_name,
            metrics=self.metrics,
        )
        self.registration = DraRegistration(
            settings.kubelet_dir,
            self.driver,
            on_answer=self._answered,
            on_lost=lambda path: process.files.restored(Kept.SOCKET, path, "it is missing"),
        )

    def _publisher(self) -> SlicePublisher:
        return SlicePublisher(
            self._connection,
            self._settings.node_name,
            state=self.state,
            regions=self.regions,
            book=self.book,
            writes=self.metrics.slice_writes,
        )

    def _preparation(self) -> Preparation:
        settings, events = self._settings, self._process.events
        return Preparation(
            self.book,
            self.regions,
            self._files,
            Surroundings(
                settings.node_name,
                ApiServerPods(self._connection),
                self.state,
                self.plugin_holders,
                settings.enforce_mappings,
                programs=settings.programs,
            ),
            report=lambda claim, done: record_programming(events, claim.pod, str(claim.ref), done),
        )

    def _leftover_claims(self) -> LeftoverClaims:
        settings = self._settings
        use = ClaimUse(
            settings.kubelet_dir,
            settings.root,
            settings.node_name,
            calls=self._process.calls,
            driver_calls=self._process.driver_calls,
            source=ApiServerPods(self._connection),
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

    # As `plugin.node_process` says

    async def run(self) -> None:
        """Serve until cancelled; then the sockets end first, once running calls are finished."""
        process, folder = self._process, self._process.folder.path
        keeper = ModeKeeper(self.state, folder, process.calls, process.files)
        records = HostState(self._settings.state_dir).records
        may_note = await enter_mode(
            self.state.ledger.rules.mode, folder, records, process.calls, keep_empty=True
        )
        async with asyncio.TaskGroup() as group:
            for name, loop in self._loops():
                group.create_task(loop, name=name)
            if may_note:
                group.create_task(keeper.keep_forever(), name="mode")
            await self.upkeep.checked.wait()  # it follows the first scan
            await self.registration.serve_forever()

    def _loops(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        yield from self.node.loops()
        yield from self.publisher.loops()
        yield "claims", self.upkeep.run_forever()
        yield "claim reports", self.reports.run_forever()
        yield "leftover claims", self.leftover_claims.run_forever(self.end_leftover)
        yield "leftover resources", self.leftover_resources.withdraw_forever()
        yield (
            "holders",
            self.plugin_holders.follow_forever(self.state.rescan, self.leftover_resources.resend),
        )

    async def deaf(self) -> list[str]:
        """Why the driver doesn't answer on its socket."""
        if not self.upkeep.checked.is_set():
            return []
        endpoint = self.registration.endpoint
        async with dial(endpoint) as channel:
            try:
                # Without claims it costs nothing, and goes the way of all calls.
                await DRAPluginStub(channel).NodePrepareResources(
                    pb.NodePrepareResourcesRequest(), timeout=CALL_SECONDS
                )
            except grpc.aio.AioRpcError as error:
                return [f"the driver doesn't answer on {endpoint}: {error.code().name}"]
        return []

    def unready(self) -> Iterator[str]:
        """Why the driver isn't registered, or its slices aren't as they should be."""
        if not self.upkeep.checked.is_set():
            yield NOT_CHECKED
        yield from filter(None, (self.registration.error, self.publisher.error))

    def told(self) -> list[str]:
        """The number of devices."""
        return [count(len(self.state.ledger.by_name), "device")]

    async def holders(self) -> tuple[Holders, Sequence[str]]:
        """Who has devices, and what is wrong with claims and resources that are left."""
        snapshot = await self.plugin_holders.snapshot()
        problems = [*self.book.unreadable(), *self.leftover_resources.problems()]
        return self._holders.holders, [*snapshot.problems, *problems]
