"""The liveness and readiness probes of the plugin.

Alive: our own sockets answer a call. Ready: every resource is registered, or there is nothing to
register and the reason is known. Without a kubelet the plugin is alive and not ready.
"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from plugin.registration import Registration, RegistrationState
from services.node.state import NodeState
from services.process.errors import KubeletError

CALL_SECONDS: Final = 2.0

MAX_CALLS: Final = 8
"""Sockets that one probe calls. They belong to one process and one event loop, and a call costs a
millisecond or two; those that were called the longest ago come first."""

Answer = tuple[int, str]


async def healthz(registrations: Mapping[str, Registration]) -> Answer:
    """200 if registered resources answer on their sockets; 503 with those that don't."""
    registered = [
        each for each in registrations.values() if each.state is RegistrationState.REGISTERED
    ]
    called = sorted(registered, key=_last_called)[:MAX_CALLS]
    errors = await asyncio.gather(*(_error_of(each) for each in called))
    silent = [error for error in errors if error]
    if silent:
        return HTTPStatus.SERVICE_UNAVAILABLE, _lines(*silent)
    count, all_of_them = len(called), len(registered)
    shown = f"{count}" if count == all_of_them else f"{count} of {all_of_them}"
    return HTTPStatus.OK, _lines(f"ok: {shown} sockets answer")


def _last_called(registration: Registration) -> float:
    return registration.server.called if registration.server is not None else 0.0


async def _error_of(registration: Registration) -> str:
    server = registration.server
    if server is None:
        return ""
    try:
        await server.alive(CALL_SECONDS)
    except KubeletError as error:
        return str(error) if registration.server is server else ""  # else it was just replaced
    return ""


async def readyz(state: NodeState, registrations: Mapping[str, Registration]) -> Answer:
    """200 if everything is registered or there is nothing to register, else 503; with reasons."""
    if state.scan_error:
        return HTTPStatus.SERVICE_UNAVAILABLE, _lines(state.scan_error)
    if state.inventory is None:
        return HTTPStatus.SERVICE_UNAVAILABLE, _lines("the first scan is under way")
    active = [registrations[name] for name in sorted(registrations) if registrations[name].devices]
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
