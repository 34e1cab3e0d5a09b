import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from plugin import probes
from plugin.registration import Registration, RegistrationState
from plugin.server import ResourceServer
from services.devices.model import Device, Inventory, PluginMode, Problem
from services.devices.resources import AdvertisedResources, OfferMemory
from services.node.state import NodeState
from services.process.errors import KubeletError
from simulator.cards import CardSpec, Rack
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import AF, running, settings
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

ONE = {"p0": Device("p0", "d/r", healthy=True)}


@dataclass
class FakeServer:
    error: str = ""
    called: float = 0.0
    calls: int = 0

    async def alive(self, seconds: float) -> None:
        assert seconds == probes.CALL_SECONDS
        self.calls += 1
        self.called = float(self.calls)
        if self.error:
            raise KubeletError(self.error)


@dataclass
class FakeEndpoint:
    resource: str = "d/r"
    state: RegistrationState = RegistrationState.REGISTERED
    devices: Mapping[str, Device] = field(default_factory=lambda: ONE)
    error: str = ""
    server: ResourceServer | None = None


def state(
    inventory: Inventory | None = Inventory(),  # noqa: B008 - a value
    advertised: AdvertisedResources | None = None,
    *,
    error: str = "",
) -> NodeState:
    made = NodeState(PluginMode.AF)
    made.inventory, made.scan_error = inventory, error
    made.advertised = advertised or made.advertised
    return made


async def health(*endpoints: FakeEndpoint) -> probes.Answer:
    return await probes.healthz(
        {str(n): cast("Registration", each) for n, each in enumerate(endpoints)}
    )


async def ready(node: NodeState, *endpoints: FakeEndpoint) -> probes.Answer:
    named = {each.resource: cast("Registration", each) for each in endpoints}
    return await probes.readyz(node, named)


def server(error: str = "") -> ResourceServer:
    return cast("ResourceServer", FakeServer(error))


async def test_alive_means_that_registered_sockets_answer() -> None:
    assert await health() == (200, "ok: 0 sockets answer\n")
    assert await health(FakeEndpoint(server=server())) == (200, "ok: 1 sockets answer\n")
    good, bad = FakeEndpoint(server=server()), FakeEndpoint(server=server("d/r is deaf"))
    assert await health(good, bad) == (503, "d/r is deaf\n")


async def test_many_sockets_are_called_in_turn() -> None:
    fakes = [FakeServer() for _ in range(2 * probes.MAX_CALLS + 1)]
    endpoints = [FakeEndpoint(server=cast("ResourceServer", each)) for each in fakes]
    assert await health(*endpoints) == (200, "ok: 8 of 17 sockets answer\n")
    await health(*endpoints)
    assert sum(each.calls for each in fakes) == 16
    assert {each.calls for each in fakes} == {0, 1}
    await health(*endpoints)
    assert {each.calls for each in fakes} == {1, 2}
    fakes[-1].error, fakes[-1].called = "the last is deaf", 0.5
    assert await health(*endpoints) == (503, "the last is deaf\n")


async def test_an_endpoint_between_two_registrations_is_not_dead() -> None:
    waiting = FakeEndpoint(state=RegistrationState.WAITING, server=server("closing"))
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
    waiting = FakeEndpoint("d/q", RegistrationState.FAILED, error="nothing answers")
    assert await ready(state(), FakeEndpoint()) == (
        200,
        "ok\nd/r is registered (1 devices)\n",
    )
    assert await ready(state(), FakeEndpoint(), waiting) == (
        503,
        (
            "not ready\nd/q could not register (1 devices): nothing answers\n"
            "d/r is registered (1 devices)\n"
        ),
    )


async def test_what_has_no_devices_any_more_needs_no_registration() -> None:
    idle = FakeEndpoint("d/q", RegistrationState.IDLE, devices={})
    assert (await ready(state(), FakeEndpoint(), idle))[0] == 200


async def test_nothing_to_register_is_ready_and_says_why() -> None:
    broken = Device("p0", "", healthy=False, reasons=(Problem("no-fme", "p0 has no FME"),))
    discovery = state(
        Inventory(problems=(Problem("no-driver", "load the driver"),)),
        AdvertisedResources({}, (broken,), OfferMemory(PluginMode.AF)),
    )
    assert await ready(discovery) == (
        200,
        "ok: nothing to register\nload the driver\np0: p0 has no FME\n",
    )


async def test_before_the_first_scan_and_while_scans_hang_it_is_not_ready() -> None:
    assert await ready(state(None)) == (503, "the first scan is under way\n")
    hanging = state(error="the scan hangs")
    assert await ready(hanging, FakeEndpoint()) == (503, "the scan hangs\n")


async def test_a_server_that_takes_connections_and_no_calls_makes_the_plugin_dead(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack.add_card(CardSpec())
    async with running(settings(short_dir)) as plugin:
        await kubelet.until(lambda: kubelet.allocatable == {AF: 1})
        endpoint = plugin.serving.registrations[AF]
        await eventually_async(lambda: endpoint.state is RegistrationState.REGISTERED)
        assert (await plugin.healthz())[0] == 200
        assert endpoint.server is not None
        path, endpoint.server.path = endpoint.server.path, short_dir / "deaf.sock"
        silent = f"{AF} doesn't answer on {short_dir}/deaf.sock: "
        assert await plugin.healthz() == (503, f"{silent}UNAVAILABLE\n")
        with socket.socket(socket.AF_UNIX) as deaf, monkeypatch.context() as impatient:
            impatient.setattr(probes, "CALL_SECONDS", 0.2)
            deaf.bind(str(short_dir / "deaf.sock"))
            deaf.listen()
            status, text = await plugin.healthz()
        assert status == 503
        assert text.startswith(silent)
        # Whether it is ready is another question, and the kubelet's view is as before.
        assert (await plugin.readyz())[0] == 200
        assert kubelet.allocatable == {AF: 1}
        endpoint.server.path = path
        assert (await plugin.healthz())[0] == 200


async def test_a_server_that_hangs_in_a_call_makes_the_plugin_dead(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack.add_card(CardSpec())
    stuck = asyncio.Event()
    stuck.set()
    answer = ResourceServer.GetDevicePluginOptions

    async def hangs(self: ResourceServer, request: Any, context: Any) -> Any:
        await stuck.wait()
        return await answer(self, request, context)

    monkeypatch.setattr(ResourceServer, "GetDevicePluginOptions", hangs)
    async with running(settings(short_dir)) as plugin:
        await kubelet.until(lambda: kubelet.allocatable == {AF: 1})
        await eventually_async(
            lambda: plugin.serving.registrations[AF].state is RegistrationState.REGISTERED
        )
        stuck.clear()
        with monkeypatch.context() as impatient:
            impatient.setattr(probes, "CALL_SECONDS", 0.2)
            status, text = await plugin.healthz()
        assert status == 503
        assert text.endswith(".sock: DEADLINE_EXCEEDED\n")
        stuck.set()
        assert (await plugin.healthz())[0] == 200


async def test_a_kubelet_that_is_away_makes_it_not_ready_and_not_dead(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec())
    async with running(settings(short_dir)) as plugin:
        await kubelet.until(lambda: kubelet.allocatable == {AF: 1})
        await eventually_async(lambda: _status(plugin.readyz, 200))
        await kubelet.stop()
        kubelet.delete_sockets(own=True)
        await eventually_async(lambda: _status(plugin.readyz, 503))
        assert (await plugin.healthz())[0] == 200


async def _status(probe: Callable[[], Awaitable[probes.Answer]], wanted: int) -> bool:
    return (await probe())[0] == wanted
