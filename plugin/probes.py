"""What the probes and `/devices` of a plugin answer."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from plugin.device_plugin.face import DevicePlugin
from plugin.settings import PluginSettings
from services.node.process_parts import NodeProcess
from services.node.registration import Registration, RegistrationState
from services.node.table import Table, rows
from services.process.errors import KubeletError
from services.process.http import Route
from services.process.text import count

CALL_SECONDS: Final = 2.0
"""For a socket of ours to answer a probe."""

SOURCE: Final = "plugin"
FIRST_SCAN: Final = "the first scan is under way"

ProbeResult = tuple[int, str]


class Probes:
    """Answers for a process in a mode; `serving` is what serves in it, once something does."""

    def __init__(self, settings: PluginSettings, process: NodeProcess) -> None:
        self.mode = settings.mode
        self.serving: DevicePlugin | None = None
        self._settings = settings
        self._process = process
        self.routes: Mapping[str, Route] = {
            "/healthz": self.healthz,
            "/readyz": self.readyz,
            "/devices": self.devices,
        }

    async def healthz(self) -> ProbeResult:
        """200 if the registered resources answer on their sockets; 503 with those that don't."""
        serving = self.serving
        # One that isn't registered doesn't count: without a kubelet the plugin is alive, and not
        # ready.
        registered = [
            each
            for each in (serving.resources.registrations.values() if serving else ())
            if each.state is RegistrationState.REGISTERED
        ]
        errors = [each for each in await asyncio.gather(*map(_error_of, registered)) if each]
        if errors:
            return HTTPStatus.SERVICE_UNAVAILABLE, _lines(*errors)
        return HTTPStatus.OK, _lines(f"ok: {count(len(registered), 'socket')} answered")

    async def readyz(self) -> ProbeResult:
        """200 if all is registered, and the files are there; 503 with the reasons."""
        serving = self.serving
        if serving is None:
            return HTTPStatus.SERVICE_UNAVAILABLE, _lines(self._waits_for)
        state = serving.node.state
        if state.scan_error or state.inventory is None:
            return HTTPStatus.SERVICE_UNAVAILABLE, _lines(state.scan_error or FIRST_SCAN)
        if errors := self._process.files.errors:
            return HTTPStatus.SERVICE_UNAVAILABLE, _lines("not ready", *errors)
        registrations = sorted(serving.resources.registrations.items())
        active = [each for _, each in registrations if each.devices]
        if not active:
            reasons = [problem.text for problem in state.inventory.problems]
            reasons += [
                f"{device.id}: {problem.text}"
                for device in state.advertised.not_offered
                for problem in device.reasons
            ]
            return HTTPStatus.OK, _lines("ok: nothing to register", *reasons)
        ready = all(each.state is RegistrationState.REGISTERED for each in active)
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        return status, _lines("ok" if ready else "not ready", *map(_line, active))

    async def devices(self) -> tuple[int, bytes]:
        """This node's devices and who has them; 503 before the first scan."""
        serving = self.serving
        if serving is None:
            table = self._settings.table(self.mode, SOURCE, (), [self._waits_for])
        else:
            table = await self._table(serving)
        # While another plugin serves here, or a read hangs, an empty table says nothing.
        has_scanned = serving is not None and serving.node.state.inventory is not None
        status = HTTPStatus.OK if has_scanned else HTTPStatus.SERVICE_UNAVAILABLE
        return status, msgspec.json.encode(table)

    async def _table(self, serving: DevicePlugin) -> Table:
        snapshot = await serving.holders.snapshot()
        state = serving.node.state
        problems = [FIRST_SCAN]
        if state.inventory is not None:
            problems = [problem.text for problem in state.inventory.problems]
        problems = [*filter(None, [state.scan_error]), *self._process.files.errors, *problems]
        problems += snapshot.problems
        devices = rows(state.advertised, snapshot.holders)
        return self._settings.table(state.mode, SOURCE, devices, problems)

    @property
    def _waits_for(self) -> str:
        return self._process.folder.lock.waits_for or FIRST_SCAN


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


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)
