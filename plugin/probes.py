"""What the probes and `/devices` of a plugin answer."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from plugin.node_parts import NodeParts
from plugin.registration import Registration, RegistrationState
from services.node.discovery import NodeState
from services.node.table import Table, rows
from services.process.errors import KubeletError
from services.process.http import Json

CALL_SECONDS: Final = 2.0
"""For a socket of ours to answer a probe."""

ProbeResult = tuple[int, str]


async def healthz(registrations: Mapping[str, Registration]) -> ProbeResult:
    """200 if registered resources answer on their sockets; 503 with those that don't.

    Without a kubelet the plugin is alive, and not ready.
    """
    registered = [
        each for each in registrations.values() if each.state is RegistrationState.REGISTERED
    ]
    errors = [each for each in await asyncio.gather(*map(_error_of, registered)) if each]
    if errors:
        return HTTPStatus.SERVICE_UNAVAILABLE, _lines(*errors)
    return HTTPStatus.OK, _lines(f"ok: {len(registered)} sockets answer")


async def _error_of(registration: Registration) -> str:
    server = registration.server
    if server is None:
        return ""
    try:
        await server.alive(CALL_SECONDS)
    except KubeletError as error:
        return str(error) if registration.server is server else ""  # else it was just replaced
    return ""


def readyz(state: NodeState, registrations: Mapping[str, Registration]) -> ProbeResult:
    """200 if everything is registered or there is nothing to register, else 503; with reasons."""
    if state.scan_error:
        return HTTPStatus.SERVICE_UNAVAILABLE, _lines(state.scan_error)
    if state.inventory is None:
        return HTTPStatus.SERVICE_UNAVAILABLE, _lines("the first scan is under way")
    active = [each for _, each in sorted(registrations.items()) if each.devices]
    if not active:
        reasons = [problem.message for problem in state.inventory.problems]
        reasons += [
            f"{device.id}: {problem.message}"
            for device in state.advertised.not_offered
            for problem in device.reasons
        ]
        return HTTPStatus.OK, _lines("ok: nothing to register", *reasons)
    ready = all(each.state is RegistrationState.REGISTERED for each in active)
    status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
    return status, _lines("ok" if ready else "not ready", *map(_line, active))


def _line(registration: Registration) -> str:
    error = f": {registration.error}" if registration.error else ""
    count = len(registration.devices)
    return f"{registration.resource} {registration.state} ({count} devices){error}"


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


async def devices(parts: NodeParts) -> ProbeResult:
    """This node's devices; the kubelet is asked who has them, unless its answer is a second old.

    Before the first scan (another plugin serves here, or a read hangs) the status is 503: the
    answer then says nothing about the node's devices.
    """
    snapshot = await parts.holders.snapshot()
    state, settings = parts.state, parts.settings
    problems = ["the first scan is under way"]
    if state.inventory is not None:
        problems = [problem.message for problem in state.inventory.problems]
    if state.scan_error:
        problems.insert(0, state.scan_error)
    table = Table(
        node=settings.node_name,
        mode=state.advertised.memory.mode.value,
        root=str(settings.root),
        kubelet_dir=str(settings.kubelet_dir),
        source="plugin",
        devices=rows(state.advertised, snapshot.holders),
        problems=(*problems, *map(str, parts.permissions.missing), *snapshot.problems),
    )
    status = HTTPStatus.SERVICE_UNAVAILABLE if state.inventory is None else HTTPStatus.OK
    return status, Json(msgspec.json.encode(table).decode())
