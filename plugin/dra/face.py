"""The face of a node for DRA: publishes its devices, and prepares the claims that get them.

What was prepared stays prepared when the process ends: the next one finds it on the disk.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import grpc.aio

from plugin.dra.book import FOLDER as CLAIMS
from plugin.dra.book import ClaimBook, ClaimHolders
from plugin.dra.claim_files import CdiClaimFiles
from plugin.dra.claim_reports import ClaimReports
from plugin.dra.driver import DraMetrics, DraServer
from plugin.dra.leftover_claims import LeftoverClaims
from plugin.dra.leftover_resources import LeftoverResources
from plugin.dra.preparation import WORK_SECONDS, Preparation
from plugin.dra.publisher import SlicePublisher
from plugin.dra.upkeep import ClaimUpkeep
from plugin.node_process import NodeProcess
from plugin.settings import PluginSettings
from services.containers.holders import Holders
from services.containers.pod_source import ApiServerPods
from services.devices.dra import DRIVER
from services.kube.client import ClusterClient
from services.kubelet import dra_pb2 as pb
from services.kubelet.dra_pb2_grpc import DRAPluginStub
from services.kubelet.sockets import dial, dra_registration, dra_socket
from services.node.last_mode import ModeKeeper, enter_mode
from services.node.reading import holder_source, rules_of
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
        self._process = process
        self._records = HostState(settings.state_dir).records
        self.plugin_holders = holder_source(settings, process.calls, forgets_gone=True)
        self.book = book = ClaimBook(settings.state_dir / CLAIMS)
        self._holders = ClaimHolders(book, self.plugin_holders)
        metrics, source = DraMetrics(process.registry), ApiServerPods(connection)
        # All that regions offer: a claim says what it is for.
        rules = rules_of(settings, settings.dra_mode, programs=settings.programs)
        # Until the API server says otherwise, as for the claims that are here.
        self.state = state = NodeState(rules, divides=not book.has_only_replicas())
        self.leftover_claims = LeftoverClaims(
            settings, process, book, state, source, given_back=metrics.unprepared.labels("leftover")
        )
        self.node = NodeService(
            settings,
            state,
            calls=process.calls,
            driver_calls=process.driver_calls,
            holders=self._holders,
            metrics=process.node_metrics,
            events=process.events,
            problems=self.leftover_claims.problems,
        )
        process.registry.register(self.node.collector)
        regions = self.node.region_programming(work_seconds=WORK_SECONDS)
        self.publisher = SlicePublisher(
            connection, settings.node_name, state, regions, book, writes=metrics.slice_writes
        )
        files = CdiClaimFiles(settings, state, process.calls)
        self.preparation = Preparation(
            settings,
            book,
            regions,
            files,
            state,
            source=source,
            plugin=self.plugin_holders,
            events=process.events,
        )
        self.upkeep = ClaimUpkeep(book, files, self.preparation, state, kept=process.files)
        self.reports = ClaimReports(connection, book, state, pool=settings.node_name)
        self.leftover_resources = LeftoverResources(settings, process.folder, process.calls, state)
        self.driver = DraServer(
            settings,
            self.preparation,
            book,
            state,
            self.publisher,
            kept=process.files,
            metrics=metrics,
        )

    # As `plugin.node_process` says

    async def run(self) -> None:
        """Serve until cancelled; then the sockets end first, once running calls are finished."""
        process, folder = self._process, self._process.folder.path
        keeper = ModeKeeper(self.state, folder, process.calls, process.files)
        may_note = await enter_mode(
            self.state.ledger.rules.mode, folder, self._records, process.calls, keep_empty=True
        )
        async with asyncio.TaskGroup() as group:
            for name, loop in self._loops():
                group.create_task(loop, name=name)
            if may_note:
                group.create_task(keeper.keep_forever(), name="mode")
            await self.upkeep.checked.wait()  # it follows the first scan
            await self.driver.serve_forever()

    def _loops(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        yield from self.node.loops()
        yield from self.publisher.loops()
        yield "claims", self.upkeep.run_forever()
        yield "claim reports", self.reports.run_forever()
        yield "leftover claims", self.leftover_claims.run_forever(self.preparation)
        yield "leftover resources", self.leftover_resources.withdraw_forever()
        yield (
            "holders",
            self.plugin_holders.follow_forever(self.state.rescan, self.leftover_resources.resend),
        )

    async def unresponsive(self) -> list[str]:
        """Why the driver doesn't answer on its socket."""
        if not self.upkeep.checked.is_set():
            return []
        endpoint = self.driver.endpoint
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
        yield from filter(None, (self.driver.error, self.publisher.error))

    def status_lines(self) -> list[str]:
        """The number of devices."""
        return [count(len(self.state.ledger.by_name), "device")]

    async def holders(self) -> tuple[Holders, Sequence[str]]:
        """Who has devices, and what is wrong with claims and resources that are left."""
        snapshot = await self.plugin_holders.snapshot()
        problems = [*self.book.unreadable(), *self.leftover_resources.problems()]
        return self._holders.holders, [*snapshot.problems, *problems]
