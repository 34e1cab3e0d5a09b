"""Who is starting, and what may it have? What has to be known before a container starts.

The kubelet names the devices; who is starting has to be found out (`services.containers.identity`
tells how). What that needs is fetched here: the kubelet's checkpoint and log folders from this
node's disk, the pod and its namespace's mappings from the API server. What was allowed is
remembered: while the API server is away, a container that was allowed to start may start again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import structlog

from services.containers import identity as startup
from services.containers.approval_file import ApprovalFile
from services.containers.approvals import Approval
from services.containers.identity import Candidate, Place, Wish
from services.containers.permission import check_functions, check_resource
from services.devices.model import PluginMode
from services.kubelet.checkpoint import pod_folders, read_checkpoint
from services.kubelet.values import Entry
from services.mappings.index import NamespaceMappings
from services.process.blocking import BlockingCalls
from services.process.errors import ClusterError, NotAllowed

FILES_SECONDS: Final = 10.0
"""For reading the kubelet's files."""

ASK_SECONDS: Final = 12.0
"""For the API server to tell all: of the 25 s of a start, the cards need the rest."""

log = structlog.get_logger(room="plugin")


class PodSource(Protocol):
    """Where pods and mappings come from."""

    async def get_pod(self, namespace: str, name: str) -> bytes | None:
        """A pod as JSON; None where there is none.

        Raises:
            ClusterError: Nobody can tell.
        """

    async def mappings(self, namespace: str) -> NamespaceMappings:
        """What a namespace maps now.

        Raises:
            ClusterError: Nobody can tell.
        """


@dataclass(frozen=True, slots=True)
class _Claim:
    """The devices of a resource that a container was given, and the node's mode."""

    resource: str
    ids: tuple[str, ...]
    mode: PluginMode


@dataclass(frozen=True, slots=True)
class _Who:
    """The containers that may be starting, each with its pod, and the pods that are alive."""

    found: tuple[tuple[Candidate, Place], ...]
    living: frozenset[str]


