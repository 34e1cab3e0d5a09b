"""DRA drivers: found by their sockets in `plugins_registry`, registered, and followed.

    socket appears ─▶ dialled, GetInfo (1 s) ─▶ NotifyRegistrationStatus ─▶ NodeWatchResources
         ▲                    │ an error: again at the next look                │ its end: again
         └── looked for each second; names that begin with a dot don't count    └── after 5 s

As in `pkg/kubelet/pluginmanager` and `pkg/kubelet/cm/dra/plugin`. A driver may have several
endpoints: the newest that is connected is called, else the newest. When a driver has had no
connected endpoint for 30 s, its slices are deleted.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import grpc
import grpc.aio
import structlog

from services.kubelet import dra_health_pb2 as health_pb
from services.kubelet import dra_pb2 as pb
from services.kubelet import pluginregistration_pb2 as registration_pb
from services.kubelet.dra_health_pb2_grpc import DRAResourceHealthStub
from services.kubelet.dra_pb2_grpc import DRAPluginStub
from services.kubelet.pluginregistration_pb2_grpc import RegistrationStub
from services.kubelet.sockets import dial
from services.process.errors import KubeletError
from simulator.kubelet.pods import Journal
from simulator.kubelet.registration import PluginFailed, go_text

LOG = structlog.get_logger()

T = TypeVar("T")

REGISTRY: Final = "plugins_registry"
SCAN_SECONDS: Final = 1.0
INFO_SECONDS: Final = 1.0
NOTIFY_SECONDS: Final = 5.0
CALL_SECONDS: Final = 45.0
CONNECT_PAUSE: Final = 0.5
HEALTH_PAUSE: Final = 5.0
WIPE_SECONDS: Final = 30.0
HEALTH_TIMEOUT: Final = 30
"""Seconds after which a device without news is Unknown, unless the driver says."""

Identity: TypeAlias = tuple[Path, int, int]
"""A socket with its inode and time: a file that replaces another may have its inode."""
HEALTH: Final = {health_pb.HEALTHY: "Healthy", health_pb.UNHEALTHY: "Unhealthy"}


@dataclass(slots=True)
class Endpoint:
    """One instance of a driver."""

    driver: str
    channel: grpc.aio.Channel
    journal: Journal
    connected: bool = False
    task: asyncio.Task[None] | None = None
    health: dict[tuple[str, str], tuple[health_pb.DeviceHealth, float]] = field(
        default_factory=dict
    )
    """By pool and device, with the time of the news."""

    async def prepare(self, claims: Sequence[pb.Claim]) -> pb.NodePrepareResourcesResponse:
        """Have claims prepared (PluginFailed if there is no answer)."""
        self.journal.call("NodePrepareResources", self.driver, tuple(c.uid for c in claims))
        request = pb.NodePrepareResourcesRequest(claims=claims)
        return await _answer(
            DRAPluginStub(self.channel).NodePrepareResources(request, timeout=CALL_SECONDS)
        )

    async def unprepare(self, claims: Sequence[pb.Claim]) -> pb.NodeUnprepareResourcesResponse:
        """Have claims unprepared (PluginFailed if there is no answer)."""
        self.journal.call("NodeUnprepareResources", self.driver, tuple(c.uid for c in claims))
        request = pb.NodeUnprepareResourcesRequest(claims=claims)
        return await _answer(
            DRAPluginStub(self.channel).NodeUnprepareResources(request, timeout=CALL_SECONDS)
        )

    async def follow(self) -> None:
        """Follow the driver's health for ever, and whether it is connected."""
        while True:
            try:
                await self.channel.channel_ready()
                self.connected = True
                request = health_pb.NodeWatchResourcesRequest()
                async for answer in DRAResourceHealthStub(self.channel).NodeWatchResources(request):
                    now = time.monotonic()
                    self.health = {
                        (each.device.pool_name, each.device.device_name): (each, now)
                        for each in answer.devices
                    }
                    self.journal.ring()
            except grpc.aio.AioRpcError as error:
                self.connected = error.code() is not grpc.StatusCode.UNAVAILABLE
            self.health = {}
            self.journal.ring()
            await asyncio.sleep(HEALTH_PAUSE if self.connected else CONNECT_PAUSE)


