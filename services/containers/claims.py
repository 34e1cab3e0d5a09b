"""Which container is starting, and what may it have: the facts that a start is decided on."""

from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from services.containers.approvals import Approvals, Start
from services.containers.identity import (
    ContainerIdentity,
    PodRef,
    allocations,
    candidates,
    display_name,
    pod_of,
    pods_of_folders,
)
from services.containers.permission import require_mapped_functions, require_mapped_resource
from services.containers.pod_source import ApiServerPods
from services.containers.wanted import (
    WantedFunctions,
    confirm_pod,
    interface_of,
    read_wanted,
    single_wanted,
)
from services.devices.model import PluginMode
from services.kube.client import is_outage
from services.kubelet.checkpoint import KubeletFiles
from services.kubelet.values import CheckpointEntry
from services.process.deadline import deadline
from services.process.errors import ClusterError, NotAllowed

API_SECONDS: Final = 12.0
"""For all answers of the API server: of the 25 s of a start, the cards need the rest."""

log = structlog.get_logger(component="node")


class StartClaims:
    """Finds out which container is starting with devices, and what it may have.

    Without access to the API server (`pods` is None) nothing is allowed. `enforced` says whether
    the namespace must map what a container has.
    """

    def __init__(
        self,
        mode: PluginMode,
        *,
        files: KubeletFiles,
        node: str,
        pods: ApiServerPods | None,
        enforced: bool,
        approvals: Approvals,
    ) -> None:
        self._mode = mode
        self._files = files
        self._node = node
        self._pods = pods
        self._enforced = enforced
        self._approvals = approvals

    async def allocations(self, resource: str, ids: Sequence[str]) -> tuple[CheckpointEntry, ...]:
        """What the containers that may be starting with devices were allocated."""
        return allocations(await self._files.entries(), resource, ids)

    async def wanted(
        self, resource: str, ids: Sequence[str], *, only: ContainerIdentity | None = None
    ) -> WantedFunctions:
        """What the container that was given devices wants in them, if it may have that.

        `only` is the container, if it is known already.

        Raises:
            NotAllowed: It may not have that, or the container is unknown.
            ClusterError: The API server can't be reached, and it was not allowed before.
        """
        if self._pods is None:
            raise NotAllowed(
                "what this container may have is unknown, since this plugin has no access to the"
                " API server: run it with a service account that may get pods and list mappings,"
                " or set --kubeconfig or KUBECONFIG"
            )
        containers = (only,) if only else candidates(await self._files.entries(), resource, ids)
        pod = pod_of(containers, pods_of_folders(await self._files.folders()))
        start = Start(self._mode, resource, frozenset(ids))
        slow = f"the API server didn't say within {API_SECONDS:g} s what the container may have"
        try:
            async with deadline(API_SECONDS, ClusterError(slow)):
                every = await self._query(self._pods, pod, containers, resource)
            wanted = single_wanted(list(every.values()))
        except (NotAllowed, ClusterError) as error:
            if isinstance(error, ClusterError) and is_outage(error):
                return self._approved(pod, containers, start, error)
            self._approvals.forget(containers, resource)
            raise
        self._approvals.add(start, every)
        return wanted

    async def _query(
        self,
        source: ApiServerPods,
        pod: PodRef,
        containers: Iterable[ContainerIdentity],
        resource: str,
    ) -> dict[ContainerIdentity, WantedFunctions]:
        # What this node says of a pod's namespace is no proof.
        starting = confirm_pod(await source.get_pod(pod.namespace, pod.name), pod, node=self._node)
        mappings = await source.mappings(pod.namespace) if self._enforced else None
        every: dict[ContainerIdentity, WantedFunctions] = {}
        for container in containers:
            name = container.container
            if self._mode is PluginMode.REGION:
                wanted = read_wanted(starting, pod, name, interface_id=interface_of(resource))
                if mappings is not None:
                    require_mapped_functions(wanted, mappings)
            else:
                wanted = WantedFunctions(display_name(name, pod), pod=pod)
                if mappings is not None:
                    require_mapped_resource(wanted.who, resource, mappings, self._mode)
            every[container] = wanted
        return every

    def _approved(
        self,
        pod: PodRef,
        containers: Iterable[ContainerIdentity],
        start: Start,
        error: ClusterError,
    ) -> WantedFunctions:
        """What the container was allowed before, while the API server is away."""
        every = []
        for container in containers:
            approved = self._approvals.find(container, start)
            if approved is None:
                raise ClusterError(
                    f"{error}; {display_name(container.container, pod)} has not been allowed to"
                    f" start here in mode {self._mode} since this plugin process began, so it has"
                    " to wait"
                ) from error
            every.append(approved)
        wanted = single_wanted(every)
        log.warning(
            "container starts as it was allowed to before: the API server is away",
            resource=start.resource,
            devices=sorted(start.devices),
            container=wanted.who,
            reason=str(error),
        )
        return wanted
