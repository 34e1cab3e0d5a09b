"""The last word before a container starts: may it have what it was given, and is that ready?

`services.containers.claims` finds out who is starting and what it may have. Then, by the node's
mode:

- `RegionGate`, mode region: its functions are seen to be in its regions, programmed if need be;
- `FunctionGate`, mode region where nothing is programmed: they are compared with what is there;
- `ClaimGate`, mode region where an OCI hook has the functions programmed: they are only allowed,
  and refused where the hook would not be called, or was not called for the last start;
- `MappingGate`, modes regiondevel and af: its namespace has to map what it was given.

All of it happens within `CHECK_SECONDS`. What is refused is a sentence for the pod's events.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import structlog

from services.containers import identity as startup
from services.containers.claims import Claims
from services.containers.hook_starts import HookedStart, HookStarts, check_nodes
from services.containers.identity import Candidate, Wish
from services.devices.model import Device, Inventory, PluginMode
from services.devices.resources import advertise
from services.kube.events import EventRecord, ObjectReference
from services.kubelet.values import Entry
from services.names import RegionName, decode
from services.node.event_reasons import EventReason
from services.process.errors import AccelbindError, HookMissing, InvalidName, TooSlow
from services.process.text import plain
from services.programming.records import UNKNOWN

if TYPE_CHECKING:  # what programs is for the nodes that do
    from services.node.regions import RegionWork

T = TypeVar("T")

CHECK_SECONDS: Final = 25.0
"""For the whole check; the kubelet gives up after 30 s and says nothing useful then."""

TELL_SECONDS: Final = 0.5
"""How long before that what is slow gives up by itself, since it can say what it is."""

MAX_MESSAGE: Final = 900
"""Characters of an Event's message."""

FILES_SECONDS: Final = 10.0
"""For reading the cards."""

log = structlog.get_logger(room="plugin")


class StartGate(Protocol):
    """Decides whether a container may start."""

    async def check(self, resource: str, ids: Sequence[str]) -> None:
        """Returns if it may.

        Args:
            resource: Full resource name.
            ids: The devices of it that the container was given.

        Raises:
            AccelbindError: It may not, with a sentence for the pod's events.
        """


class RegionGate:
    """Lets a container start once the functions that it may have are in its regions.

    Args:
        claims: What containers may have.
        work: Makes regions ready.
        tell: Takes what people who look at a pod should know.
    """

    def __init__(
        self, claims: Claims, work: "RegionWork", *, tell: Callable[[EventRecord], None]
    ) -> None:
        self._claims = claims
        self._work = work
        self._tell = tell

    async def check(
        self, resource: str, ids: Sequence[str], *, only: Candidate | None = None
    ) -> None:
        """As `StartGate` says; `only` is the container that starts, where that is known."""
        await _within(self._check(resource, ids, only), "making ready", ids)

    async def _check(self, resource: str, ids: Sequence[str], only: Candidate | None) -> None:
        interface_id = _interface_of(resource)
        until = asyncio.get_running_loop().time() + CHECK_SECONDS - TELL_SECONDS
        wish = await self._claims.wish(resource, ids, interface_id, only=only)
        try:
            done = await self._work.fulfil(wish, ids, interface_id, until=until)
        except AccelbindError as error:
            _tell_pod(self._tell, wish, EventReason.PROGRAMMING_FAILED, str(error))
            raise
        for each in done.programmed:
            text = f"AFU {each.function} programmed into {each.region} ({each.port})"
            _tell_pod(self._tell, wish, EventReason.PROGRAMMED, text)
        log.info(
            "container may start",
            resource=resource,
            devices=list(ids),
            container=wish.who,
            functions=list(wish.functions),
            programmed=len(done.programmed),
        )


@dataclass(frozen=True, slots=True)
class RegionsNow:
    """A node's regions at one moment.

    Args:
        resources: The regions by id, by full resource name, without memory of what they were.
        unknown: Nodes of the ports whose content is unknown.
    """

    resources: Mapping[str, Mapping[str, Device]]
    unknown: frozenset[str] = frozenset()


def regions_now(inventory: Inventory, recorded: Mapping[str, str]) -> RegionsNow:
    """A node's regions.

    Args:
        inventory: What a scan has just found.
        recorded: What is recorded to be in ports, by their names, as `Programmer.recorded` has it.
    """
    ports = (port for card in inventory.cards for port in card.ports)
    unknown = frozenset(port.node for port in ports if recorded.get(port.name) == UNKNOWN)
    return RegionsNow(advertise(inventory, PluginMode.REGION).resources, unknown)


