"""The driver as the kubelet sees it: two sockets, on which it registers and serves claims.

One socket is the driver's own, the other one is where the kubelet finds it. A kubelet that restarts
finds them again by itself; a socket that was deleted is made again.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import grpc.aio
import structlog
from prometheus_client import CollectorRegistry, Histogram

from plugin.dra.book import ClaimBook
from plugin.dra.claim_files import GivenDevice
from plugin.dra.claim_reports import MAX_HEALTH, problems_of
from plugin.dra.claims import ClaimRef
from plugin.dra.preparation import Preparation
from plugin.dra.publisher import SlicePublisher
from plugin.settings import PluginSettings
from services.devices.dra import DRIVER
from services.kubelet import dra_health_pb2 as health
from services.kubelet import dra_pb2 as pb
from services.kubelet import pluginregistration_pb2 as registration
from services.kubelet.dra_health_pb2_grpc import (
    DRAResourceHealthServicer,
    add_DRAResourceHealthServicer_to_server,
)
from services.kubelet.dra_pb2_grpc import DRAPluginServicer, add_DRAPluginServicer_to_server
from services.kubelet.pluginregistration_pb2_grpc import (
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from services.kubelet.sockets import (
    Identity,
    address,
    dra_registration,
    dra_socket,
    identify,
    listen,
)
from services.node.device_list import Context
from services.node.kept_files import Kept, KeptFiles
from services.node.metrics import new_counter
from services.node.state import NodeState
from services.process.errors import AccelbindError, InvalidInput, KubeletError
from services.process.files import MISSING, remove_any
from services.process.outage import Outage
from services.process.problem import Problem
from services.process.text import plain

VERSIONS: Final = ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth")
"""The kubelet uses the first one that it knows."""

CHECK_SECONDS: Final = 1.0
"""Between two checks that the sockets are there, and two attempts to make them."""

DRAIN_SECONDS: Final = 45.0
"""For calls that are running when the driver ends."""

HEALTH_SECONDS: Final = 10.0
"""Between two messages about health, unless it changes."""
HEALTH_TIMEOUT: Final = 30
"""Seconds without news after which the kubelet counts a device as unknown."""
MAX_ERROR: Final = 900
"""Characters of an error: it becomes an Event."""

_PREPARE_BUCKETS: Final = (0.01, 0.05, 0.25, 1.0, 5.0, 20.0, 40.0)

log = structlog.get_logger(component="dra")


class DraMetrics:
    """Counts and measurements of the driver; `services.node.metrics` has devices and cards."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.prepared = new_counter(
            registry,
            "claims_prepared",
            "Claims that the kubelet wanted prepared, by outcome (prepared, refused, failed).",
            ("outcome",),
            known=("prepared", "refused", "failed"),
        )
        self.prepare_seconds = Histogram(
            "accelbind_claim_prepare_seconds",
            "Seconds that preparing a claim takes, until the kubelet is answered.",
            buckets=_PREPARE_BUCKETS,
            registry=registry,
        )
        self.unprepared = new_counter(
            registry,
            "claims_unprepared",
            "Claims that were given back, by outcome (unprepared, failed; leftover: the kubelet had"
            " forgotten it, and nobody used it any more).",
            ("outcome",),
            known=("unprepared", "failed", "leftover"),
        )
        self.registrations = new_counter(
            registry,
            "driver_registrations",
            "Answers of the kubelet to the registration of the DRA driver, by outcome (ok,"
            " failed).",
            ("outcome",),
            known=("ok", "failed"),
        )
        self.slice_writes = new_counter(
            registry,
            "slice_writes",
            "Writes of ResourceSlices, by outcome (created, updated, deleted, failed).",
            ("outcome",),
            known=("created", "updated", "deleted", "failed"),
        )


