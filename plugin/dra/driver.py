"""The calls of the kubelet: preparing claims, taking them back, and the health of devices."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

import grpc.aio
import structlog

from plugin.dra.book import ClaimBook, ClaimEntry
from plugin.dra.claim_files import GivenDevice
from plugin.dra.claims import ClaimRef
from plugin.dra.metrics import DraMetrics
from plugin.dra.preparation import Preparation
from services.devices.dra import DraDevice
from services.kubelet import dra_health_pb2 as health
from services.kubelet import dra_pb2 as pb
from services.kubelet.dra_health_pb2_grpc import (
    DRAResourceHealthServicer,
    add_DRAResourceHealthServicer_to_server,
)
from services.kubelet.dra_pb2_grpc import DRAPluginServicer, add_DRAPluginServicer_to_server
from services.node.state import NodeState
from services.node.table import GONE
from services.process.errors import AccelbindError, InvalidInput
from services.process.problem import Problem
from services.process.text import plain

HEALTH_SECONDS: Final = 10.0
"""Between two messages about health, unless it changes."""
HEALTH_TIMEOUT: Final = 30
"""Seconds without news after which the kubelet counts a device as unknown."""
MAX_ERROR: Final = 900
"""Characters of an error: it becomes an Event."""
MAX_HEALTH: Final = 1000
"""Bytes of a device's message; the kubelet cuts it at 1024."""

T = TypeVar("T")

log = structlog.get_logger(component="dra")


def problems_of(
    devices: Mapping[str, DraDevice], entries: Iterable[ClaimEntry]
) -> dict[str, tuple[Problem, ...]]:
    """Why each device that is here, or that a claim has, isn't healthy; empty if it is."""
    problems = {name: each.device.reasons for name, each in devices.items()}
    for entry in entries:
        for name, claims in entry.devices():
            if name not in devices:
                # Its device type may have another name now: the hardware is what counts.
                same = [
                    each for each in devices.values() if not each.device.claims.isdisjoint(claims)
                ]
                problems[name] = same[0].device.reasons if same else (_gone(name, entry.claim),)
    return problems


def _gone(name: str, claim: ClaimRef) -> Problem:
    # A kubelet that hears nothing of a device shows it as healthy for 30 s, then as unknown.
    return Problem(GONE, f"{claim} has {name}, and the node no longer has it")


class ClaimService(DRAPluginServicer, DRAResourceHealthServicer):
    """Serves the kubelet on the driver's socket; `pool` is the node's name."""

    def __init__(
        self,
        preparation: Preparation,
        state: NodeState,
        book: ClaimBook,
        *,
        pool: str,
        metrics: DraMetrics,
    ) -> None:
        self._preparation = preparation
        self._state = state
        self._book = book
        self._pool = pool
        self._metrics = metrics

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve on a server, also after another one was ended."""
        self._preparation.ends = False
        add_DRAPluginServicer_to_server(self, server)
        add_DRAResourceHealthServicer_to_server(self, server)

    def end(self) -> None:
        """End the streams, which would go on for ever, and calls that wait for a device."""
        self._preparation.ends = True
        self._state.steps.request()

    async def NodePrepareResources(  # noqa: N802 - the protocol's name
        self,
        request: pb.NodePrepareResourcesRequest,
        context: grpc.aio.ServicerContext[  # noqa: ARG002 - the protocol's
            pb.NodePrepareResourcesRequest, pb.NodePrepareResourcesResponse
        ],
    ) -> pb.NodePrepareResourcesResponse:
        """Make claims ready."""
        answer = pb.NodePrepareResourcesResponse()
        done = await _each(request.claims, self._prepare)
        for claim, (given, error) in zip(request.claims, done, strict=True):
            one = answer.claims[claim.uid]
            one.error = error
            for each in given or ():
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
        context: grpc.aio.ServicerContext[  # noqa: ARG002 - the protocol's
            pb.NodeUnprepareResourcesRequest, pb.NodeUnprepareResourcesResponse
        ],
    ) -> pb.NodeUnprepareResourcesResponse:
        """Take claims back."""
        answer = pb.NodeUnprepareResourcesResponse()
        done = await _each(request.claims, self._unprepare)
        for claim, (_, error) in zip(request.claims, done, strict=True):
            answer.claims[claim.uid].error = error
            self._metrics.unprepared.labels("failed" if error else "unprepared").inc()
        return answer

    async def NodeWatchResources(  # noqa: N802 - the protocol's name
        self,
        request: health.NodeWatchResourcesRequest,  # noqa: ARG002 - the protocol's
        context: grpc.aio.ServicerContext[  # noqa: ARG002 - the protocol's
            health.NodeWatchResourcesRequest, health.NodeWatchResourcesResponse
        ],
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
            except Exception as error:  # `_each` answers with it
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


async def _each(
    claims: Iterable[pb.Claim], work: Callable[[ClaimRef], Awaitable[T]]
) -> list[tuple[T | None, str]]:
    """Do work for claims at the same time; return the result of each, or its error."""
    # The kubelet refuses an answer that lacks one of its claims.
    refs = [ClaimRef(each.namespace, each.name, each.uid) for each in claims]
    results = await asyncio.gather(*map(work, refs), return_exceptions=True)
    return [
        (None, _text(each)) if isinstance(each, BaseException) else (each, "") for each in results
    ]


def _text(error: BaseException) -> str:
    if isinstance(error, AccelbindError):
        return plain(str(error), MAX_ERROR)
    log.error("internal error", exc_info=error)
    return f"internal error: {type(error).__name__}: {plain(str(error), 200)}"
