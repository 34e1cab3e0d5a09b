"""Answers of a plugin's probes and `/devices`."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from plugin.node_process import Face, NodeProcess
from plugin.settings import Api, PluginSettings
from services.containers.holders import Holders
from services.devices.reasons import advised
from services.node.table import FROM_DRA, FROM_PLUGIN, rows
from services.process.http import Route, own_version

SOURCES: Final = {Api.DEVICE_PLUGIN: FROM_PLUGIN, Api.DRA: FROM_DRA}
"""As `/devices` names them."""

FIRST_SCAN: Final = "the first scan is under way"

ProbeResult = tuple[int, str]


class Probes:
    """Answers for a process in a mode; `face` is what serves in it, once something does."""

    def __init__(self, settings: PluginSettings, process: NodeProcess) -> None:
        self.mode = settings.mode
        self.face: Face | None = None
        self._settings = settings
        self._process = process
        self._version = own_version()
        self.routes: Mapping[str, Route] = {
            "/healthz": self.healthz,
            "/readyz": self.readyz,
            "/devices": self.devices,
        }

    async def healthz(self) -> ProbeResult:
        """200 if our sockets answer, or are not served yet; 503 with those that don't."""
        # A restart would not end what a process waits for.
        errors = await self.face.unresponsive() if self.face else []
        if errors:
            return HTTPStatus.SERVICE_UNAVAILABLE, _lines(*errors)
        return HTTPStatus.OK, _lines("ok")

    async def readyz(self) -> ProbeResult:
        """200 if all is registered, and the files are there; 503 with the reasons."""
        face, reasons = self.face, [*self._waits_for]
        if face is None or reasons:
            return HTTPStatus.SERVICE_UNAVAILABLE, _lines(*reasons)
        if reasons := [*self._process.files.errors, *face.unready()]:
            return HTTPStatus.SERVICE_UNAVAILABLE, _lines("not ready", *reasons)
        return HTTPStatus.OK, _lines("ok", *face.status_lines())

    async def devices(self) -> tuple[int, bytes]:
        """This node's devices and who has them; 503 before the first scan."""
        face, holders, problems = self.face, _NOBODY, [*self._waits_for]
        if face is not None:
            holders, unknown = await face.holders()
            inventory = face.node.state.ledger.inventory
            problems += self._process.files.errors
            problems += map(advised, inventory.problems if inventory else ())
            problems += unknown
        offered = rows(face.node.state.ledger.offer, holders) if face else ()
        source = SOURCES[self._settings.api]
        table = self._settings.table(self.mode, source, offered, problems, self._version)
        # While another plugin serves here, or a read hangs, an empty table says nothing.
        has_scanned = face is not None and face.node.state.ledger.inventory is not None
        status = HTTPStatus.OK if has_scanned else HTTPStatus.SERVICE_UNAVAILABLE
        return status, msgspec.json.encode(table)

    async def read_sensors(self) -> None:
        """Read the sensors of cards, for the scrape that follows."""
        if self.face is not None:
            await self.face.node.collector.read_sensors()

    @property
    def _waits_for(self) -> list[str]:
        """Why nothing is known of the devices, or not what it should be."""
        if self.face is None:
            return [self._process.folder.lock.waits_for or FIRST_SCAN]
        state = self.face.node.state
        if state.ledger.error:
            return [state.ledger.error]
        return [FIRST_SCAN] if state.ledger.inventory is None else []


_NOBODY: Final[Holders] = {}


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)
