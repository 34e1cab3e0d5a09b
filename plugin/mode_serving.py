"""All that serves in one mode of the node. A node that changes its mode gets another one of these.

What depends on the mode: discovery and its memory, the endpoints, the gate before a container's
start, the CDI file, the clearing of errors, and what calls for a look at the cards. Nothing of that
is changed in place. What lasts (the kubelet's folder, metrics) is handed in as `Lasting`.

When a mode ends because another one begins, the kubelet is first told that every resource has no
devices left, which makes its capacity 0, and then the streams end: a stream that ends without that
leaves the old capacity behind for minutes. What it can't be told of just then (it refuses us, or a
stream was lost) the next mode tells it. When the process ends it is not told: the devices will be
back in a moment, and the kubelet keeps their number meanwhile.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from plugin.distrust import NodeMark
from plugin.endpoint import REGISTER_FIRST_SECONDS, Endpoint, first_of
from plugin.events import NodeEvents
from plugin.fleet import Fleet
from plugin.gates import HOOK_SOCKET, Gates, is_hooked
from plugin.kubelet import KubeletWatch
from plugin.metrics import PluginMetrics
from plugin.server import ResourceServer
from plugin.settings import PluginSettings
from services.containers.holder_source import HolderSource
from services.devices.cdi import Hook
from services.devices.damping import Damping
from services.devices.hardware.events import follow_card_events
from services.devices.model import Device, Inventory, PluginMode
from services.devices.resources import AdvertisedResources, OfferMemory
from services.kubelet.sockets import plugins_folder
from services.node.cdi_publisher import CdiPublisher
from services.node.discovery import Discovery
from services.node.error_clearing import ErrorClearing
from services.node.offer_memory import Recall
from services.process.blocking import BlockingCalls
from services.process.retry import Backoff
from services.programming.ioctls import KERNEL, DriverCalls
from services.programming.lock import LOCKS

END_SECONDS: Final = 4.0
"""For all endpoints to end; then they are left behind."""

WITHDRAW_SECONDS: Final = 2.0
"""For the kubelet to take that nothing is left."""

Task = tuple[str, Coroutine[Any, Any, None]]

log = structlog.get_logger(room="plugin")


@dataclass(frozen=True, slots=True)
class Lasting:
    """What a plugin process has whatever its node's mode.

    Args:
        options: What it has to know.
        metrics: What it counts with.
        kubelet: Whether the kubelet is there.
        next_path: Gives a socket path never used before.
        scan: Reads the cards; called in a thread.
        calls: Makes the calls that may hang.
        gates: Gives what is asked before a container starts.
        events: Tells the cluster what it should know.
        beside: What else runs for as long as a mode is served, by name.
        seen: Told what each look at the cards came to.
        holders: Reads which containers have devices.
        driver_calls: Makes the ioctls of the cards' drivers.
    """

    options: PluginSettings
    metrics: PluginMetrics
    kubelet: KubeletWatch
    next_path: Callable[[], Path]
    scan: Callable[[], Inventory]
    calls: BlockingCalls
    gates: Gates
    events: NodeEvents
    beside: Callable[[PluginMode], Iterator[Task]]
    seen: Callable[[Inventory | None, AdvertisedResources], None]
    holders: HolderSource
    driver_calls: DriverCalls = KERNEL


@dataclass(frozen=True, slots=True)
class Left:
    """What a mode leaves to the next one of its process.

    Args:
        memory: What it offered.
        counted: The resources that the kubelet counts on, since it couldn't be told otherwise.
    """

    memory: OfferMemory
    counted: frozenset[str]


class ModeServing:
    """Serves this node's cards in one mode, from `run` to its end.

    Args:
        mode: The mode.
        lasting: What was there before and stays.
        before: What another mode of this process left. None if another process served this node
            before, of whose end the kubelet knows no more than that its streams are cut.
    """

    def __init__(self, mode: PluginMode, lasting: Lasting, before: Left | None = None) -> None:
        self.mode = mode
        self._before = before
        self._counted: frozenset[str] = frozenset()
        self._served = False
        self.fleet: Fleet | None = None
        self._lasting = lasting
        options = lasting.options
        self.discovery = Discovery(
            mode=mode,
            root=options.root,
            units=options.units,
            interval=options.scan_interval,
            damping=Damping(options.healthy_after, spacing=options.scan_interval / 2),
            scan=lasting.scan,
            calls=lasting.calls,
            apply=self._apply,
            scanned=lasting.metrics.scanned,
        )
        folder = plugins_folder(options.kubelet_dir)
        self._recall = Recall(folder, mode, lasting.calls)
        self._mark = NodeMark(folder, options.state_dir, lasting.calls)
        self.cdi = self._cdi_publisher()
        self._clearing = self._error_clearing()
        self._gate = lasting.gates.of(mode, self.discovery, self.cdi)
        self._hook_server = lasting.gates.hook_server(mode, self.discovery)

    @property
    def endpoints(self) -> Mapping[str, Endpoint]:
        """The endpoint of each resource."""
        return self.fleet.endpoints if self.fleet else {}

    @property
    def left(self) -> Left | None:
        """What the next mode begins with: what this one did, if it came to serve nothing."""
        return Left(self.discovery.tree.memory, self._counted) if self._served else self._before

    async def run(
        self, ends: Mapping[str, Coroutine[Any, Any, object]], *, withdraw: frozenset[str]
    ) -> str:
        """Serves until the first of some ends has come.

        Args:
            ends: What to wait for, by name.
            withdraw: The names of those after which the kubelet is told that nothing is left.

        Returns:
            The name of what came.
        """
        async with asyncio.TaskGroup() as group:
            self.fleet = fleet = Fleet(self._endpoint, group, ended=self._ended)
            looking = [group.create_task(each, name=name) for name, each in self._looking()]
            why = await first_of(ends) or ""
            for task in looking:
                task.cancel()
            await asyncio.wait(looking)
            if why in withdraw:
                self._counted = await fleet.withdraw(WITHDRAW_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await fleet.close()
        return why

    def _looking(self) -> Iterator[Task]:
        """What looks at the cards, calls for a look, or does something about what was seen."""
        yield "discovery", self._discover()
        yield "recall", self._recall.run()
        yield from self._lasting.beside(self.mode)
        if self.cdi is not None:
            yield "cdi", self.cdi.run()
        if self._hook_server is not None:
            yield "hook", self._hook_server.run()
        if self._clearing is not None:
            yield "clearing", self._clearing.run()
        if self.mode is not PluginMode.UNITS:
            yield "card events", follow_card_events(self.discovery.look_now)

    async def _discover(self) -> None:
        before = self._before
        await self._mark.settle(self.mode)  # before the memory of the mode served last is replaced
        self.discovery.recall(await self._recall.load() if before is None else before.memory)
        await self.discovery.run()

    def _apply(self, tree: AdvertisedResources) -> None:
        inventory = self.discovery.inventory
        self._lasting.seen(inventory, tree)
        self._lasting.events.seen(inventory, tree)
        if self.cdi is not None:
            self.cdi.take(tree)
        if self._clearing is not None and inventory is not None:
            self._clearing.take(inventory)
        if self.fleet is not None:
            self._serve(tree, self.fleet)

    def _serve(self, tree: AdvertisedResources, fleet: Fleet) -> None:
        fleet.apply(tree)
        if not self._served:
            self._served = True
            fleet.retire(self._before.counted if self._before else self._recall.former)
        if not fleet.owes:  # until then a successor has to know of what the kubelet still counts
            self._recall.take(tree)

    def _cdi_publisher(self) -> CdiPublisher | None:
        options = self._lasting.options
        if options.cdi_dir is None:
            return None
        hook = None
        if is_hooked(options, self.mode):
            hook = Hook(str(options.hook_path), ("--socket", str(options.state_dir / HOOK_SOCKET)))
        return CdiPublisher(
            options.cdi_dir,
            mode=self.mode,
            host_root=str(options.host_root),
            calls=self._lasting.calls,
            hook=hook,
        )

    def _error_clearing(self) -> ErrorClearing | None:
        options, calls = self._lasting.options, self._lasting.calls
        if not options.clear_errors or self.mode is PluginMode.UNITS:
            return None
        return ErrorClearing(
            options.root,
            locks=options.state_dir / LOCKS,
            holders=self._lasting.holders.read,
            calls=calls,
            counted=self._lasting.metrics.errors_cleared,
            look_now=self.discovery.look_now,
            told=self._lasting.events.cleared,
            driver_calls=self._lasting.driver_calls,
        )

    def _endpoint(self, resource: str, devices: Mapping[str, Device]) -> Endpoint:
        def make_server(now: Mapping[str, Device]) -> ResourceServer:
            return ResourceServer(
                resource,
                now,
                mode=self.mode,
                device_root=str(self._lasting.options.host_root),
                gate=self._gate,
                counters=self._lasting.metrics,
                cdi=self._named_by_cdi,
                hooked=is_hooked(self._lasting.options, self.mode),
            )

        def registered(_resource: str, outcome: str) -> None:
            self._lasting.metrics.registered(resource, outcome)
            self._lasting.events.registered(resource, endpoint.trouble)

        endpoint = Endpoint(
            resource,
            devices,
            make_server=make_server,
            next_path=self._lasting.next_path,
            kubelet=self._lasting.kubelet,
            registered=registered,
            backoff=Backoff(REGISTER_FIRST_SECONDS),
        )
        return endpoint

    def _ended(self, resource: str) -> None:
        self._lasting.metrics.forget(resource)
        self._lasting.events.forget(resource)

    def _named_by_cdi(self) -> frozenset[str]:
        options = self._lasting.options
        return self.cdi.published if self.cdi is not None and options.cdi else frozenset()
