"""Which container is starting, and what may it have: the facts that a start is decided on.

`services.containers.identity` finds the container, and `services.containers.wanted` what it wants.
This module reads what they need: the kubelet's checkpoint, the pods' log folders or PodResources,
and from the API server the pod and the mappings of its namespace. Starts that were allowed are
remembered: while the API server can't be reached, a container that was allowed to start before may
start again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import structlog

from services.containers.approval_file import ApprovalFile
from services.containers.approvals import StartApproval
from services.containers.identity import (
    ContainerIdentity,
    PodRef,
    allocations,
    candidates,
    display_name,
    pod_of_uid,
    pods_of_devices,
    pods_of_folders,
)
from services.containers.permission import check_functions, check_resource
from services.containers.wanted import WantedFunctions, check_pod, read_wanted, single_wanted
from services.devices.model import PluginMode
from services.kubelet.checkpoint import pod_folders, read_checkpoint
from services.kubelet.pod_resources import active_pods
from services.kubelet.sockets import checkpoint_file, pod_resources_socket
from services.kubelet.values import Entry
from services.mappings.index import NamespaceMappings
from services.process.blocking import BlockingCalls
from services.process.errors import ClusterError, KubeletError, NotAllowed

FILES_SECONDS: Final = 10.0
"""For reading the kubelet's files."""

POD_RESOURCES_SECONDS: Final = 4.0
"""For the kubelet to list the active pods."""

API_SECONDS: Final = 12.0
"""For all answers of the API server: of the 25 s of a start, the cards need the rest."""

log = structlog.get_logger(room="plugin")


class PodSource(Protocol):
    """Where pods and mappings come from: the API server."""

    async def get_pod(self, namespace: str, name: str) -> bytes | None:
        """A pod as JSON; None if there is none.

        Raises:
            ClusterError: The API server doesn't say.
        """

    async def mappings(self, namespace: str) -> NamespaceMappings:
        """What a namespace maps now.

        Raises:
            ClusterError: The API server doesn't say.
        """


@dataclass(frozen=True, slots=True)
class _Claim:
    """The devices of a resource that a container was given, and the node's mode."""

    resource: str
    ids: tuple[str, ...]
    mode: PluginMode


@dataclass(frozen=True, slots=True)
class _Starting:
    """The containers that may be starting, each with its pod, and the UIDs in the checkpoint."""

    containers: tuple[tuple[ContainerIdentity, PodRef], ...]
    living: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Files:
    """What the kubelet's files say."""

    entries: tuple[Entry, ...]
    found: tuple[ContainerIdentity, ...]
    pods: dict[str, PodRef]
    folder_error: str


