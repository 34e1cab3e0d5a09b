"""What a plugin consists of, composed top to bottom: what outlives a mode, and what serves in one.

`ProcessParts` is composed once. `ModeParts` is composed for each mode of the node, and nothing of
it is handed to the next one. `plugin.process` says when.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from plugin.hook_server import HookServer
from plugin.metrics import ModeCollector, PluginMetrics
from plugin.node_events import PluginEvents
from plugin.node_mode import NodeMode
from plugin.server import ResourceServer
from plugin.settings import PluginSettings, Programming
from services.containers.approvals import Approvals
from services.containers.claims import StartClaims
from services.containers.holders import FPGA_RESOURCES
from services.containers.permission import Enforce, is_enforced
from services.containers.pod_source import ApiServerPods
from services.devices.cdi import DEVICE_KIND, KIND, CdiHook
from services.devices.model import Device, PluginMode
from services.devices.vfio import has_groups
from services.kube.connection import ApiConnection
from services.kubelet.checkpoint import KubeletFiles
from services.kubelet.sockets import plugins_folder
from services.node.cdi_publisher import CdiPublisher
from services.node.counted import CountedResources
from services.node.kept_files import Kept, KeptFiles
from services.node.kubelet_folder import KubeletFolder
from services.node.last_mode import ModeKeeper, enter_mode
from services.node.node_check import NodesStartPolicy
from services.node.process_parts import NodeProcess
from services.node.reading import holder_source, rules_of
from services.node.registration import Registration
from services.node.resource_set import ResourceSet
from services.node.service import NodeService
from services.node.start_gate import (
    RegionStartPolicy,
    StartPolicy,
    require_hook,
    require_mapped,
)
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.programming.ioctls import KERNEL, DriverCalls
from services.programming.records import FOLDER, PortRecords

HOOK_SOCKET: Final = "hook.sock"
"""The socket for the OCI hook, in `--state-dir`."""


class ProcessParts(NodeProcess):
    """What outlives a mode; an empty version is looked up.

    Raises:
        KubeletError: The path of the kubelet's folder is too long for sockets in it.
    """

    def __init__(
        self,
        settings: PluginSettings,
        connection: ApiConnection | None = None,
        *,
        driver_calls: DriverCalls = KERNEL,
        version: str = "",
    ) -> None:
        super().__init__("plugin", settings, connection, version, folders=[settings.cdi_dir])
        self.settings = settings
        self.connection = connection
        self.driver_calls = driver_calls
        self.metrics = PluginMetrics(self.registry)
        self.plugin_events = PluginEvents(self.events)
        self.mode = NodeMode(settings.mode, self.events)
        self.folder = KubeletFolder(plugins_folder(settings.kubelet_dir))
        self.counted = CountedResources(self.folder.socket)
        self.pods = ApiServerPods(connection) if connection else None
        self.approvals = Approvals()


class ModeParts:
    """What serves in one mode; registrations run in `group`."""

    def __init__(self, mode: PluginMode, process: ProcessParts, group: asyncio.TaskGroup) -> None:
        settings, calls = process.settings, process.calls
        self.mode = mode
        self._process = process
        self.is_hooked = is_hooked(settings, mode)
        self._records = PortRecords(settings.state_dir / FOLDER)
        self._files = KubeletFiles(settings.kubelet_dir, settings.pod_logs_dir, calls)
        self.holders = holder_source(settings, calls)
        self.resources = ResourceSet(
            self._registration, group, process.counted, on_end=self._forget
        )
        programs = mode is PluginMode.REGION and settings.programming is not Programming.NONE
        self.node = NodeService(
            settings,
            NodeState(rules_of(settings, mode, settings.units, programs=programs)),
            calls=calls,
            driver_calls=process.driver_calls,
            holders=self.holders,
            metrics=process.node_metrics,
            events=process.events,
            records=self._records,
        )
        self.cdi = _cdi_publishers(settings, self.node.state, calls, process.files)
        self._mode_keeper = ModeKeeper(self.node.state, process.folder.path, calls, process.files)
        self._policies = self._start_policies()
        self._nodes_policy = NodesStartPolicy(
            self.node.state,
            host_root=str(settings.host_root),
            files=self._files,
            record_event=process.record_event,
        )
        self.collectors = (
            ModeCollector(process.mode),
            self.node.collector,
        )
        """What a scrape shows of the node."""

    async def run(self) -> None:
        """Enter the mode, then serve in it until cancelled; registrations go on."""
        process = self._process
        folder = process.folder.path
        may_note = await enter_mode(self.mode, folder, self._records, process.calls)
        for collector in self.collectors:
            process.registry.register(collector)
        try:
            async with asyncio.TaskGroup() as group:
                for name, loop in self._loops():
                    group.create_task(loop, name=name)
                if may_note:
                    group.create_task(self._mode_keeper.keep_forever(), name="mode")
        finally:
            for collector in self.collectors:
                process.registry.unregister(collector)

    def _loops(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        yield "resources", self.resources.offer_forever(self.node.state)
        yield from self.node.loops()
        yield (
            "holders",
            self.holders.follow_forever(self.node.state.rescan, self.resources.resend),
        )
        for kind, publisher in self.cdi.items():
            yield f"cdi {kind}", publisher.write_forever()
        if self.is_hooked:
            yield "hook", self._hook_server().serve()

    # What the kubelet calls

    def _registration(self, resource: str, devices: Mapping[str, Device]) -> Registration:
        return Registration(
            resource,
            devices,
            create_server=partial(self._server, resource),
            folder=self._process.folder,
            is_counted=lambda: resource in self._process.counted.resources(),
            on_attempt=partial(self._attempted, resource),
            on_lost=lambda path: self._process.files.restored(Kept.SOCKET, path, "it is missing"),
        )

    def _attempted(self, resource: str, error: str) -> None:
        outcome = "failed" if error else "ok"
        self._process.metrics.registrations.labels(resource, outcome).inc()
        self._process.plugin_events.registered(resource, error)

    def _server(self, resource: str, devices: Mapping[str, Device], path: Path) -> ResourceServer:
        settings, is_fpga = self._process.settings, resource.startswith(FPGA_RESOURCES)
        policies = list(self._policies) if is_fpga else []
        if not is_fpga or has_groups(devices.values()):  # a group may have another number by now
            policies.append(self._nodes_policy.authorize_start)
        return ResourceServer(
            resource,
            devices,
            path,
            device_root=str(settings.host_root),
            policies=policies,
            root=settings.root,
            metrics=self._process.metrics,
            counted=self._process.counted,
            cdi=self._named_by_cdi,
            hooked=self.is_hooked and is_fpga,
        )

    def _forget(self, resource: str) -> None:
        self._process.metrics.forget(resource)
        self._process.plugin_events.forget(resource)

    def _named_by_cdi(self) -> frozenset[str]:
        if not self._process.settings.cdi:
            return frozenset()
        return frozenset().union(*(each.published for each in self.cdi.values()))

    # What is checked before a container starts

    def _start_policies(self) -> list[StartPolicy]:
        """The checks before a start with FPGAs; none if the kubelet need not ask.

        Mode region always has one: a container names its function, but is not trusted with it.
        Modes regiondevel and af have one if mappings are enforced. `--enforce-mappings=auto`
        doesn't enforce them if no API server is configured, since then no mapping can be read.
        """
        programming = self._process.settings.programming
        if self.mode is not PluginMode.REGION:
            return [partial(require_mapped, claims=self._claims())] if self._is_enforced() else []
        if programming is not Programming.OCI_HOOK:
            return [self._region_policy().authorize_start]
        hooked = partial(
            require_hook,
            claims=self._claims(),
            require_cdi=self.cdi[KIND].require,
            on_missing=self._process.metrics.hook_calls.labels("missing").inc,
            record_event=self._process.record_event,
        )
        return [hooked]

    def _hook_server(self) -> HookServer:
        settings, hook_calls = self._process.settings, self._process.metrics.hook_calls
        return HookServer(
            settings.state_dir / HOOK_SOCKET,
            files=self._files,
            policy=self._region_policy(),
            count=lambda outcome: hook_calls.labels(outcome).inc(),
            kept=self._process.files,
        )

    def _is_enforced(self) -> bool:
        enforce = self._process.settings.enforce_mappings
        if enforce is Enforce.AUTO and self._process.pods is None:
            return False
        return is_enforced(enforce, self.mode)

    def _claims(self) -> StartClaims:
        process, settings = self._process, self._process.settings
        return StartClaims(
            self.mode,
            files=self._files,
            node=settings.node_name,
            pods=process.pods,
            enforced=self._is_enforced(),
            approvals=process.approvals,
        )

    def _region_policy(self) -> RegionStartPolicy:
        programs = self._process.settings.programming is not Programming.NONE
        return RegionStartPolicy(
            self._claims(),
            self.node.region_programming(),
            programs=programs,
            record_event=self._process.record_event,
        )


def is_hooked(settings: PluginSettings, mode: PluginMode) -> bool:
    """Whether an OCI hook has the functions programmed in a mode."""
    return mode is PluginMode.REGION and settings.programming is Programming.OCI_HOOK


def _cdi_publishers(
    settings: PluginSettings, state: NodeState, calls: BlockingCalls, kept: KeptFiles
) -> dict[str, CdiPublisher]:
    """The publishers of CDI files, by the kind of the devices in them."""
    if settings.cdi_dir is None:
        return {}
    host_root, hook = str(settings.host_root), None
    if is_hooked(settings, state.mode):
        hook = CdiHook(str(settings.hook_path), str(settings.state_dir / HOOK_SOCKET))
    kinds = {KIND: hook} if settings.device_types is None else {KIND: hook, DEVICE_KIND: None}
    return {
        kind: CdiPublisher(
            settings.cdi_dir,
            state,
            kind=kind,
            host_root=host_root,
            calls=calls,
            kept=kept,
            hook=of_kind,
        )
        for kind, of_kind in kinds.items()
    }
