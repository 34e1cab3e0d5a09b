from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest

from plugin import probes
from plugin.discovery import Discovery
from plugin.endpoint import Endpoint, State
from plugin.server import ResourceServer
from services.domain.devices import Device, Inventory, PluginMode, Problem
from services.domain.errors import KubeletError
from services.domain.tree import Memory, Tree, empty_tree

pytestmark = pytest.mark.anyio

ONE = {"p0": Device("p0", "d/r", healthy=True)}


@dataclass
class FakeServer:
    error: str = ""

    async def alive(self, seconds: float) -> None:
        assert seconds == probes.CALL_SECONDS
        if self.error:
            raise KubeletError(self.error)


@dataclass
class FakeEndpoint:
    resource: str = "d/r"
    state: State = State.REGISTERED
    devices: Mapping[str, Device] = field(default_factory=lambda: ONE)
    trouble: str = ""
    server: ResourceServer | None = None


@dataclass
class FakeDiscovery:
    inventory: Inventory | None = field(default_factory=Inventory)
    tree: Tree = field(default_factory=lambda: empty_tree(PluginMode.AF))
    trouble: str = ""


async def health(*endpoints: FakeEndpoint) -> probes.Answer:
    return await probes.healthz(
        {str(n): cast("Endpoint", each) for n, each in enumerate(endpoints)}
    )


async def ready(discovery: FakeDiscovery, *endpoints: FakeEndpoint) -> probes.Answer:
    named = {each.resource: cast("Endpoint", each) for each in endpoints}
    return await probes.readyz(cast("Discovery", discovery), named)


def server(error: str = "") -> ResourceServer:
    return cast("ResourceServer", FakeServer(error))


async def test_alive_means_that_registered_sockets_answer() -> None:
    assert await health() == (200, "ok: 0 sockets answer\n")
    assert await health(FakeEndpoint(server=server())) == (200, "ok: 1 sockets answer\n")
    good, bad = FakeEndpoint(server=server()), FakeEndpoint(server=server("d/r is deaf"))
    assert await health(good, bad) == (503, "d/r is deaf\n")


async def test_an_endpoint_between_two_registrations_is_not_dead() -> None:
    waiting = FakeEndpoint(state=State.WAITING, server=server("closing"))
    assert (await health(waiting, FakeEndpoint(server=None)))[0] == 200


async def test_a_server_that_was_replaced_during_the_call_is_not_dead() -> None:
    endpoint = FakeEndpoint()

    class Replaced(FakeServer):
        async def alive(self, seconds: float) -> None:
            endpoint.server = server()
            await super().alive(seconds)

    endpoint.server = cast("ResourceServer", Replaced("gone"))
    assert (await health(endpoint))[0] == 200


async def test_ready_means_that_all_is_registered() -> None:
    waiting = FakeEndpoint("d/q", State.FAILED, trouble="nobody answers")
    assert await ready(FakeDiscovery(), FakeEndpoint()) == (
        200,
        "ok\nd/r is registered (1 devices)\n",
    )
    assert await ready(FakeDiscovery(), FakeEndpoint(), waiting) == (
        503,
        (
            "not ready\nd/q could not register (1 devices): nobody answers\n"
            "d/r is registered (1 devices)\n"
        ),
    )


async def test_what_has_no_devices_any_more_needs_no_registration() -> None:
    idle = FakeEndpoint("d/q", State.IDLE, devices={})
    assert (await ready(FakeDiscovery(), FakeEndpoint(), idle))[0] == 200


async def test_nothing_to_register_is_ready_and_says_why() -> None:
    broken = Device("p0", "", healthy=False, reasons=(Problem("no-fme", "p0 has no FME"),))
    discovery = FakeDiscovery(
        Inventory(problems=(Problem("no-driver", "load the driver"),)),
        Tree({}, (broken,), Memory(PluginMode.AF)),
    )
    assert await ready(discovery) == (
        200,
        "ok: nothing to register\nload the driver\np0: p0 has no FME\n",
    )


async def test_before_the_first_scan_and_while_scans_hang_it_is_not_ready() -> None:
    assert await ready(FakeDiscovery(inventory=None)) == (503, "the first scan is under way\n")
    hanging = FakeDiscovery(trouble="the scan hangs")
    assert await ready(hanging, FakeEndpoint()) == (503, "the scan hangs\n")