class DraServer(RegistrationServicer, DRAPluginServicer, DRAResourceHealthServicer):
    """Serves a node's claims to its kubelet, whose `plugins_registry` may be missing for now.

    The publisher begins once the kubelet has accepted the driver.

    Raises:
        KubeletError: The path of the kubelet's folder is too long for sockets in it.
    """

    def __init__(
        self,
        settings: PluginSettings,
        preparation: Preparation,
        book: ClaimBook,
        state: NodeState,
        publisher: SlicePublisher,
        *,
        kept: KeptFiles,
        metrics: DraMetrics,
    ) -> None:
        self.endpoint = dra_socket(settings.kubelet_dir, DRIVER)
        self.socket = dra_registration(settings.kubelet_dir, DRIVER)
        self._hidden = self.socket.with_name(f".{self.socket.name}")
        self.is_registered = False
        """Whether the kubelet has accepted the driver since the sockets were made."""
        self._pool = settings.node_name
        self._preparation = preparation
        self._book = book
        self._state = state
        self._publisher = publisher
        self._kept = kept
        self._metrics = metrics
        self._outage = Outage(log, "the driver is not registered", "the driver is registered")
        # Both raise now what would otherwise be tried again for ever.
        address(self.endpoint)
        address(self._hidden)

    @property
    def error(self) -> str:
        """Why the driver is not registered; empty if it is."""
        return self._outage.reason or ("" if self.is_registered else "waiting for the kubelet")

    # The sockets

    async def serve_forever(self) -> None:
        """Serve until cancelled; then finish calls that are running, and remove the sockets."""
        while True:
            try:
                async with self._sockets() as files:
                    gone = await _until_gone(files)
                self._kept.restored(Kept.SOCKET, gone, MISSING)
            except KubeletError as error:
                self._outage.failed(str(error))
                await asyncio.sleep(CHECK_SECONDS)

    @asynccontextmanager
    async def _sockets(self) -> AsyncIterator[dict[Path, Identity | None]]:
        """The identities of both sockets, while a server serves all its services on each."""
        server = grpc.aio.server()
        self._preparation.ends = False
        add_DRAPluginServicer_to_server(self, server)
        add_DRAResourceHealthServicer_to_server(self, server)
        add_RegistrationServicer_to_server(self, server)
        self._make_folders()
        try:
            listen(server, self.endpoint)
            listen(server, self._hidden)
            await server.start()
            # The kubelet calls what appears in the folder within a second, and doesn't wait long
            # (`pkg/kubelet/pluginmanager`). It ignores names that start with a dot.
            self._hidden.replace(self.socket)
            files = {path: identify(path) for path in (self.endpoint, self.socket)}
            try:
                yield files
            finally:
                self.is_registered = False
                self._end_calls()
                await server.stop(DRAIN_SECONDS)
                # Not before: 30 s after its connection is gone, the kubelet deletes the driver's
                # slices, unless another process serves. gRPC removes what has the name that it has
                # bound, and that isn't this one.
                for path, identity in files.items():
                    if identify(path) == identity:
                        # An error here would take the place of the cancellation.
                        with contextlib.suppress(OSError):
                            path.unlink()
        except OSError as error:
            raise KubeletError(f"can't serve on {self.socket}: {error.strerror}") from error
        finally:
            await server.stop(0)

    def _make_folders(self) -> None:
        try:
            self.endpoint.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            # Of a driver that was killed: the node's lock is ours, so none serves there.
            for path in (self.endpoint, self.socket, self._hidden):
                remove_any(path)
        except OSError as error:
            raise KubeletError(f"{error.filename}: {error.strerror}") from error

    def _end_calls(self) -> None:
        """End streams, which would keep the server from stopping, and waits for a device."""
        self._preparation.ends = True
        self._state.steps.request()

    # The registration

    async def GetInfo(  # noqa: N802 - the protocol's name
        self,
        request: registration.InfoRequest,  # noqa: ARG002 - the protocol's
        context: Context,  # noqa: ARG002 - the protocol's
    ) -> registration.PluginInfo:
        """Which driver this is, and where it serves."""
        return registration.PluginInfo(
            type="DRAPlugin",
            name=DRIVER,
            endpoint=str(self.endpoint),
            supported_versions=VERSIONS,
        )

    async def NotifyRegistrationStatus(  # noqa: N802 - the protocol's name
        self,
        request: registration.RegistrationStatus,
        context: Context,  # noqa: ARG002 - the protocol's
    ) -> registration.RegistrationStatusResponse:
        """Whether the kubelet accepts the driver."""
        self.is_registered = request.plugin_registered
        error = "" if self.is_registered else request.error or "the kubelet gives no reason"
        self._outage.update(error)
        self._metrics.registrations.labels("failed" if error else "ok").inc()
        if not error:
            log.info("registered with the kubelet", driver=DRIVER)
            self._publisher.confirm()
        return registration.RegistrationStatusResponse()

    # Claims

    async def NodePrepareResources(  # noqa: N802 - the protocol's name
        self,
        request: pb.NodePrepareResourcesRequest,
        context: Context,  # noqa: ARG002 - the protocol's
    ) -> pb.NodePrepareResourcesResponse:
        """Make claims ready."""
        answer, claims = pb.NodePrepareResourcesResponse(), _refs(request.claims)
        done = await asyncio.gather(*map(self._prepare, claims), return_exceptions=True)
        for claim, given in zip(claims, done, strict=True):
            one = answer.claims[claim.uid]  # the kubelet refuses an answer that lacks a claim
            if isinstance(given, BaseException):
                one.error = _text(given)
                continue
            for each in given:
                one.devices.add(
                    request_names=[each.request],
                    pool_name=self._pool,
                    device_name=each.device,
                    cdi_device_ids=[each.edits.cdi] if each.edits.cdi else [],
                    share_id=each.share or None,
                )
        return answer

    async def NodeUnprepareResources(  # noqa: N802 - the protocol's name
        self,
        request: pb.NodeUnprepareResourcesRequest,
        context: Context,  # noqa: ARG002 - the protocol's
    ) -> pb.NodeUnprepareResourcesResponse:
        """Take claims back."""
        answer, claims = pb.NodeUnprepareResourcesResponse(), _refs(request.claims)
        done = await asyncio.gather(*map(self._unprepare, claims), return_exceptions=True)
        for claim, error in zip(claims, done, strict=True):
            answer.claims[claim.uid].error = _text(error) if error else ""
            self._metrics.unprepared.labels("failed" if error else "unprepared").inc()
        return answer

    async def NodeWatchResources(  # noqa: N802 - the protocol's name
        self,
        request: health.NodeWatchResourcesRequest,  # noqa: ARG002 - the protocol's
        context: Context,  # noqa: ARG002 - the protocol's
    ) -> AsyncIterator[health.NodeWatchResourcesResponse]:
        """The health of all devices that are here or in use, now and whenever it changes."""
        due, sent, sent_at = self._state.steps.follow(), None, 0.0
        while not self._preparation.ends:
            problems = problems_of(self._state.ledger.by_name, self._book.entries())
            left = sent_at + HEALTH_SECONDS - time.monotonic()
            if problems != sent or left <= 0:
                sent, sent_at, left = problems, time.monotonic(), HEALTH_SECONDS
                yield self._health(problems)
            await due.wait(left)

    def _health(
        self, devices: Mapping[str, tuple[Problem, ...]]
    ) -> health.NodeWatchResourcesResponse:
        answer, now = health.NodeWatchResourcesResponse(), int(time.time())
        for name, problems in devices.items():
            reasons = "; ".join(each.text for each in problems)
            answer.devices.add(
                device=health.DeviceIdentifier(pool_name=self._pool, device_name=name),
                health=health.UNHEALTHY if problems else health.HEALTHY,
                last_updated_time=now,
                health_check_timeout_seconds=HEALTH_TIMEOUT,
                message=reasons.encode()[:MAX_HEALTH].decode(errors="ignore"),
            )
        return answer

    async def _prepare(self, claim: ClaimRef) -> tuple[GivenDevice, ...]:
        with self._metrics.prepare_seconds.time():
            try:
                given = await self._preparation.prepare(claim)
            except Exception as error:  # the answer has it
                is_refused = isinstance(error, InvalidInput)
                self._metrics.prepared.labels("refused" if is_refused else "failed").inc()
                log.warning(
                    "claim not prepared", claim=str(claim), uid=claim.uid, reason=str(error)
                )
                raise
        self._metrics.prepared.labels("prepared").inc()
        return given

    async def _unprepare(self, claim: ClaimRef) -> None:
        try:
            await self._preparation.unprepare(claim)
        except AccelbindError as error:
            log.warning("claim not unprepared", claim=str(claim), uid=claim.uid, reason=str(error))
            raise


async def _until_gone(files: Mapping[Path, Identity | None]) -> Path:
    """Wait until a file is lost, and return its path."""
    while True:
        for path, identity in files.items():
            if identify(path) != identity:
                return path
        await asyncio.sleep(CHECK_SECONDS)


def _refs(claims: Iterable[pb.Claim]) -> list[ClaimRef]:
    return [ClaimRef(each.namespace, each.name, each.uid) for each in claims]


def _text(error: BaseException) -> str:
    if isinstance(error, AccelbindError):
        return plain(str(error), MAX_ERROR)
    log.error("internal error", exc_info=error)
    return f"internal error: {type(error).__name__}: {plain(str(error), 200)}"
