"""Keeps one resource registered with the kubelet: serves, registers, and repeats that when lost.

    wait for devices → wait for the kubelet → serve → register → registered → lost ─┐
         ▲                                                                           │
         └──────────────── close the server, wait a little ◄─────────────────────────┘

A registration is lost when the kubelet has a new socket (it restarted), when its stream ends, when
somebody has deleted our socket, or when a resource that was registered without devices has some.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, NoReturn, Protocol

import grpc
import grpc.aio
import structlog

from services.devices.model import Device
from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet import deviceplugin_pb2_grpc as rpc
from services.kubelet.sockets import API_VERSION, Identity, dial
from services.node.device_list import Counted, DeviceListServer
from services.node.kubelet_folder import KubeletFolder
from services.node.state import NodeState
from services.process.errors import KubeletAbsent, KubeletError
from services.process.outage import Outage
from services.process.retry import Backoff
from services.process.text import plain
from services.process.waits import first_of

REGISTER_FIRST_SECONDS: Final = 0.1
"""The first pause after a registration that failed or was lost."""

# A kubelet that always takes longer than we wait, as on a node that is starting, would never have
# our resource.
REGISTER_SECONDS: Final = 30.0
"""For the kubelet to answer `Register`."""

OPEN_SECONDS: Final = 10.0
"""For the kubelet to open its stream after that."""

STABLE_SECONDS: Final = 10.0
"""After a registration that lasted this long, the next pause is short again."""

RESTARTED: Final = "the kubelet restarted"
DEVICES_RETURNED: Final = "there are devices again"
SOCKET_DELETED: Final = "its socket was deleted"

log = structlog.get_logger(component="node")


class RegistrationState(StrEnum):
    """The state of a registration; the values are for people."""

    WAITING = "waits for the kubelet"
    REGISTERED = "is registered"
    FAILED = "could not register"


class ServesResources(Protocol):
    """Has servers for resources."""

    def create_server(
        self, resource: str, devices: Mapping[str, Device], path: Path
    ) -> DeviceListServer:
        """A server for the devices (by id) of a resource, on a new socket."""


class RegistrationReports:
    """What becomes of registrations; subclasses report it."""

    def attempted(self, resource: str, error: KubeletError | None) -> None:
        """A registration has failed with an error, or succeeded without one."""

    def socket_lost(self, path: Path) -> None:
        """Somebody has deleted a socket of ours, which is replaced."""

    def ended(self, resource: str) -> None:
        """A resource is no longer registered."""


class Registration:
    """Keeps one resource registered.

    Without devices it is registered only if it is `counted`: if the kubelet still counts some.
    """

    def __init__(
        self,
        resource: str,
        devices: Mapping[str, Device],
        *,
        owner: ServesResources,
        folder: KubeletFolder,
        counted: Counted,
        reports: RegistrationReports,
    ) -> None:
        self.resource = resource
        self.devices = devices
        self.state = RegistrationState.WAITING
        self.server: DeviceListServer | None = None
        self._owner = owner
        self._folder = folder
        self._counted = counted
        self._reports = reports
        self._backoff = Backoff(REGISTER_FIRST_SECONDS)
        self._has_devices = asyncio.Event()
        self._outgrown = asyncio.Event()
        """Set once there are devices that the server can't allocate."""
        self._outage = Outage(
            log,
            "registration failed, will try again",
            "registration succeeds again",
            resource=resource,
        )
        self.update(devices)

    @property
    def error(self) -> str:
        """Why the last attempt failed; empty once one succeeds."""
        return self._outage.reason

    def update(self, devices: Mapping[str, Device]) -> None:
        """Offer these devices (by id) from now on; without devices the capacity is 0."""
        self.devices = devices
        if devices:
            self._has_devices.set()
        else:
            self._has_devices.clear()
        if self.server is not None and devices and not self.server.allocates:
            self._outgrown.set()
        elif self.server is not None:
            self.server.update(devices)

    async def keep_registered(self) -> None:
        """Keep the resource registered until cancelled, then end its server."""
        while True:
            self.state = RegistrationState.WAITING
            await self._wait_for_update()
            identity, started = await self._folder.present(), time.monotonic()
            try:
                # The old server and its stream have ended: a kubelet would take the end of an old
                # stream for that of the new one.
                async with self._serving() as server:
                    await self._register(server, identity)
                    reason = await first_of(
                        {
                            RESTARTED: self._restarted(identity),
                            "the kubelet ended its stream": server.cut.wait(),
                            SOCKET_DELETED: self._lost(server.path),
                            DEVICES_RETURNED: self._outgrown.wait(),
                        }
                    )
                if reason == SOCKET_DELETED and self._folder.kubelet == identity:
                    self._reports.socket_lost(server.path)
                self.state = RegistrationState.WAITING
                log.info(
                    "registration lost, will register again", resource=self.resource, reason=reason
                )
                if time.monotonic() - started >= STABLE_SECONDS:
                    self._backoff.reset()
            except KubeletError as error:
                # The next pause grows, however long this attempt took.
                self.state = RegistrationState.FAILED
                self._outage.failed(str(error))
                self._reports.attempted(self.resource, error)
            await self._pause(identity)

    async def _wait_for_update(self) -> None:
        # A kubelet that has lost the resource goes on counting its devices: it is registered once
        # more without any.
        if self.resource not in self._counted.resources():
            await self._has_devices.wait()

    async def _pause(self, identity: Identity) -> None:
        # It grows, so that a kubelet that keeps refusing isn't flooded. One that has restarted has
        # another socket, and is registered with at once.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._backoff.pause()):
                await self._restarted(identity)
                self._backoff.reset()

    @contextlib.asynccontextmanager
    async def _serving(self) -> AsyncIterator[DeviceListServer]:
        # The kubelet dials back before it answers `Register`: the server is there before.
        self._outgrown.clear()
        path = self._folder.new_socket()
        server = self.server = self._owner.create_server(self.resource, self.devices, path)
        try:
            await server.start()
            with self._folder.serving(server.path):
                yield server
        finally:
            self.server = None
            await server.close()

    async def _register(self, server: DeviceListServer, identity: Identity) -> None:
        """Register, and wait until the kubelet has opened its stream.

        Raises:
            KubeletError: The kubelet refuses, takes too long, or restarts meanwhile.
        """
        first = await first_of(
            {"opened": self._opened(server), RESTARTED: self._restarted(identity)}
        )
        if first == RESTARTED:
            raise KubeletError(f"{RESTARTED} during the registration")
        self.state = RegistrationState.REGISTERED
        self._outage.ended()
        self._reports.attempted(self.resource, None)
        log.info(
            "registered",
            resource=self.resource,
            socket=server.path.name,
            devices=len(self.devices),
        )

    async def _opened(self, server: DeviceListServer) -> None:
        request = pb.RegisterRequest(
            version=API_VERSION,
            endpoint=server.path.name,
            resource_name=self.resource,
            options=server.options,
        )
        try:
            async with dial(self._folder.socket) as channel:
                await rpc.RegistrationStub(channel).Register(request, timeout=REGISTER_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and server.opened.is_set():
                return  # its stream is worth more than an answer
            raise _failure(error, self._folder.socket) from error
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await server.opened.wait()
        except TimeoutError as error:
            raise KubeletError(
                "the kubelet accepted the registration but hasn't asked for the devices within"
                f" {OPEN_SECONDS:g} s"
            ) from error

    async def _lost(self, path: Path) -> None:
        await self._folder.until(lambda: self._folder.is_lost(path))

    async def _restarted(self, identity: Identity) -> None:
        await self._folder.until(lambda: self._folder.kubelet != identity)


def _failure(error: grpc.aio.AioRpcError, socket: Path) -> KubeletError:
    detail = plain(error.details() or "", 300)
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return KubeletAbsent(f"nothing answers on {socket}: is the kubelet running? ({detail})")
    code = error.code().name
    return KubeletError(f"the kubelet does not accept the registration: {code}: {detail}")


Devices = Mapping[str, Device]


class ResourceSet:
    """Starts, updates and ends registrations in the kubelet's folder.

    An internal error of a registration ends all of them.
    """

    def __init__(
        self,
        owner: ServesResources,
        folder: KubeletFolder,
        counted: Counted,
        reports: RegistrationReports | None = None,
    ) -> None:
        self.registrations: dict[str, Registration] = {}
        self._owner = owner
        self._folder = folder
        self._counted = counted
        self._reports = reports or RegistrationReports()
        self._group = asyncio.TaskGroup()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """Of each registration, until it has ended."""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Registrations run meanwhile; at the end their streams and sockets end."""
        async with asyncio.TaskGroup() as self._group:
            try:
                yield
            finally:
                for task in self._tasks.values():
                    task.cancel()

    async def offer_forever(self, state: NodeState) -> NoReturn:
        """Offer what the node has after each step of its ledger, until cancelled."""
        due = state.steps.follow()
        while True:
            await due.wait()
            self.offer(state.ledger.offer.resources)

    def offer(self, resources: Mapping[str, Devices]) -> None:
        """Offer these resources; withdraw what the kubelet still counts of anything else."""
        for resource, devices in resources.items():
            self._offer(resource, devices)
        counted = self._counted.resources()
        for resource in sorted({*self.registrations, *counted} - resources.keys()):
            registration = self.registrations.get(resource)
            if registration is None or registration.devices:  # None: of another process or function
                log.warning("resource has no devices any more", resource=resource)
                self._offer(resource, {})
            elif resource not in counted:
                # Not before: the kubelet would keep the old capacity for minutes.
                self._end(resource)

    def resend(self) -> None:
        """Send the devices of one resource again, which makes the kubelet write its checkpoint."""
        for registration in self.registrations.values():
            server = registration.server
            if server is not None and server.opened.is_set() and not server.cut.is_set():
                server.resend()
                return

    def _offer(self, resource: str, devices: Devices) -> None:
        if resource in self.registrations:
            self.registrations[resource].update(devices)
            return
        registration = Registration(
            resource,
            devices,
            owner=self._owner,
            folder=self._folder,
            counted=self._counted,
            reports=self._reports,
        )
        self.registrations[resource] = registration
        run = _run(registration, after=self._tasks.get(resource))
        task = self._tasks[resource] = self._group.create_task(run, name=resource)
        task.add_done_callback(lambda task: self._forget(resource, task))

    def _end(self, resource: str) -> None:
        del self.registrations[resource]
        self._tasks[resource].cancel()
        self._reports.ended(resource)
        log.info("resource ended", resource=resource)

    def _forget(self, resource: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(resource) is task:
            del self._tasks[resource]


async def _run(registration: Registration, *, after: asyncio.Task[None] | None) -> None:
    if after is not None:
        # A stream that ends after the next registration would end that one in the kubelet.
        await asyncio.wait([after])
    await registration.keep_registered()