class StartClaims:
    """Finds out which container is starting with devices, and what it may have.

    Args:
        kubelet_dir: Contains `device-plugins/` and `pod-resources/`.
        pod_logs_dir: The folder of the pods' log folders; need not exist.
        node: This node's name.
        pods: The API server; None if there is no access to it, then nothing is allowed.
        enforced: Whether the namespace must map what a container has.
        approvals: Starts that were allowed before.
        calls: Makes the calls that may hang.
    """

    def __init__(
        self,
        *,
        kubelet_dir: Path,
        pod_logs_dir: Path,
        node: str,
        pods: PodSource | None,
        enforced: bool,
        approvals: ApprovalFile,
        calls: BlockingCalls,
    ) -> None:
        self._checkpoint = checkpoint_file(kubelet_dir)
        self._pod_resources = pod_resources_socket(kubelet_dir)
        self._pod_logs_dir = pod_logs_dir
        self._node = node
        self._pods = pods
        self._enforced = enforced
        self._approvals = approvals
        self._calls = calls

    async def wanted(
        self,
        resource: str,
        ids: Sequence[str],
        interface_id: str,
        *,
        only: ContainerIdentity | None = None,
    ) -> WantedFunctions:
        """What the container that was given regions wants in them, if it may have that.

        Args:
            resource: Full name of the regions' resource.
            ids: The regions that it was given.
            interface_id: Canonical interface id of that resource.
            only: Which container it is, if that is known.

        Raises:
            NotAllowed: It may not have that, or the container is unknown.
            ClusterError: The API server can't be reached, and it was not allowed before.
        """
        bodies: dict[PodRef, bytes | None] = {}  # candidates are mostly of one pod
        mapped: dict[str, NamespaceMappings] = {}

        async def query(
            pods: PodSource, container: ContainerIdentity, pod: PodRef
        ) -> WantedFunctions:
            if pod not in bodies:
                bodies[pod] = await pods.get_pod(pod.namespace, pod.name)
            wanted = read_wanted(
                bodies[pod],
                pod,
                container.container,
                node=self._node,
                interface_id=interface_id,
            )
            if self._enforced and pod.namespace not in mapped:
                mapped[pod.namespace] = await pods.mappings(pod.namespace)
            if self._enforced:
                check_functions(wanted, mapped[pod.namespace], interface_id)
            return wanted

        claim = _Claim(resource, tuple(ids), PluginMode.REGION)
        return single_wanted(await self._allowed(claim, query, only))

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
            lambda: allocations(read_checkpoint(self._checkpoint), resource, ids),
            timeout=FILES_SECONDS,
            what=f"reading {self._checkpoint}",
        )

    async def authorize(self, resource: str, ids: Sequence[str], mode: PluginMode) -> str:
        """Name the container that is starting, if its namespace maps what it was given.

        Args:
            resource: Full resource name.
            ids: The devices of it that it was given.
            mode: The node's, af or regiondevel.

        Raises:
            NotAllowed: Its namespace doesn't, or the container is unknown.
            ClusterError: The API server can't be reached, and it was not allowed before.
        """
        confirmed: set[PodRef] = set()  # what this node says of a namespace is no proof

        async def query(
            pods: PodSource, container: ContainerIdentity, pod: PodRef
        ) -> WantedFunctions:
            if pod not in confirmed:
                body = await pods.get_pod(pod.namespace, pod.name)
                check_pod(body, pod, node=self._node)
                confirmed.add(pod)
            who = display_name(container.container, pod)
            check_resource(who, resource, await pods.mappings(pod.namespace), mode)
            return WantedFunctions(who, ())

        return (await self._allowed(_Claim(resource, tuple(ids), mode), query, None))[0].who

    async def _allowed(
        self, claim: _Claim, query: "_Query", only: ContainerIdentity | None
    ) -> list[WantedFunctions]:
        """What each container that may be starting wants and may have."""
        if self._pods is None:
            raise NotAllowed(
                "what this container may have is unknown, since this plugin has no access to the"
                " API server: run it with a service account that may get pods and list mappings,"
                " or set --kubeconfig or KUBECONFIG"
            )
        approved = await self._approvals.pods()  # before the checkpoint is read, see `add`
        starting = await self._starting(claim, only)
        try:
            wanted = await _in_time(
                [partial(query, self._pods, *each) for each in starting.containers]
            )
        except ClusterError as error:
            return await self._approved(starting, claim, error)
        devices = tuple(sorted(set(claim.ids)))
        approvals = [
            StartApproval(
                container.pod_uid,
                container.container,
                claim.resource,
                devices,
                each.who,
                each.functions,
            )
            for (container, _), each in zip(starting.containers, wanted, strict=True)
        ]
        await self._approvals.add(approvals, gone=approved - starting.living)
        return wanted

    async def _approved(
        self, starting: _Starting, claim: _Claim, error: ClusterError
    ) -> list[WantedFunctions]:
        """What each container was allowed before, while the API server can't be reached."""
        wanted = []
        for container, pod in starting.containers:
            name = display_name(container.container, pod)
            approval = await self._approvals.find(container, claim.resource, set(claim.ids))
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
            wanted.append(replace(approval.wanted, pod=pod))
        log.warning(
            "container starts as it was allowed to before: the API server can't be reached",
            resource=claim.resource,
            devices=list(claim.ids),
            container=wanted[0].who,
            reason=str(error),
        )
        return wanted

    async def _starting(self, claim: _Claim, only: ContainerIdentity | None) -> _Starting:
        files = await self._calls.run(
            "kubelet files",
            lambda: self._read_files(claim, only),
            timeout=FILES_SECONDS,
            what=f"reading {self._checkpoint}",
        )
        pods = files.pods
        if any(each.pod_uid not in pods for each in files.found):
            pods = await self._pods_of_devices(files) | pods
        placed = tuple((each, pod_of_uid(each.pod_uid, pods)) for each in files.found)
        return _Starting(placed, frozenset(entry.pod_uid for entry in files.entries))

    def _read_files(self, claim: _Claim, only: ContainerIdentity | None) -> _Files:
        entries = read_checkpoint(self._checkpoint)
        found = (only,) if only else candidates(entries, claim.resource, claim.ids)
        folders, problem = [], ""
        try:
            folders = pod_folders(self._pod_logs_dir)
        except KubeletError as error:
            problem = "" if isinstance(error.__cause__, FileNotFoundError) else f"; {error}"
        return _Files(entries, found, pods_of_folders(folders), problem)

    async def _pods_of_devices(self, files: _Files) -> dict[str, PodRef]:
        try:
            active = await active_pods(self._pod_resources, seconds=POD_RESOURCES_SECONDS)
        except KubeletError as error:
            raise KubeletError(
                f"the pod of the starting container is unknown: {error}{files.folder_error}"
            ) from error
        return pods_of_devices(files.entries, active)


async def _in_time(
    queries: Sequence[Callable[[], Awaitable[WantedFunctions]]],
) -> list[WantedFunctions]:
    """The answers, one after the other.

    Raises:
        ClusterError: They take too long.
    """
    limit = asyncio.timeout(API_SECONDS)
    try:
        async with limit:
            return [await query() for query in queries]
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise ClusterError(
            f"the API server didn't say within {API_SECONDS:g} s what the container may have"
        ) from error


class _Query(Protocol):
    async def __call__(
        self, pods: PodSource, container: ContainerIdentity, pod: PodRef
    ) -> WantedFunctions:
        """What a container wants, if it may have it."""