class FunctionGate:
    """Lets a container start only on functions that are in its regions already.

    What a port shows doesn't count where its content is unknown: after mode regiondevel, and after
    programming that failed.

    Args:
        claims: What containers may have.
        node: This node's name.
        read_regions: Reads the cards and what is recorded of them, within some seconds.
    """

    def __init__(
        self, claims: Claims, *, node: str, read_regions: Callable[[float], Awaitable[RegionsNow]]
    ) -> None:
        self._claims = claims
        self._node = node
        self._read_regions = read_regions

    async def check(self, resource: str, ids: Sequence[str]) -> None:
        """As `StartGate` says."""
        await _within(self._check(resource, ids), "verifying the function of", ids)

    async def _check(self, resource: str, ids: Sequence[str]) -> None:
        interface_id = _interface_of(resource)
        wish = await self._claims.wish(resource, ids, interface_id)
        now = await self._read_regions(FILES_SECONDS)
        startup.verify(
            wish,
            ids,
            now.resources.get(resource, {}),
            node=self._node,
            interface_id=interface_id,
            unknown=now.unknown,
        )
        log.info(
            "function verified",
            resource=resource,
            devices=list(ids),
            container=wish.who,
            functions=list(wish.functions),
        )


class ClaimGate:
    """Lets a container start if it may have its functions and its hook will be called.

    Whether the functions are ready is checked when the OCI hook is called, after this. So the
    container must get its device nodes from the CDI file that brings the hook, that file must be
    there, and the hook must have been called for the container's last start.

    Args:
        claims: What containers may have.
        described: Raises `HookMissing` unless the CDI file has devices.
        starts: The starts that the hook has yet to confirm.
        missing: Called when a start is refused since the hook was not called, or would not be.
        tell: Takes what people who look at a pod should know.
    """

    def __init__(
        self,
        claims: Claims,
        *,
        described: Callable[[Sequence[str]], Awaitable[None]],
        starts: HookStarts,
        missing: Callable[[], None],
        tell: Callable[[EventRecord], None],
    ) -> None:
        self._claims = claims
        self._described = described
        self._starts = starts
        self._missing = missing
        self._tell = tell

    async def check(self, resource: str, ids: Sequence[str]) -> None:
        """As `StartGate` says."""
        await _within(self._check(resource, ids), "finding out who may have", ids)

    async def _check(self, resource: str, ids: Sequence[str]) -> None:
        interface_id = _interface_of(resource)
        allocated = await self._claims.allocations(resource, ids)
        containers = frozenset(Candidate(each.pod_uid, each.container) for each in allocated)
        start = HookedStart(containers, resource, frozenset(ids))
        try:
            wish = await self._claims.wish(resource, ids, interface_id)
            await self._check_hook(wish, start, allocated)
        except AccelbindError:
            self._starts.withdraw(start)
            raise
        self._starts.allow(start)

    async def _check_hook(self, wish: Wish, start: HookedStart, allocated: Sequence[Entry]) -> None:
        try:
            check_nodes(allocated)
            await self._described(sorted(start.devices))
            self._starts.check(start)
        except HookMissing as error:
            self._missing()
            _tell_pod(self._tell, wish, EventReason.HOOK_MISSING, str(error))
            raise


class MappingGate:
    """Lets a container start only if its namespace maps what it was given.

    Args:
        claims: What containers may have.
        mode: The node's: af or regiondevel.
    """

    def __init__(self, claims: Claims, mode: PluginMode) -> None:
        self._claims = claims
        self._mode = mode

    async def check(self, resource: str, ids: Sequence[str]) -> None:
        """As `StartGate` says."""
        who = await _within(
            self._claims.permit(resource, ids, self._mode), "finding out who may have", ids
        )
        log.info("mapped", resource=resource, devices=list(ids), container=who)


def _tell_pod(
    tell: Callable[[EventRecord], None], wish: Wish, reason: EventReason, message: str
) -> None:
    """Report something about a container as an Event of its pod, if that is known."""
    if wish.pod is not None:
        about = ObjectReference("Pod", wish.pod.name, wish.pod.namespace, wish.pod.uid)
        text = f"{wish.who}: {message}"
        tell(EventRecord(about, text, str(reason), plain(text, MAX_MESSAGE), reason.warning))


async def _within(check: Awaitable[T], what: str, ids: Sequence[str]) -> T:
    limit = asyncio.timeout(CHECK_SECONDS)
    try:
        async with limit:
            return await check
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TooSlow(
            f"{what} {', '.join(ids)} took longer than {CHECK_SECONDS:g} s; the kubelet will try"
            " again"
        ) from error


def _interface_of(resource: str) -> str:
    """Canonical interface id of a region's resource."""
    named = decode(resource)
    if not isinstance(named, RegionName):
        raise InvalidName(f"{resource} is no region")
    return named.interface_id
