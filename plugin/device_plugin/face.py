"""The face of a node for the device plugin API, composed once the node's mode is known."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from plugin.device_plugin.hook_server import HookServer
from plugin.device_plugin.metrics import PluginMetrics
from plugin.device_plugin.server import ResourceServer
from plugin.device_plugin.starts import Starts
from plugin.node_process import NodeProcess
from plugin.settings import PluginSettings
from services.containers.holders import FPGA_RESOURCES, Holders
from services.devices.cdi import DEVICE_KIND, KIND, CdiHook
from services.devices.model import Device, PluginMode
from services.kube.events import EventRecorder
from services.kubelet.checkpoint import KubeletFiles
from services.kubelet.pod_resources import served_resources
from services.kubelet.sockets import pod_resources_socket
from services.node.cdi_publisher import CdiPublisher
from services.node.device_list import CountedResources, DeviceListServer
from services.node.events import EventReason
from services.node.kept_files import Kept, KeptFiles
from services.node.last_mode import ModeKeeper, enter_mode
from services.node.reading import holder_source, rules_of
from services.node.registration import (
    Registration,
    RegistrationReports,
    RegistrationState,
    ResourceSet,
)
from services.node.service import NodeService
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError, KubeletAbsent, KubeletError
from services.process.outage import Outage
from services.process.retry import Backoff
from services.process.text import count
from services.programming.host_state import HostState

FAILURES: Final = 3
"""Registrations that fail in a row before an Event reports it."""

ABSENCES: Final = 12
"""The same if no kubelet listens: one that restarts is away for some seconds. With growing pauses
these take three to four minutes."""


class PluginReports(RegistrationReports):
    """Metrics and Events of registrations; `services.node.reading` reports devices."""

    def __init__(self, metrics: PluginMetrics, events: EventRecorder, files: KeptFiles) -> None:
        self._metrics = metrics
        self._events = events
        self._files = files
        self._failures: dict[str, int] = {}

    def attempted(self, resource: str, error: KubeletError | None) -> None:
        """Count it; report failures in a row as an Event, and their end."""
        self._metrics.registrations.labels(resource, "failed" if error else "ok").inc()
        if not error:
            if self._failures.pop(resource, 0) >= FAILURES:
                self._report(resource, EventReason.REGISTERED, f"{resource} is registered")
            return
        count = self._failures[resource] = self._failures.get(resource, 0) + 1
        if count == (ABSENCES if isinstance(error, KubeletAbsent) else FAILURES):
            self._report(resource, EventReason.REGISTRATION_FAILED, f"{resource}: {error}")

    def socket_lost(self, path: Path) -> None:
        """Count it as restored."""
        self._files.restored(Kept.SOCKET, path, "it is missing")

    def ended(self, resource: str) -> None:
        """Forget its metrics and failures."""
        self._metrics.forget(resource)
        self._failures.pop(resource, None)

    def _report(self, subject: str, reason: EventReason, message: str) -> None:
        self._events.record_on_node(subject, reason, message, warning=reason.warning)


log = structlog.get_logger(component="plugin")

LEFTOVER_CHECKS: Final = 3
LEFTOVER_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 2.0

CALL_SECONDS: Final = 2.0
"""For a socket of ours to answer a probe."""

HOOK_SOCKET: Final = "hook.sock"
"""The socket for the OCI hook, in `--state-dir`."""


class DevicePlugin:
    """Serves a node's devices in one mode."""

    def __init__(self, mode: PluginMode, settings: PluginSettings, process: NodeProcess) -> None:
        calls = process.calls
        self.mode = mode
        self.metrics = PluginMetrics(process.registry)
        self._settings = settings
        self._is_hooked = settings.is_hooked(mode)
        self._process = process
        self._pod_resources = pod_resources_socket(settings.kubelet_dir)
        self._files = KubeletFiles(settings.kubelet_dir, settings.pod_logs_dir, calls)
        self.source = holder_source(settings, calls)
        programs = mode.programs and settings.programs
        state = NodeState(rules_of(settings, mode, settings.units, programs=programs))
        self._counted = CountedResources(process.folder, state)
        reports = PluginReports(self.metrics, process.events, process.files)
        self.resources = ResourceSet(self, process.folder, self._counted, reports)
        self.node = NodeService(
            settings,
            state,
            calls=calls,
            driver_calls=process.driver_calls,
            holders=self.source,
            metrics=process.node_metrics,
            events=process.events,
        )
        self.cdi = _cdi_publishers(settings, self.node.state, calls, process.files)
        self._mode_keeper = ModeKeeper(self.node.state, process.folder.path, calls, process.files)
        process.registry.register(self.node.collector)
        self._starts = Starts(
            mode,
            settings,
            state=self.node.state,
            files=self._files,
            pods=process.pods,
            regions=self.node.region_programming(),
            cdi=self.cdi.get(KIND),
            events=process.events,
            on_hook_missing=self.metrics.hook_calls.labels("missing").inc,
        )

    async def run(self) -> None:
        """Enter the mode, then serve in it until cancelled.

        No empty list is sent at the end: the devices will be back soon, and the kubelet keeps their
        number meanwhile.
        """
        process = self._process
        records = HostState(self._settings.state_dir).records
        may_note = await enter_mode(self.mode, process.folder.path, records, process.calls)
        # The loops end before the registrations: none of them may offer again what has ended.
        async with self.resources.serving(), asyncio.TaskGroup() as group:
            for name, loop in self._loops():
                group.create_task(loop, name=name)
            group.create_task(self._take_over(), name="leftovers")
            if may_note:
                group.create_task(self._mode_keeper.keep_forever(), name="mode")

    def _loops(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        yield "resources", self.resources.offer_forever(self.node.state)
        yield from self.node.loops()
        yield (
            "holders",
            self.source.follow_forever(self.node.state.rescan, self.resources.resend),
        )
        for kind, publisher in self.cdi.items():
            yield f"cdi {kind}", publisher.write_forever()
        if self._is_hooked:
            yield "hook", self._hook_server().serve()

    # As `plugin.node_process` says

    async def unresponsive(self) -> list[str]:
        """Why resources that are registered don't answer."""
        # One that isn't registered doesn't count: without a kubelet the plugin is alive, and not
        # ready.
        registered = [
            each
            for each in self.resources.registrations.values()
            if each.state is RegistrationState.REGISTERED
        ]
        return [*filter(None, await asyncio.gather(*map(_error_of, registered)))]

    def unready(self) -> list[str]:
        """The resources with devices that aren't registered."""
        active = [each for each in self.resources.registrations.values() if each.devices]
        return sorted(
            map(_line, (each for each in active if each.state is not RegistrationState.REGISTERED))
        )

    def status_lines(self) -> list[str]:
        """The resources with devices, or why there is none."""
        active = [each for each in self.resources.registrations.values() if each.devices]
        if active:
            return sorted(map(_line, active))
        state = self.node.state
        problems = [*(state.ledger.inventory.problems if state.ledger.inventory else ())]
        return [
            "nothing to register",
            *(problem.text for problem in problems),
            *(
                f"{device.id}: {problem.text}"
                for device in state.ledger.offer.not_offered
                for problem in device.reasons
            ),
        ]

    async def holders(self) -> tuple[Holders, Sequence[str]]:
        """Who has devices, and what is unknown of that."""
        snapshot = await self.source.snapshot()
        return snapshot.holders, snapshot.problems

    # What the kubelet counts

    async def _take_over(self) -> None:
        """Withdraw the resources that an ended process left registered, as those of another mode.

        A stream that ends without an empty list leaves its capacity behind for minutes. What
        another plugin serves is left to that: those of our ended process count for a moment too.
        """
        await self.node.state.scanned.wait()
        outage = Outage(
            log,
            "what an ended process has left in the kubelet is unknown",
            "what an ended process has left in the kubelet is known",
            level="info",
        )
        checks, backoff = 0, Backoff(LEFTOVER_SECONDS)
        while checks < LEFTOVER_CHECKS:
            try:
                left, served = await self._find_left()
            except (KubeletError, HardwareError) as error:
                if isinstance(error.__cause__, FileNotFoundError):  # no plugin ever served here
                    return
                outage.failed(str(error))
                await asyncio.sleep(backoff.pause())
                continue
            outage.ended()
            checks += 1
            self._counted.take_over(left - served)
            self.node.state.rescan.request()
            if not left & served:
                return
            await asyncio.sleep(LEFTOVER_SECONDS)

    async def _find_left(self) -> tuple[frozenset[str], frozenset[str]]:
        """What the checkpoint lists of FPGAs and is not offered, and what any plugin serves."""
        counted = await self._files.counted()
        served = await served_resources(self._pod_resources, seconds=ANSWER_SECONDS)
        of_fpgas = filter(_is_fpga, counted.registered | counted.held)
        return frozenset(of_fpgas).difference(self.resources.registrations), served

    # What the kubelet calls

    def create_server(
        self, resource: str, devices: Mapping[str, Device], path: Path
    ) -> DeviceListServer:
        """A server with what the kubelet may call for a resource in this mode."""
        if not devices and not self._starts.is_of_mode(resource):
            # Pods that still have devices of it got them in another mode. Their containers may
            # restart: with no endpoint, or one with rules of this mode, the kubelet would not start
            # them.
            return DeviceListServer(resource, devices, path, self._counted)  # type: ignore[abstract]
        return ResourceServer(
            resource,
            devices,
            path,
            device_root=str(self._settings.host_root),
            starts=self._starts if self._starts.decides(resource) else None,
            root=self._settings.root,
            metrics=self.metrics,
            counted=self._counted,
            cdi=self._named_by_cdi if self._settings.cdi else frozenset,
            hooked=self._is_hooked and _is_fpga(resource),
        )

    def _named_by_cdi(self) -> frozenset[str]:
        return frozenset().union(*(each.published for each in self.cdi.values()))

    def _hook_server(self) -> HookServer:
        hook_calls = self.metrics.hook_calls
        return HookServer(
            self._settings.state_dir / HOOK_SOCKET,
            files=self._files,
            starts=self._starts,
            count=lambda outcome: hook_calls.labels(outcome).inc(),
            kept=self._process.files,
        )


async def _error_of(registration: Registration) -> str:
    server = registration.server
    if server is None:
        return ""
    try:
        await server.alive(CALL_SECONDS)
    except KubeletError as error:
        return str(error) if registration.server is server else ""  # else it was just replaced
    return ""


def _line(registration: Registration) -> str:
    error = f": {registration.error}" if registration.error else ""
    devices = count(len(registration.devices), "device")
    return f"{registration.resource} {registration.state} ({devices}){error}"


def _is_fpga(resource: str) -> bool:
    return resource.startswith(FPGA_RESOURCES)


def _cdi_publishers(
    settings: PluginSettings, state: NodeState, calls: BlockingCalls, kept: KeptFiles
) -> dict[str, CdiPublisher]:
    """The publishers of CDI files, by the kind of the devices in them."""
    if settings.cdi_dir is None:
        return {}
    host_root, hook = str(settings.host_root), None
    if settings.is_hooked(state.ledger.rules.mode):
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