async def _answer(call: Awaitable[T]) -> T:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise PluginFailed(go_text(error.code(), error.details() or "")) from error
    except grpc.aio.UsageError as error:  # the channel was closed before
        raise PluginFailed(str(error)) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise PluginFailed("the connection is closing") from error  # the driver's socket is gone


class DraPlugins:
    """The drivers of one life of a kubelet."""

    def __init__(
        self, folder: Path, journal: Journal, wipe: Callable[[str], Awaitable[None]]
    ) -> None:
        """Look for drivers in `folder/plugins_registry`; `wipe` deletes a driver's slices."""
        self._folder = folder / REGISTRY
        self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._journal = journal
        self._wipe = wipe
        self._endpoints: dict[Identity, Endpoint] = {}
        self._lost: dict[str, float] = {}
        """Drivers without a connected endpoint, since when."""

    async def run(self) -> None:
        try:
            while True:
                with contextlib.suppress(FileNotFoundError):  # of a socket that goes meanwhile
                    await self.run_once()
                await asyncio.sleep(SCAN_SECONDS)
        finally:
            for identity in tuple(self._endpoints):
                await self._drop(identity)

    async def run_once(self) -> None:
        """Register new sockets, drop those that are gone, wipe slices that nobody serves."""
        there = {
            (path, path.stat().st_ino, path.stat().st_mtime_ns)
            for path in sorted(self._folder.iterdir())
            if not path.name.startswith(".") and path.is_socket()
        }
        for identity in self._endpoints.keys() - there:
            await self._drop(identity)
        await asyncio.gather(*(self._try(each) for each in there - self._endpoints.keys()))
        await self._wipe_lost()

    async def _try(self, identity: Identity) -> None:
        path, *_ = identity
        try:
            async with dial(path) as channel:
                await self._register(identity, RegistrationStub(channel))
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            LOG.warning("driver not registered", socket=str(path), reason=repr(error))

    async def _register(self, identity: Identity, stub: RegistrationStub) -> None:
        info = await stub.GetInfo(registration_pb.InfoRequest(), timeout=INFO_SECONDS)
        status = registration_pb.RegistrationStatus(plugin_registered=True)
        self._journal.call("Registered", info.name)
        endpoint = Endpoint(info.name, dial(Path(info.endpoint)), self._journal)
        endpoint.task = asyncio.create_task(endpoint.follow())
        self._endpoints[identity] = endpoint
        try:
            await stub.NotifyRegistrationStatus(status, timeout=NOTIFY_SECONDS)
        except grpc.aio.AioRpcError:
            await self._drop(identity)
            raise
        LOG.info("driver registered", driver=info.name)

    async def _drop(self, identity: Identity) -> None:
        if endpoint := self._endpoints.pop(identity, None):
            self._lost.setdefault(endpoint.driver, time.monotonic())
            if endpoint.task is not None:
                endpoint.task.cancel()
                await asyncio.gather(endpoint.task, return_exceptions=True)
            await endpoint.channel.close()
            self._journal.ring()

    async def _wipe_lost(self) -> None:
        now = time.monotonic()
        connected = {each.driver for each in self._endpoints.values() if each.connected}
        for driver in {each.driver for each in self._endpoints.values()} - connected:
            self._lost.setdefault(driver, now)
        self._lost = {name: at for name, at in self._lost.items() if name not in connected}
        for driver, since in tuple(self._lost.items()):
            if now - since >= WIPE_SECONDS:
                with contextlib.suppress(KubeletError):
                    await self._wipe(driver)
                    del self._lost[driver]

    def find(self, driver: str) -> Endpoint | None:
        """The endpoint to call: the newest that is connected, else the newest."""
        known = [each for each in self._endpoints.values() if each.driver == driver]
        connected = [each for each in known if each.connected]
        return next(reversed(connected or known), None)

    def health(self, driver: str, pool: str, device: str) -> tuple[str, str]:
        for endpoint in self._endpoints.values():
            if endpoint.driver == driver and (known := endpoint.health.get((pool, device))):
                news, at = known
                limit = news.health_check_timeout_seconds or HEALTH_TIMEOUT
                if time.monotonic() - at <= limit:
                    return HEALTH.get(news.health, "Unknown"), news.message
        return "Unknown", ""