class Claims:
    """What containers that are about to start may have.

    Args:
        checkpoint: The kubelet's checkpoint.
        pod_logs_dir: Where the folders of pods' logs are.
        node: This node's name.
        pods: The API server; None if there is no access to it, then nothing is allowed.
        enforced: Whether namespaces' mappings are asked.
        approvals: What was allowed before.
        calls: Makes the calls that may hang.
    """

    def __init__(
        self,
        *,
        checkpoint: Path,
        pod_logs_dir: Path,
        node: str,
        pods: PodSource | None,
        enforced: bool,
        approvals: ApprovalFile,
        calls: BlockingCalls,
    ) -> None:
        self._checkpoint = checkpoint
        self._pod_logs_dir = pod_logs_dir
        self._node = node
        self._pods = pods
        self._enforced = enforced
        self._approvals = approvals
        self._calls = calls

    async def wish(
        self,
        resource: str,
        ids: Sequence[str],
        interface_id: str,
        *,
        only: Candidate | None = None,
    ) -> Wish:
        """What the container that was given regions wants in them.

        Args:
            resource: Full name of the regions' resource.
            ids: The regions that it was given.
            interface_id: Canonical interface id of that resource.
            only: Which container it is, where that is known.

        Raises:
            NotAllowed: It may not have that, or nobody can tell who it is.
            ClusterError: The API server is away, and it was not allowed before.
        """
        bodies: dict[Place, bytes | None] = {}  # candidates are mostly of one pod
        mapped: dict[str, NamespaceMappings] = {}

        async def ask(pods: PodSource, candidate: Candidate, place: Place) -> Wish:
            if place not in bodies:
                bodies[place] = await pods.get_pod(place.namespace, place.name)
            wish = startup.read_wish(
                bodies[place],
                *(place, candidate.container),
                node=self._node,
                interface_id=interface_id,
            )
            if self._enforced and place.namespace not in mapped:
                mapped[place.namespace] = await pods.mappings(place.namespace)
            if self._enforced:
                check_functions(wish, mapped[place.namespace], interface_id)
            return wish

        claim = _Claim(resource, tuple(ids), PluginMode.REGION)
        return startup.agree(await self._allowed(claim, ask, only))

    async def allocations(self, resource: str, ids: Sequence[str]) -> tuple[Entry, ...]:
        """What the containers that may be starting with devices were allocated.

        Args:
            resource: Full resource name.
            ids: The devices of it.

        Raises:
            NotAllowed: There is none.
            HardwareError: The kubelet's checkpoint can't be read.
        """
        return await self._calls.run(
            "kubelet files",
            lambda: startup.allocations(read_checkpoint(self._checkpoint), resource, ids),
            timeout=FILES_SECONDS,
            what=f"reading {self._checkpoint}",
        )

    async def permit(self, resource: str, ids: Sequence[str], mode: PluginMode) -> str:
        """Return who is starting, if its namespace maps what it was given.

        Args:
            resource: Full resource name.
            ids: The devices of it that it was given.
            mode: The node's, af or regiondevel.

        Raises:
            NotAllowed: Its namespace doesn't, or nobody can tell who it is.
            ClusterError: The API server is away, and it was not allowed before.
        """
        confirmed: set[Place] = set()  # a log folder's name alone is no proof of a namespace

        async def ask(pods: PodSource, candidate: Candidate, place: Place) -> Wish:
            if place not in confirmed:
                body = await pods.get_pod(place.namespace, place.name)
                startup.check_place(body, place, node=self._node)
                confirmed.add(place)
            who = startup.called(candidate.container, place)
            check_resource(who, resource, await pods.mappings(place.namespace), mode)
            return Wish(who, ())

        return (await self._allowed(_Claim(resource, tuple(ids), mode), ask, None))[0].who

    async def _allowed(self, claim: _Claim, ask: "_Ask", only: Candidate | None) -> list[Wish]:
        """What each container that may be starting wants and may have."""
        if self._pods is None:
            raise NotAllowed(
                "nobody can tell what this container may have, since this plugin has no access to"
                " the API server: run it with a service account that may get pods and list"
                " mappings, or set --kubeconfig or KUBECONFIG"
            )
        approved = await self._approvals.pods()  # before the checkpoint is read, see `add`
        who = await self._who(claim, only)
        try:
            wishes = await _in_time([partial(ask, self._pods, *each) for each in who.found])
        except ClusterError as error:
            return await self._approved(who, claim, error)
        devices = tuple(sorted(set(claim.ids)))
        approvals = [
            Approval(
                *(each.pod_uid, each.container, claim.resource, devices), wish.who, wish.functions
            )
            for (each, _), wish in zip(who.found, wishes, strict=True)
        ]
        await self._approvals.add(approvals, gone=approved - who.living)
        return wishes

    async def _approved(self, who: _Who, claim: _Claim, error: ClusterError) -> list[Wish]:
        wishes = []
        for candidate, place in who.found:
            name = startup.called(candidate.container, place)
            approval = await self._approvals.find(candidate, claim.resource, set(claim.ids))
            if approval is None:
                raise ClusterError(
                    f"{error}; {name} has not been allowed to start here before, so it has to wait"
                ) from error
            if not approval.is_for(claim.mode):
                raise ClusterError(
                    f"{error}; {name} was allowed to start here when this node had another mode."
                    f" What it may have in mode {claim.mode} only the API server can say, so it has"
                    " to wait"
                ) from error
            wishes.append(replace(approval.wish, pod=place))
        log.warning(
            "starts as it was allowed to before, since nobody can be asked",
            resource=claim.resource,
            devices=list(claim.ids),
            container=wishes[0].who,
            reason=str(error),
        )
        return wishes

    async def _who(self, claim: _Claim, only: Candidate | None) -> _Who:
        def read() -> _Who:
            entries = read_checkpoint(self._checkpoint)
            found = (only,) if only else startup.candidates(entries, claim.resource, claim.ids)
            folders = pod_folders(self._pod_logs_dir)
            placed = tuple((each, startup.find_place(folders, each.pod_uid)) for each in found)
            return _Who(placed, frozenset(entry.pod_uid for entry in entries))

        return await self._calls.run(
            "kubelet files", read, timeout=FILES_SECONDS, what=f"reading {self._checkpoint}"
        )


async def _in_time(asked: Sequence[Callable[[], Awaitable[Wish]]]) -> list[Wish]:
    """The answers, one after the other.

    Raises:
        ClusterError: They take too long.
    """
    limit = asyncio.timeout(ASK_SECONDS)
    try:
        async with limit:
            return [await each() for each in asked]
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise ClusterError(
            f"the API server didn't tell within {ASK_SECONDS:g} s what the container may have"
        ) from error


class _Ask(Protocol):
    async def __call__(self, pods: PodSource, candidate: Candidate, place: Place) -> Wish:
        """What a container wants, if it may have it."""
