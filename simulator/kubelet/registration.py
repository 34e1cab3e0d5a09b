"""Registration: plugins register, are dialled back, and are followed until they end.

    Register ─▶ version and name checked ─▶ dialled, GetDevicePluginOptions ─▶ answered
                                                        └─▶ ListAndWatch followed until its end

There are two tables, as in the real kubelet, and their difference shows: `_endpoints` holds the
client that is called, the last one that registered a resource; `_clients` holds the one to
disconnect when a stream of that resource ends, *whichever* stream that is. So when an old
stream ends after a new registration, the new client is disconnected (measured on 1.36.2).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import grpc
import grpc.aio
import structlog

from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet.deviceplugin_pb2_grpc import RegistrationServicer
from services.kubelet.sockets import API_VERSION
from services.process.errors import KubeletError
from simulator.kubelet.allocator import PluginFailed
from simulator.kubelet.client import DIAL_SECONDS, PluginClient
from simulator.kubelet.journal import Call, Journal
from simulator.kubelet.pods import is_extended_resource
from simulator.kubelet.registry import Device, Registry

LOG = structlog.get_logger()

Context: TypeAlias = grpc.aio.ServicerContext[pb.RegisterRequest, pb.Empty]

UNSUPPORTED: Final = (
    'requested API version "%s" is not supported by kubelet. Supported version is ["%s"]'
)


@dataclass(slots=True)
class Faults:
    """Faults of registrations that are switched on.

    Attributes:
        refuse: each is refused with this text, unless it is empty.
        hang: none is answered.
        version: the one version of the protocol that is accepted.
        dial_seconds: how long a plugin's socket is tried.
    """

    refuse: str = ""
    hang: bool = False
    version: str = API_VERSION
    dial_seconds: float = DIAL_SECONDS


class Registration(RegistrationServicer):
    """The registration service of one life of a kubelet, and its plugins."""

    def __init__(
        self,
        folder: Path,
        registry: Registry,
        journal: Journal,
        faults: Faults,
        changed: Callable[[], None],
    ) -> None:
        self._folder = folder
        self._registry = registry
        self._journal = journal
        self._faults = faults
        self._changed = changed
        self._endpoints: dict[str, PluginClient] = {}
        self._clients: dict[str, PluginClient] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._closed = False

    async def Register(self, request: pb.RegisterRequest, context: Context) -> pb.Empty:  # noqa: N802 - the protocol's name
        """Register a plugin, or refuse it with a reason."""
        resource = request.resource_name
        self._journal.call(Call("Register", resource))
        await self._journal.until(lambda: not self._faults.hang)
        problem = self._problem(request)
        if not problem:
            problem = await self._connect(resource, self._folder / request.endpoint)
        if problem:
            LOG.warning("registration refused", resource=resource, reason=problem)
            await context.abort(grpc.StatusCode.UNKNOWN, problem)
        self._journal.call(Call("Registered", resource))
        LOG.info("plugin registered", resource=resource, endpoint=request.endpoint)
        return pb.Empty()

    def _problem(self, request: pb.RegisterRequest) -> str:
        if self._faults.refuse:
            return self._faults.refuse
        if request.version != self._faults.version:
            return UNSUPPORTED % (request.version, self._faults.version)
        if not is_extended_resource(request.resource_name):
            return f'the ResourceName "{request.resource_name}" is invalid'
        return ""

    async def _connect(self, resource: str, path: Path) -> str:
        """Dial a plugin and start to follow it; returns the error."""
        try:
            client = PluginClient(resource, path)
        except KubeletError as error:
            return str(error)
        self._clients[resource] = client
        self._journal.call(Call("GetDevicePluginOptions", resource))
        try:
            options = await client.connect(self._faults.dial_seconds)
        except PluginFailed as error:
            self._clients.pop(resource, None)
            await client.close()
            return str(error)
        self._endpoints[resource] = client
        self._registry.connected(resource, options)
        self._changed()
        task = asyncio.create_task(self._follow(client), name=f"kubelet follows {resource}")
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)
        return ""

    async def _follow(self, client: PluginClient) -> None:
        """Follow one client's stream; at its end the resource's *current* client is dropped."""
        self._journal.call(Call("ListAndWatch", client.resource))
        reason = await client.watch(partial(self._listed, client.resource))
        present = self._clients.pop(client.resource, None)
        if present is None:
            await client.close()
            return
        LOG.info("plugin lost", resource=client.resource, reason=reason)
        self._registry.disconnected(client.resource)
        self._journal.call(Call("Disconnected", client.resource))
        self._changed()
        await present.close()
        await client.close()

    def _listed(self, resource: str, devices: Iterable[Device]) -> None:
        if self._closed:
            return
        self._registry.listed(resource, devices)
        self._changed()

    def client(self, resource: str) -> PluginClient:
        """The client of a resource."""
        try:
            return self._endpoints[resource]
        except KeyError as error:
            raise PluginFailed(f"unknown Device Plugin {resource}") from error

    async def cut(self, resource: str) -> None:
        """Breaks the connection to a resource's plugin, as if the network had."""
        await self.client(resource).close()

    async def close(self) -> None:
        """Drops all plugins, as a kubelet that ends."""
        self._closed = True
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        for client in {*self._endpoints.values(), *self._clients.values()}:
            await client.close()


@contextmanager
def fault(faults: Faults, journal: Journal, **changes: object) -> Iterator[None]:
    """Switch faults on inside a `with` block."""
    before = {name: getattr(faults, name) for name in changes}
    try:
        for name, value in changes.items():
            setattr(faults, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(faults, name, value)
        journal.ring()
