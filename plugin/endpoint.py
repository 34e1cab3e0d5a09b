"""One resource's life with the kubelet: served, registered, lost, and all over again.

    wait for devices → wait for the kubelet → serve → register → registered → lost ─┐
         ▲                                                                           │
         └──────────────── close the server, wait a little ◄─────────────────────────┘

A kubelet that loses a resource goes on counting its devices for five minutes. So a resource whose
last device went while it was lost is registered once more with that kubelet, to say that there is
none; another kubelet has never heard of any.

A registration is lost when the kubelet's socket is another one (it restarted), when ours is gone
from its folder (it cleaned up, or somebody else did), or when its stream ends though the folder
hasn't changed. Whatever it was, the answer is the same: end the old server with its stream, then
register a new one on a new socket. Ending the old stream first matters: were it to end after the
new registration, the kubelet would take that for the end of the new one.

A restarted kubelet is registered with at once; anything else waits, longer each time it happens
soon after the last, so that a kubelet that keeps refusing is not hammered.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
import structlog

from plugin.kubelet import Identity, KubeletWatch, identify
from plugin.server import ResourceServer
from services.devices.model import Device
from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet import deviceplugin_pb2_grpc as rpc
from services.kubelet.sockets import API_VERSION, dial
from services.process.errors import KubeletError
from services.process.retry import Backoff
from services.process.text import plain

REGISTER_FIRST_SECONDS: Final = 0.1
"""The first pause after a registration that failed or was lost. A kubelet that restarts ends any
pause, since its socket is a new one."""

REGISTER_SECONDS: Final = 5.0
"""For the kubelet to answer `Register`; it dials back before it does."""

MOST_PATIENCE: Final = 8
"""How many times as long it gets, twice as long each time that it didn't: one that always takes
longer than we wait, as on a node that is just starting everything, would never have us."""

OPEN_SECONDS: Final = 10.0
"""For the kubelet to open its stream after that."""

TOLD_SECONDS: Final = 0.02
"""Between two looks whether the kubelet was told."""

STABLE_SECONDS: Final = 10.0
"""A registration that lasted this long was a good one: the next wait is a short one again."""

T = TypeVar("T")

log = structlog.get_logger(room="plugin")


class State(StrEnum):
    """Where an endpoint is in its life."""

    IDLE = "has no devices"
    WAITING = "waits for the kubelet"
    REGISTERING = "registers"
    REGISTERED = "is registered"
    FAILED = "could not register"


class Endpoint:
    """Keeps one resource registered.

    Args:
        resource: Full resource name.
        devices: Its devices by id, to begin with.
        make_server: Makes a server for devices; one each registration.
        next_path: Gives a socket path never used before.
        kubelet: Whether the kubelet is there.
        registered: Told the outcome of each attempt, `ok` or `failed`.
        backoff: How long to wait between attempts.
    """

    def __init__(
        self,
        resource: str,
        devices: Mapping[str, Device],
        *,
        make_server: Callable[[Mapping[str, Device]], ResourceServer],
        next_path: Callable[[], Path],
        kubelet: KubeletWatch,
        registered: Callable[[str, str], None],
        backoff: Backoff,
    ) -> None:
        self.resource = resource
        self.devices = devices
        self.state = State.IDLE
        self.trouble = ""
        """Why the last attempt failed; empty once one succeeds."""
        self.server: ResourceServer | None = None
        self._make_server = make_server
        self._next_path = next_path
        self._kubelet = kubelet
        self._registered = registered
        self._backoff = backoff
        self._patience = 1
        self._has_devices = asyncio.Event()
        self._counting: Identity | None = None
        """The kubelet that took our last registration, and may count devices that are gone."""
        self._log = log.bind(resource=resource)
        self.update(devices)

    def update(self, devices: Mapping[str, Device]) -> None:
        """Takes the devices as they are now; none at all makes the capacity 0.

        Args:
            devices: By id.
        """
        self.devices = devices
        if devices:
            self._has_devices.set()
        else:
            self._has_devices.clear()
        if self.server is not None:
            self.server.update(devices)

    def inherit(self) -> None:
        """Takes it that the kubelet that is there counts devices which a predecessor offered."""
        self._counting = identify(self._kubelet.socket)

    @property
    def owes(self) -> bool:
        """Whether the kubelet counts devices that are gone, and hasn't been told yet."""
        return not self.devices and self._behind

    async def told(self) -> None:
        """Waits until the kubelet, if it counts any devices, has been sent them as they are now."""
        # Soon sent, or lost and registered once more; seldom enough to look for it.
        while self._behind:  # noqa: ASYNC110 - as above
            await asyncio.sleep(TOLD_SECONDS)

    async def run(self) -> None:
        """Keeps the resource registered until cancelled, then ends its server."""
        while True:
            await self._something_to_tell()
            self.state = State.WAITING
            seen, began = await self._kubelet.present(), time.monotonic()
            try:
                async with contextlib.AsyncExitStack() as stack:
                    async with self._kubelet.registering:
                        seen, began = await self._kubelet.present(), time.monotonic()
                        self.state = State.REGISTERING
                        server, path = await stack.enter_async_context(self._serving())
                        gone = stack.enter_context(self._kubelet.guard(path, server.news))
                        await self._register(server, path, seen)
                    self._counting = identify(self._kubelet.socket)  # not always `seen`
                    why = await self._until_lost(server, path, gone, seen)
                self.state = State.WAITING
                self._log.info("registration lost, will register again", reason=why)
                if time.monotonic() - began >= STABLE_SECONDS:
                    self._backoff.reset()
            except KubeletError as error:  # however long that took
                self._failed(str(error))
            await self._pause(seen)

    @property
    def _behind(self) -> bool:
        """Whether the kubelet counts other devices than there are now, as far as is known."""
        if self.state is State.REGISTERED and self.server is not None:
            return self.server.behind
        return self._counted

    @property
    def _counted(self) -> bool:
        """Whether the kubelet that is there took a registration of ours."""
        return self._counting is not None and self._counting == identify(self._kubelet.socket)

    async def _something_to_tell(self) -> None:
        if self.devices or self._counted:
            return
        self.state = State.IDLE
        await self._has_devices.wait()

    async def _pause(self, seen: Identity) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._backoff.pause()):
                await self._kubelet.replaced(seen)
                self._backoff.reset()
                self._patience = 1

    @contextlib.asynccontextmanager
    async def _serving(self) -> AsyncIterator[tuple[ResourceServer, Path]]:
        path = self._next_path()
        server = self._make_server(self.devices)
        try:
            await server.start(path)
            self.server = server
            server.update(self.devices)  # they may have changed meanwhile
            yield server, path
        finally:
            self.server = None
            try:
                await server.close()
            finally:
                with contextlib.suppress(OSError):
                    path.unlink()

    async def _register(self, server: ResourceServer, path: Path, seen: Identity) -> None:
        """Makes the resource known.

        Raises:
            KubeletError: The kubelet refuses, doesn't answer in time, or restarts meanwhile.
        """
        request = pb.RegisterRequest(
            version=API_VERSION,
            endpoint=path.name,
            resource_name=self.resource,
            options=server.options,
        )
        async with dial(self._kubelet.socket) as channel:
            seconds = REGISTER_SECONDS * self._patience
            call = rpc.RegistrationStub(channel).Register(request, timeout=seconds)
            call.add_done_callback(lambda _: server.news.set())
            await _until(server.news, lambda: call.done() or self._kubelet.current != seen)
            if call.done():
                try:
                    await call
                except grpc.aio.AioRpcError as error:
                    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                        if server.opened.is_set():
                            return  # its stream says more than an answer would
                        self._patience = min(2 * self._patience, MOST_PATIENCE)
                    raise KubeletError(explain(error, self._kubelet.socket)) from error
                return
            call.cancel()
        if server.opened.is_set():  # it is the new one that has taken it
            self._counting = identify(self._kubelet.socket)
        raise KubeletError("the kubelet restarted during the registration")

    async def _until_lost(
        self, server: ResourceServer, path: Path, gone: asyncio.Event, seen: Identity
    ) -> str:
        """Waits until the registration is worth nothing any more, and says why.

        Raises:
            KubeletError: The kubelet never opened its stream.
        """

        def loss() -> str:
            if self._kubelet.current != seen:
                return "the kubelet restarted"
            if gone.is_set():
                return "our socket was removed"
            return "the kubelet ended its stream" if server.cut.is_set() else ""

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OPEN_SECONDS):
                await _until(server.news, lambda: server.opened.is_set() or loss())
        if server.opened.is_set():
            self._succeeded(path)
        elif not loss():
            raise KubeletError(
                "the kubelet took the registration but hasn't asked for the devices within"
                f" {OPEN_SECONDS:g} s"
            )
        return await _until(server.news, loss)

    def _succeeded(self, path: Path) -> None:
        self.state, self.trouble, self._patience = State.REGISTERED, "", 1
        self._registered(self.resource, "ok")
        self._log.info("registered", socket=path.name, devices=len(self.devices))

    def _failed(self, trouble: str) -> None:
        """Says what is wrong once; the same trouble again is for who looks closer."""
        say = self._log.debug if trouble == self.trouble else self._log.warning
        say("registration failed, will try again", reason=trouble)
        self.state, self.trouble = State.FAILED, trouble
        self._registered(self.resource, "failed")


