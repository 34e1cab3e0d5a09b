"""Decides before a container starts, in the kubelet's `PreStartContainer` or when a hook calls.

`authorize_start` is all of it. If it raises, the kubelet makes the text an Event of the pod, and
tries again every 10 to 20 s. `plugin.device_plugin.server.CODES` has the gRPC codes.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog

from plugin.settings import PluginSettings
from services.containers.holders import (
    FPGA_RESOURCES,
    ContainerIdentity,
    PodRef,
    allocations,
    candidates,
    display_name,
    pod_of,
    pods_of_folders,
)
from services.containers.hook_call import require_no_plain_nodes
from services.containers.permission import (
    Approvals,
    Enforce,
    Start,
    is_enforced,
    require_mapped_functions,
    require_mapped_resource,
)
from services.containers.pod_source import ApiServerPods
from services.containers.wanted import (
    WantedFunctions,
    confirm_pod,
    interface_of,
    read_wanted,
    single_wanted,
)
from services.devices.model import Device, PluginMode
from services.kube.client import is_outage
from services.kube.events import EventRecorder
from services.kubelet.checkpoint import KubeletFiles
from services.kubelet.values import CheckpointEntry
from services.names import FUNCTION_PREFIX, REGION_PREFIX, FunctionName, decode
from services.node.cdi_publisher import CdiPublisher
from services.node.events import EventReason
from services.node.node_check import require_own_nodes
from services.node.regions import RegionProgramming, record_programming
from services.node.state import NodeState
from services.process.errors import (
    AccelbindError,
    ClusterError,
    HardwareError,
    HookMissing,
    InvalidName,
    KubeletError,
    NotAllowed,
    TooSlow,
)
from services.process.outage import Outage
from services.process.text import listing
from services.process.waits import deadline

CHECK_SECONDS: Final = 25.0
"""For the whole check; the kubelet gives up after 30 s, with a message that explains nothing."""

API_SECONDS: Final = 12.0
"""For all answers of the API server: the cards need the rest."""

log = structlog.get_logger(component="plugin")


class Starts:
    """Decides about starts in one mode of the node.

    Without access to the API server (`pods` is None) no start is allowed that needs it. `cdi` has
    the file with the OCI hook. `on_hook_missing` is called for a start that is refused because the
    hook would not be called.
    """

    def __init__(
        self,
        mode: PluginMode,
        settings: PluginSettings,
        *,
        state: NodeState,
        files: KubeletFiles,
        pods: ApiServerPods | None,
        regions: RegionProgramming,
        cdi: CdiPublisher | None,
        events: EventRecorder,
        on_hook_missing: Callable[[], None],
    ) -> None:
        enforce = settings.enforce_mappings
        self._is_hooked = settings.is_hooked(mode)
        self._chooses_functions = mode.programs
        self._programs = settings.programs
        # If no API server is configured, no mapping can be read: `auto` doesn't ask for it then.
        self._needs_mapping = is_enforced(enforce, mode) and not (
            enforce is Enforce.AUTO and pods is None
        )
        self._mode = mode
        self._node = settings.node_name
        self._host_root = str(settings.host_root)
        self._state = state
        self._files = files
        self._pods = pods
        self._regions = regions
        self._cdi = cdi
        self._recorder = events
        self._on_hook_missing = on_hook_missing
        self._approvals = Approvals()
        self._unchecked = Outage(
            log,
            "containers start without a check of their device nodes",
            "device nodes are checked again before containers start",
        )

    def decides(self, resource: str) -> bool:
        """Whether the kubelet has to ask before it starts a container with devices."""
        return self._has_nodes_to_check(resource) or self._has_rights_to_check(resource)

    def is_of_mode(self, resource: str) -> bool:
        """Whether FPGAs can have a resource in the node's mode, also if none has it now."""
        if self._mode.has_regions:
            return resource.startswith(REGION_PREFIX)
        return self._mode.names_functions and resource.startswith(FUNCTION_PREFIX)

    def _has_nodes_to_check(self, resource: str) -> bool:
        return not resource.startswith(FPGA_RESOURCES) or self._mode.has_cards

    def _has_rights_to_check(self, resource: str) -> bool:
        # Mode region always: a container names its function, but is not trusted with it.
        return resource.startswith(FPGA_RESOURCES) and (
            self._chooses_functions or self._needs_mapping
        )

    async def authorize_start(
        self, resource: str, ids: Sequence[str], *, hooked: ContainerIdentity | None = None
    ) -> None:
        """Let a container start that was allocated devices of a resource, or raise.

        `hooked` is the container for which the OCI hook calls; the kubelet doesn't say which it is.

        Raises:
            AccelbindError: It may not start, or not now.
        """
        wanted: WantedFunctions | None = None
        is_final = hooked is not None or not self._is_hooked
        try:
            async with deadline(CHECK_SECONDS, _too_slow(ids)):
                self._check_functions(resource, ids)
                devices = self._state.ledger.offer.resources.get(resource, {})
                if self._has_nodes_to_check(resource):
                    await self._check_nodes(resource, ids, devices)
                if not self._has_rights_to_check(resource):
                    return
                wanted = await self._wanted(resource, ids, hooked)
                if not is_final:
                    await self._check_hook(resource, ids)
                elif self._chooses_functions:
                    await self._make_ready(wanted, ids)
        except HookMissing as error:
            self._on_hook_missing()
            if wanted is not None and wanted.pod is not None:
                text = f"{wanted.who}: {error}"
                self._on_pod(wanted.pod, EventReason.HOOK_MISSING, text)
            raise
        except AccelbindError as error:
            if wanted is not None and is_final and self._chooses_functions and self._programs:
                record_programming(self._recorder, wanted.pod, wanted.who, error)
            raise
        log.info(
            "container may start",
            resource=resource,
            devices=list(ids),
            container=wanted.who,
            functions=list(wanted.functions),
        )

    # 1. Its devices still have the function of their resource, and their nodes

    def _check_functions(self, resource: str, ids: Sequence[str]) -> None:
        # The port with this name may be another card's, since cards came back in another order, or
        # an administrator has programmed it by force. The container must not compute with that.
        function = _function_of(resource) if self._mode.names_functions else None
        if function is None:
            return
        for other, devices in self._state.ledger.offer.resources.items():
            moved = [each for each in ids if each in devices]
            if moved and _function_of(other) not in (None, function):
                raise NotAllowed(
                    f"{listing(moved, most=8)} was allocated as {resource} and is {other} now:"
                    " another function is in it; delete the pod; a new one gets what it requests"
                )

    async def _check_nodes(
        self, resource: str, ids: Sequence[str], devices: Mapping[str, Device]
    ) -> None:
        try:
            allocated = allocations(await self._files.entries(), resource, ids)
        except (KubeletError, HardwareError, NotAllowed) as error:
            self._unchecked.failed(str(error))  # and it starts
            return
        unknown = any(each.nodes is None for each in allocated)
        self._unchecked.update("an answer in the checkpoint can't be decoded" if unknown else "")
        for entry in allocated:
            try:
                require_own_nodes(entry, devices, self._others(entry), self._host_root)
            except NotAllowed as error:
                pod = await self._pod_with(entry.pod_uid)
                if pod is not None:
                    self._on_pod(pod, EventReason.DEVICE_NODE_CHANGED, str(error))
                raise

    def _others(self, entry: CheckpointEntry) -> list[Device] | None:
        """The devices that may have nodes of FPGAs that can't be read; None for other devices."""
        if not entry.resource.startswith(FPGA_RESOURCES):
            return None
        return [
            device
            for resource, devices in self._state.ledger.offer.resources.items()
            for device in devices.values()
            if resource != entry.resource or device.id not in entry.device_ids
        ]

    def _on_pod(self, pod: PodRef, reason: EventReason, text: str) -> None:
        self._recorder.record_on_pod(pod, reason, text, warning=reason.warning)

    async def _pod_with(self, uid: str) -> PodRef | None:
        try:
            return pods_of_folders(await self._files.folders()).get(uid)
        except (KubeletError, HardwareError):
            return None

    # 2. Which container it is, what it wants, and whether its namespace maps that

    async def _wanted(
        self, resource: str, ids: Sequence[str], hooked: ContainerIdentity | None
    ) -> WantedFunctions:
        if self._pods is None:
            raise NotAllowed(
                "what this container may have is unknown, since this plugin has no access to the"
                " API server: run it with a service account that may get pods and list mappings,"
                " or set --api-server"
            )
        containers = (hooked,) if hooked else candidates(await self._files.entries(), resource, ids)
        pod = pod_of(containers, pods_of_folders(await self._files.folders()))
        start = Start(resource, frozenset(ids))
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
        mappings = await source.mappings(pod.namespace) if self._needs_mapping else None
        every: dict[ContainerIdentity, WantedFunctions] = {}
        for container in containers:
            name = container.container
            if self._chooses_functions:
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
        """The start that was approved before, while the API server is away."""
        every = []
        for container in containers:
            approved = self._approvals.find(container, start)
            if approved is None:
                raise ClusterError(
                    f"{error}; {display_name(container.container, pod)} has not been allowed to"
                    " start here since this plugin process began, so it has to wait"
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

    # 3. Its functions are in its regions, or will be once the OCI hook is called

    async def _check_hook(self, resource: str, ids: Sequence[str]) -> None:
        # Device nodes and hook come from one CDI file: without it there are none of both.
        require_no_plain_nodes(allocations(await self._files.entries(), resource, ids))
        if self._cdi is not None:
            await self._cdi.require(sorted(set(ids)))

    async def _make_ready(self, wanted: WantedFunctions, ids: Sequence[str]) -> None:
        make_ready = self._regions.prepare if self._programs else self._regions.verify
        done = await make_ready(wanted, ids)
        record_programming(self._recorder, wanted.pod, wanted.who, done)


def _function_of(resource: str) -> FunctionName | None:
    """The function that a resource names; None if it names none, or as suites of earlier times."""
    with contextlib.suppress(InvalidName):
        named = decode(resource)
        return named if isinstance(named, FunctionName) else None
    return None


def _too_slow(ids: Sequence[str]) -> TooSlow:
    return TooSlow(
        f"making ready {', '.join(ids)} took longer than {CHECK_SECONDS:g} s; the kubelet will try"
        " again"
    )
