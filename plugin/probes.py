"""Is this process alive, and is it ready? Two questions, answered separately.

Alive: our own sockets answer a real call. Ready: every resource is registered, or there is nothing
to register and it is known why. A kubelet that is away makes us not ready, and not dead.
"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from plugin.discovery import Discovery
from plugin.endpoint import Endpoint, State
from services.domain.errors import KubeletError

CALL_SECONDS: Final = 2.0

Answer = tuple[int, str]


async def healthz(endpoints: Mapping[str, Endpoint]) -> Answer:
    """200 if all registered resources answer on their sockets, 503 with who doesn't."""
    registered = [each for each in endpoints.values() if each.state is State.REGISTERED]
    troubles = await asyncio.gather(*(_trouble(each) for each in registered))
    silent = [trouble for trouble in troubles if trouble]
    if silent:
        return HTTPStatus.SERVICE_UNAVAILABLE, _lines(*silent)
    return HTTPStatus.OK, _lines(f"ok: {len(registered)} sockets answer")


async def _trouble(endpoint: Endpoint) -> str:
    server = endpoint.server
    if server is None:
        return ""
    try:
        await server.alive(CALL_SECONDS)
    except KubeletError as error:
        return str(error) if endpoint.server is server else ""  # else it was just replaced
    return ""


async def readyz(discovery: Discovery, endpoints: Mapping[str, Endpoint]) -> Answer:
    """200 if all is registered or nothing is there to be, 503 otherwise; says what is."""
    if discovery.trouble:
        return HTTPStatus.SERVICE_UNAVAILABLE, _lines(discovery.trouble)
    if discovery.inventory is None:
        return HTTPStatus.SERVICE_UNAVAILABLE, _lines("the first scan is under way")
    active = [endpoints[name] for name in sorted(endpoints) if endpoints[name].devices]
    if not active:
        why = [problem.message for problem in discovery.inventory.problems]
        why += [
            f"{device.id}: {problem.message}"
            for device in discovery.tree.unplaced
            for problem in device.reasons
        ]
        return HTTPStatus.OK, _lines("ok: nothing to register", *why)
    ready = all(each.state is State.REGISTERED for each in active)
    status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
    return status, _lines("ok" if ready else "not ready", *map(_line, active))


def _line(endpoint: Endpoint) -> str:
    trouble = f": {endpoint.trouble}" if endpoint.trouble else ""
    return f"{endpoint.resource} {endpoint.state} ({len(endpoint.devices)} devices){trouble}"


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)
