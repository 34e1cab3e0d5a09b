"""The checks before a container starts. `plugin.composition` chooses them by the node's mode.

`plugin.server` calls them in `PreStartContainer`. If one raises, the kubelet makes the text an
Event of the pod, and tries again every 10 to 20 s. `plugin.server.CODES` has the gRPC codes.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import structlog

from services.containers.claims import StartClaims
from services.containers.hook_call import require_no_plain_nodes
from services.containers.identity import ContainerIdentity, PodRef
from services.kube.events import MAX_MESSAGE, EventRecord, ObjectReference
from services.node.events import EventReason
from services.node.regions import Readiness, RegionProgramming
from services.process.deadline import deadline
from services.process.errors import AccelbindError, HookMissing, TooSlow
from services.process.text import plain

CHECK_SECONDS: Final = 25.0
"""For the whole check; the kubelet gives up after 30 s, with a message that explains nothing."""

log = structlog.get_logger(component="node")


StartPolicy: TypeAlias = Callable[[str, Sequence[str]], Awaitable[None]]
"""Called before a container starts, with a full resource name and the ids of its devices. Raises an
`AccelbindError` if it may not."""


class RegionStartPolicy:
    """Lets a container start once its functions are in its regions, for mode region.

    Without `programs`, they must be there already.
    """

    def __init__(
        self,
        claims: StartClaims,
        regions: RegionProgramming,
        *,
        programs: bool = True,
        record_event: Callable[[EventRecord], None],
    ) -> None:
        self._claims = claims
        self._make_ready = regions.prepare if programs else regions.verify
        self._programs = programs
        self._record_event = record_event

    async def authorize_start(
        self, resource: str, ids: Sequence[str], *, only: ContainerIdentity | None = None
    ) -> None:
        """As `StartPolicy` says; `only` is the container that starts, if that is known."""
        wanted = None
        try:
            async with deadline(CHECK_SECONDS, _too_slow("making ready", ids)):
                wanted = await self._claims.wanted(resource, ids, only=only)
                done = await self._make_ready(wanted, ids)
        except AccelbindError as error:
            if wanted is not None and self._programs:
                record_programming(self._record_event, wanted.pod, wanted.who, error)
            raise
        record_programming(self._record_event, wanted.pod, wanted.who, done)
        log.info(
            "container may start",
            resource=resource,
            devices=list(ids),
            container=wanted.who,
            functions=list(wanted.functions),
            programmed=len(done.programmed),
        )


async def require_hook(
    resource: str,
    ids: Sequence[str],
    *,
    claims: StartClaims,
    require_cdi: Callable[[Sequence[str]], Awaitable[None]],
    on_missing: Callable[[], None],
    record_event: Callable[[EventRecord], None],
) -> None:
    """Let a container start if it may have its functions and its OCI hook will be called.

    `on_missing` is called for a start that is refused because the hook would not be called.
    """
    # Whether the functions are ready is checked by `RegionStartPolicy` when the hook is called.
    async with deadline(CHECK_SECONDS, _too_slow("checking who may have", ids)):
        allocated = await claims.allocations(resource, ids)
        wanted = await claims.wanted(resource, ids)
        try:
            # Device nodes and hook come from one CDI file: without it there are none of both.
            require_no_plain_nodes(allocated)
            await require_cdi(sorted(set(ids)))
        except HookMissing as error:
            on_missing()
            text = f"{wanted.who}: {error}"
            record_on_pod(record_event, wanted.pod, EventReason.HOOK_MISSING, text)
            raise


async def require_mapped(resource: str, ids: Sequence[str], *, claims: StartClaims) -> None:
    """Let a container start only if its namespace maps what it was given, for other modes."""
    async with deadline(CHECK_SECONDS, _too_slow("checking who may have", ids)):
        wanted = await claims.wanted(resource, ids)
    log.info("mapped", resource=resource, devices=list(ids), container=wanted.who)


def record_programming(
    record_event: Callable[[EventRecord], None],
    pod: PodRef | None,
    who: str,
    done: Readiness | AccelbindError,
) -> None:
    """Report what was programmed for a pod as its Events, if it is known, or why that failed."""
    if isinstance(done, AccelbindError):
        events = [(EventReason.PROGRAMMING_FAILED, str(done))]
    else:
        texts = [
            f"AFU {at.function} programmed into {at.region} ({at.port})" for at in done.programmed
        ]
        events = [(EventReason.PROGRAMMED, text) for text in texts]
        events += [(EventReason.USER_CLOCK_SLOW, sentence) for sentence in done.slow_clocks]
    for reason, text in events:
        record_on_pod(record_event, pod, reason, f"{who}: {text}")


def record_on_pod(
    record_event: Callable[[EventRecord], None], pod: PodRef | None, reason: EventReason, text: str
) -> None:
    """Record an Event of a pod, if it is known."""
    if pod is not None:
        about = ObjectReference("Pod", pod.name, pod.namespace, pod.uid)
        message = plain(text, MAX_MESSAGE)
        record_event(EventRecord(about, text, str(reason), message, reason.warning))


def _too_slow(what: str, ids: Sequence[str]) -> TooSlow:
    return TooSlow(
        f"{what} {', '.join(ids)} took longer than {CHECK_SECONDS:g} s; the kubelet will try again"
    )
