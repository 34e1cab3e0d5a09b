"""Everything that serves in one mode of the node; a node that changes its mode gets another one.

The mode decides about discovery and its memory, the registrations, the check before a container's
start, the CDI file, and the clearing of errors. None of that is changed in place. What exists in
every mode is handed in as `NodeParts`.

When a mode ends because another one begins, each stream first sends an empty list, so that the
resource's capacity becomes 0, and then ends: a stream that ends without that leaves the old
capacity behind for minutes. If the list can't be sent (the kubelet refuses, or a stream is lost),
the next mode sends it. When the process ends, no empty list is sent: the devices will be back soon,
and the kubelet keeps their number meanwhile.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from plugin.kubelet_folder import KubeletFolder
from plugin.node_parts import NodeParts
from plugin.registration import Registration
from plugin.resource_set import ResourceSet
from plugin.server import ResourceServer
from plugin.start_policies import HOOK_SOCKET, StartPolicies, is_hooked
from services.devices.cdi import Hook
from services.devices.damping import Damping
from services.devices.hardware.events import follow_card_events
from services.devices.model import Device, Inventory, PluginMode
from services.devices.resources import OfferMemory
from services.node.cdi_publisher import CdiPublisher
from services.node.discovery import Discovery
from services.node.error_clearing import ErrorClearing
from services.node.last_mode import enter_mode
from services.node.offer_memory import OfferMemoryFile
from services.node.port_problems import port_problems
from services.programming.lock import LOCKS

ANOTHER_MODE: Final = "another mode"
"""The end after which the kubelet is sent empty lists."""

END_SECONDS: Final = 4.0
"""For all registrations to end; then they are left behind."""

WITHDRAW_SECONDS: Final = 2.0
"""For the kubelet to learn that no devices are left."""

Waits = Mapping[str, Coroutine[Any, Any, object]]
"""What to wait for, by name."""


@dataclass(frozen=True, slots=True)
class Handover:
    """What a mode hands over to the next one of its process."""

    memory: OfferMemory
    """What it offered."""
    still_counted: frozenset[str]
    """The resources whose devices the kubelet still counts, since it got no empty list."""


class ModeServing:
    """Serves this node's cards in one mode.

    `before` is what another mode of this process handed over. It is None if another process served
    this node before, of which the kubelet only knows that its streams are cut.
    """

    def __init__(
        self,
        mode: PluginMode,
        parts: NodeParts,
        folder: KubeletFolder,
        policies: StartPolicies,
        before: Handover | None = None,
    ) -> None:
        settings = parts.settings
        self.mode = mode
        self._parts = parts
        self._folder = folder
        self._before = before
        self._counted: frozenset[str] = frozenset()
        self._has_served = False
        self._scanned = asyncio.Event()
        self._resources: ResourceSet | None = None
        self._discovery = Discovery(
            parts.state,
            mode=mode,
            units=settings.units,
            interval=settings.scan_interval,
            damping=Damping(settings.healthy_after, spacing=settings.scan_interval / 2),
            cards=parts.cards,
            holders=parts.holders.current,
            observe_seconds=parts.metrics.scan_seconds.observe,
            problems=partial(port_problems, mode=mode, records=parts.records),
        )
        self._memory = OfferMemoryFile(folder.path, mode, parts.calls)
        self.cdi = _cdi_publisher(mode, parts)
        self._clearing = _error_clearing(mode, parts)
        self._policy = policies.for_mode(mode, self.cdi)
        self._hook_server = policies.hook_server(mode)

    @property
    def registrations(self) -> Mapping[str, Registration]:
        """The registration of each resource."""
        return self._resources.registrations if self._resources else {}

    @property
    def handover(self) -> Handover | None:
        """What the next mode begins with; what this one got, if it never served anything."""
        if not self._has_served:
            return self._before
        return Handover(self._parts.state.advertised.memory, self._counted)

    async def serve_until(self, ends: Waits) -> str:
        """Serve until the first of some ends has come, and return its name."""
        self._parts.state.start_mode(self.mode)
        async with asyncio.TaskGroup() as group:
            self._resources = resources = ResourceSet(
                self._registration, group, on_end=self._forget
            )
            tasks = [group.create_task(each, name=name) for name, each in self._tasks(resources)]
            reason = await first_of(ends)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            if reason == ANOTHER_MODE:
                self._counted = await resources.withdraw(WITHDRAW_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await resources.close()
        return reason

    def _tasks(self, resources: ResourceSet) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        parts = self._parts
        yield "discovery", self._discover(resources)
        yield "offer memory", self._memory.write_forever()
        yield "permissions", self._check_permissions()
        yield (
            "holders",
            parts.holders.follow_forever(
                on_change=parts.state.request_rescan, resend=resources.resend
            ),
        )
        if self.cdi is not None:
            yield "cdi", self.cdi.write_forever()
        if self._hook_server is not None:
            yield "hook", self._hook_server.serve()
        if self._clearing is not None:
            yield "error clearing", self._clearing.clear_forever()
        if self.mode is not PluginMode.UNITS:
            yield "sensors", parts.sensing.read_forever()
            yield "card events", follow_card_events(parts.state.request_rescan)

    async def _discover(self, resources: ResourceSet) -> None:
        before, parts = self._before, self._parts
        await enter_mode(self.mode, self._folder.path, parts.records, parts.calls)
        memory = await self._memory.load() if before is None else before.memory
        self._discovery.restore(memory)
        async for _ in self._discovery.rounds():
            self._on_scan(resources)

    async def _check_permissions(self) -> None:
        await self._scanned.wait()
        inventory = self._parts.state.inventory or Inventory()
        await self._parts.permissions.run(self.mode, inventory)

    def _on_scan(self, resources: ResourceSet) -> None:
        parts = self._parts
        inventory, advertised = parts.state.inventory, parts.state.advertised
        parts.events.on_scan(inventory, advertised)
        if self.cdi is not None:
            self.cdi.on_scan(advertised)
        if inventory is not None:
            parts.sensing.on_scan(inventory)
            if self._clearing is not None:
                self._clearing.on_scan(inventory)
        resources.apply(advertised)
        if not self._has_served:
            self._has_served = True
            self._scanned.set()
            former = self._before.still_counted if self._before else self._memory.former
            resources.withdraw_stale(former)
        if not resources.has_unsent_withdrawals:  # else a successor must know what is counted
            self._memory.on_scan(advertised)

    def _registration(self, resource: str, devices: Mapping[str, Device]) -> Registration:
        parts = self._parts

        def create_server(now: Mapping[str, Device], path: Path) -> ResourceServer:
            return ResourceServer(
                resource,
                now,
                path,
                mode=self.mode,
                device_root=str(parts.settings.host_root),
                policy=self._policy,
                metrics=parts.metrics,
                cdi=self._named_by_cdi,
                hooked=is_hooked(parts.settings, self.mode),
            )

        def on_attempt(outcome: str) -> None:
            parts.metrics.registrations.labels(resource, outcome).inc()
            parts.events.registered(resource, registration.error)

        registration = Registration(
            resource,
            devices,
            create_server=create_server,
            folder=self._folder,
            on_attempt=on_attempt,
        )
        return registration

    def _forget(self, resource: str) -> None:
        self._parts.metrics.forget(resource)
        self._parts.events.forget(resource)

    def _named_by_cdi(self) -> frozenset[str]:
        if self.cdi is None or not self._parts.settings.cdi:
            return frozenset()
        return self.cdi.published


def _cdi_publisher(mode: PluginMode, parts: NodeParts) -> CdiPublisher | None:
    settings = parts.settings
    if settings.cdi_dir is None:
        return None
    hook = None
    if is_hooked(settings, mode):
        hook = Hook(str(settings.hook_path), str(settings.state_dir / HOOK_SOCKET))
    return CdiPublisher(
        settings.cdi_dir,
        mode=mode,
        host_root=str(settings.host_root),
        calls=parts.calls,
        hook=hook,
    )


def _error_clearing(mode: PluginMode, parts: NodeParts) -> ErrorClearing | None:
    settings = parts.settings
    if not settings.clear_errors or mode is PluginMode.UNITS:
        return None
    return ErrorClearing(
        settings.root,
        locks=settings.state_dir / LOCKS,
        holders=parts.holders.read,
        calls=parts.calls,
        count=lambda outcome: parts.metrics.errors_cleared.labels(outcome).inc(),
        request_rescan=parts.state.request_rescan,
        on_result=parts.events.errors_cleared,
        driver_calls=parts.driver_calls,
    )


async def first_of(waits: Waits) -> str:
    """Wait for the first of several to finish, cancel the others, and return its name.

    Earlier ones count first if several finish together. What the first one raised is raised.
    """
    tasks = {name: asyncio.ensure_future(wait) for name, wait in waits.items()}
    try:
        await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        first = next(name for name, task in tasks.items() if task.done())
        tasks[first].result()
        return first
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
