"""Is this process alive, and is it ready? Two questions, answered separately.

Alive: our own sockets answer a real call. Ready: every resource is registered, or there is nothing
to register and it is known why. A kubelet that is away makes us not ready, and not dead.
"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from plugin.endpoint import Endpoint, State
from services.node.discovery import Discovery
from services.process.errors import KubeletError

CALL_SECONDS: Final = 2.0

MOST_CALLS: Final = 8
"""Sockets that one probe calls. They are of one process and one event loop, and a call with its
connection costs a millisecond or two; those that were called the longest ago come first, so that
probe by probe all have their turn."""

Answer = tuple[int, str]


async def healthz(endpoints: Mapping[str, Endpoint]) -> Answer:
    """200 if registered resources answer on their sockets, 503 with who doesn't."""
    registered = [each for each in endpoints.values() if each.state is State.REGISTERED]
    called = sorted(registered, key=_last_called)[:MOST_CALLS]
    troubles = await asyncio.gather(*(_trouble(each) for each in called))
    silent = [trouble for trouble in troubles if trouble]
    if silent:
        return HTTPStatus.SERVICE_UNAVAILABLE, _lines(*silent)
    count, all_of_them = len(called), len(registered)
    shown = f"{count}" if count == all_of_them else f"{count} of {all_of_them}"
    return HTTPStatus.OK, _lines(f"ok: {shown} sockets answer")


def _last_called(endpoint: Endpoint) -> float:
    return endpoint.server.called if endpoint.server is not None else 0.0


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
            for device in discovery.tree.not_offered
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
