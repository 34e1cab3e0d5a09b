"""The driver's sockets: one on which it serves, and one by which the kubelet finds it.

A kubelet that restarts finds them again by itself; a socket that was deleted is made again.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import grpc.aio
import structlog

from plugin.dra.driver import ClaimService
from services.devices.dra import DRIVER
from services.kubelet import pluginregistration_pb2 as pb
from services.kubelet.pluginregistration_pb2_grpc import (
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from services.kubelet.sockets import (
    Identity,
    address,
    dra_registration,
    dra_socket,
    identify,
    listen,
)
from services.process.errors import KubeletError
from services.process.files import remove_any
from services.process.outage import Outage

VERSIONS: Final = ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth")
"""The kubelet uses the first one that it knows."""

CHECK_SECONDS: Final = 1.0
"""Between two checks that the sockets are there, and two attempts to make them."""

DRAIN_SECONDS: Final = 45.0
"""For calls that are running when the driver ends."""

log = structlog.get_logger(component="dra")


class DraRegistration(RegistrationServicer):
    """Serves a driver to the kubelet, whose `plugins_registry` may be missing for now.

    `on_answer` gets each answer of the kubelet: the error, empty if it has accepted the driver.
    `on_lost` gets a socket that somebody deleted, which is made again.

    Raises:
        KubeletError: The path of the kubelet's folder is too long for sockets in it.
    """

    def __init__(
        self,
        kubelet_dir: Path,
        driver: ClaimService,
        *,
        on_answer: Callable[[str], None],
        on_lost: Callable[[Path], None],
    ) -> None:
        self.endpoint = dra_socket(kubelet_dir, DRIVER)
        self.socket = dra_registration(kubelet_dir, DRIVER)
        self._hidden = self.socket.with_name(f".{self.socket.name}")
        self.is_registered = False
        """Whether the kubelet has accepted the driver since the sockets were made."""
        self._driver = driver
        self._on_answer = on_answer
        self._on_lost = on_lost
        self._outage = Outage(log, "the driver is not registered", "the driver is registered")
        # Both raise now what would otherwise be tried again for ever.
        address(self.endpoint)
        address(self._hidden)

    @property
    def error(self) -> str:
        """Why the driver is not registered; empty if it is."""
        return self._outage.reason or ("" if self.is_registered else "waiting for the kubelet")

    async def serve_forever(self) -> None:
        """Serve until cancelled; then finish calls that are running, and remove the sockets."""
        while True:
            try:
                async with self._sockets() as files:
                    gone = await _until_gone(files)
                self._on_lost(gone)
            except KubeletError as error:
                self._outage.failed(str(error))
                await asyncio.sleep(CHECK_SECONDS)

    @asynccontextmanager
    async def _sockets(self) -> AsyncIterator[dict[Path, tuple[int, int] | None]]:
        """The identities of both sockets, while a server serves all its services on each."""
        server = grpc.aio.server()
        self._driver.add_to(server)
        add_RegistrationServicer_to_server(self, server)
        self._make_folders()
        try:
            listen(server, self.endpoint)
            listen(server, self._hidden)
            await server.start()
            # The kubelet calls what appears in the folder within a second, and doesn't wait long
            # (`pkg/kubelet/pluginmanager`). It ignores names that start with a dot.
            self._hidden.replace(self.socket)
            files = {path: identify(path) for path in (self.endpoint, self.socket)}
            try:
                yield files
            finally:
                self.is_registered = False
                self._driver.end()  # or its streams would keep the server from stopping
                await server.stop(DRAIN_SECONDS)
                # Not before: 30 s after its connection is gone, the kubelet deletes the driver's
                # slices, unless another process serves. gRPC removes what has the name that it has
                # bound, and that isn't this one.
                for path, identity in files.items():
                    if identify(path) == identity:
                        # An error here would take the place of the cancellation.
                        with contextlib.suppress(OSError):
                            path.unlink()
        except OSError as error:
            raise KubeletError(f"can't serve on {self.socket}: {error.strerror}") from error
        finally:
            await server.stop(0)

    def _make_folders(self) -> None:
        try:
            self.endpoint.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            # Of a driver that was killed: the node's lock is ours, so none serves there.
            for path in (self.endpoint, self.socket, self._hidden):
                remove_any(path)
        except OSError as error:
            raise KubeletError(f"{error.filename}: {error.strerror}") from error

    async def GetInfo(  # noqa: N802 - the protocol's name
        self,
        request: pb.InfoRequest,  # noqa: ARG002 - the protocol's
        context: grpc.aio.ServicerContext[pb.InfoRequest, pb.PluginInfo],  # noqa: ARG002 - the same
    ) -> pb.PluginInfo:
        """Which driver this is, and where it serves."""
        return pb.PluginInfo(
            type="DRAPlugin",
            name=DRIVER,
            endpoint=str(self.endpoint),
            supported_versions=VERSIONS,
        )

    async def NotifyRegistrationStatus(  # noqa: N802 - the protocol's name
        self,
        request: pb.RegistrationStatus,
        context: grpc.aio.ServicerContext[  # noqa: ARG002 - the protocol's
            pb.RegistrationStatus, pb.RegistrationStatusResponse
        ],
    ) -> pb.RegistrationStatusResponse:
        """Whether the kubelet accepts the driver."""
        self.is_registered = request.plugin_registered
        error = "" if self.is_registered else request.error or "the kubelet gives no reason"
        self._outage.update(error)
        if not error:
            log.info("registered with the kubelet", driver=DRIVER)
        self._on_answer(error)
        return pb.RegistrationStatusResponse()


async def _until_gone(files: Mapping[Path, Identity | None]) -> Path:
    """Wait until a file is lost, and return its path."""
    while True:
        for path, identity in files.items():
            if identify(path) != identity:
                return path
        await asyncio.sleep(CHECK_SECONDS)