async def _until(news: asyncio.Event, met: Callable[[], T]) -> T:
    """Waits until something is so, and gives what that is.

    Args:
        news: Set whenever it may have become so; nobody else may wait for it.
        met: Tells what is so; false until then.
    """
    while not (found := met()):
        news.clear()
        await news.wait()
    return found


async def first_of(
    waits: Mapping[str, Coroutine[Any, Any, object]], *, seconds: float | None = None
) -> str | None:
    """Waits for the first of several to finish, and ends the others.

    Args:
        waits: What to wait for, by name; earlier ones count first if several finish together.
        seconds: How long to wait at most.

    Returns:
        The name of the first; None if none finished in time.

    Raises:
        BaseException: Whatever the first one raised.
    """
    tasks = {name: asyncio.ensure_future(wait) for name, wait in waits.items()}
    try:
        await asyncio.wait(tasks.values(), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for name, task in tasks.items():
            if task.done():
                task.result()
                return name
        return None
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def explain(error: grpc.aio.AioRpcError, socket: Path) -> str:
    """A sentence for a registration that failed.

    Args:
        error: What gRPC says.
        socket: The kubelet's.
    """
    said = plain(error.details() or "", 300)
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "the kubelet doesn't answer a registration in time"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        if "Permission denied" in said:
            return f"this user may not write to {socket}, as who connects to it must ({said})"
        return f"nobody answers on {socket}: is the kubelet running? ({said})"
    if "version" in said and "not supported" in said:
        return (
            f"this kubelet doesn't speak {API_VERSION} of the device plugin protocol, the only"
            f" version that accelbind has: upgrade whichever of the two is older ({said})"
        )
    return f"the kubelet refuses the registration: {error.code().name}: {said}"
