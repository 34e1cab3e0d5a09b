"""What the probes and `/devices` of the driver answer."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import grpc.aio
import msgspec

from dra.composition import DraParts
from services.kubelet import dra_pb2 as pb
from services.kubelet.dra_pb2_grpc import DRAPluginStub
from services.kubelet.sockets import dial
from services.node.table import rows
from services.process.http import Route

CALL_SECONDS: Final = 2.0
"""For our socket to answer a probe."""

ProbeResult = tuple[int, str]


class Probes:
    """Answers for a driver; `waits_for` says why it doesn't serve yet, empty if it does."""

    def __init__(self, parts: DraParts) -> None:
        self._parts = parts
        self.waits_for = "the node's lock is not ours yet"
        self.routes: Mapping[str, Route] = {
            "/healthz": self.healthz,
            "/readyz": self.readyz,
            "/devices": self.devices,
        }

    async def healthz(self) -> ProbeResult:
        """200 if the driver answers on its socket, or doesn't serve yet."""
        if self.waits_for:  # a restart would not end what it waits for
            return HTTPStatus.OK, f"ok: {self.waits_for}\n"
        endpoint = self._parts.registration.endpoint
        async with dial(endpoint) as channel:
            try:
                # Without claims it costs nothing, and goes the way of all calls.
                await DRAPluginStub(channel).NodePrepareResources(
                    pb.NodePrepareResourcesRequest(), timeout=CALL_SECONDS
                )
            except grpc.aio.AioRpcError as error:
                text = f"the driver doesn't answer on {endpoint}: {error.code().name}\n"
                return HTTPStatus.SERVICE_UNAVAILABLE, text
        return HTTPStatus.OK, "ok\n"

    async def readyz(self) -> ProbeResult:
        """200 if the driver is registered, its slices and files are as they should be; or 503."""
        state, reasons = self._parts.node.state, [self.waits_for]
        if not self.waits_for:
            reasons += [
                state.scan_error,
                self._parts.registration.error,
                self._parts.publisher.error,
                *self._parts.files.errors,
            ]
        problems = [f"{each}\n" for each in reasons if each]
        if problems:
            return HTTPStatus.SERVICE_UNAVAILABLE, "".join(problems)
        return HTTPStatus.OK, f"ok: {len(state.by_name)} devices\n"

    async def devices(self) -> tuple[int, bytes]:
        """This node's devices and who has them; 503 before the first scan."""
        parts, state = self._parts, self._parts.node.state
        problems = [each.text for each in state.inventory.problems] if state.inventory else []
        await parts.plugin_holders.snapshot()
        reasons = [self.waits_for, state.scan_error, *parts.files.errors]
        problems = [*filter(None, reasons), *problems]
        devices = rows(state.advertised, parts.holders.holders)
        problems += [*parts.book.unreadable(), *parts.leftover_resources.problems()]
        table = parts.settings.table(state.mode, "dra", devices, problems)
        is_known = state.inventory is not None
        status = HTTPStatus.OK if is_known else HTTPStatus.SERVICE_UNAVAILABLE
        return status, msgspec.json.encode(table)
