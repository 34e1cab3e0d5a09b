"""What probes answer."""

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from plugin import process
from plugin.process import healthz, readyz
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
BROKEN = Device("p0", "", healthy=False, reasons=(Problem("no-fme", "p0 has no FME"),))


@dataclass
class FakeServer:
    error: str = ""
    replaces: "FakeRegistration | None" = None

    async def alive(self, _seconds: float) -> None:
        if self.replaces:
            self.replaces.server = FakeServer()
        if self.error:
            raise KubeletError(self.error)


@dataclass
class FakeRegistration:
    resource: str = "d/r"
    state: RegistrationState = RegistrationState.REGISTERED
    devices: Mapping[str, Device] = field(default_factory=lambda: ONE)
    error: str = ""
    server: FakeServer | None = None


def named(*registrations: FakeRegistration) -> dict[str, Registration]:
    return {each.resource: cast("Registration", each) for each in registrations}


async def test_alive_means_that_registered_sockets_answer() -> None:
    good, deaf = FakeServer(), FakeServer("d/q is deaf")
    waiting = FakeRegistration("d/w", RegistrationState.WAITING, server=FakeServer("closing"))
    replaced = FakeRegistration("d/x")
    replaced.server = FakeServer("gone", replaces=replaced)
    one, other = FakeRegistration("d/r", server=good), FakeRegistration("d/q", server=deaf)
    assert await healthz(named()) == (200, "ok: 0 sockets answer\n")
    assert await healthz(named(one, waiting)) == (200, "ok: 1 sockets answer\n")
    assert await healthz(named(FakeRegistration(server=None))) == (200, "ok: 1 sockets answer\n")
    assert await healthz(named(replaced)) == (200, "ok: 1 sockets answer\n")
    assert await healthz(named(one, other)) == (503, "d/q is deaf\n")


def known(inventory: Inventory | None, *not_offered: Device, error: str = "") -> NodeState:
    state = NodeState(PluginMode.AF)
    state.inventory, state.scan_error = inventory, error
    state.advertised = AdvertisedResources({}, not_offered, OfferMemory(PluginMode.AF))
    return state


NO_CARDS = Inventory(problems=(Problem("no-driver", "load the driver"),))
REGISTERED = FakeRegistration()
FAILED = FakeRegistration("d/q", RegistrationState.FAILED, error="nothing answers")
IDLE = FakeRegistration("d/q", RegistrationState.IDLE, devices={})


@pytest.mark.parametrize(
    ("state", "registrations", "status", "text"),
    [
        (known(Inventory()), [REGISTERED], 200, "ok\nd/r is registered (1 devices)\n"),
        (
            known(Inventory()),
            [REGISTERED, FAILED],
            503,
            (
                "not ready\nd/q could not register (1 devices): nothing answers\n"
                "d/r is registered (1 devices)\n"
            ),
        ),
        (known(Inventory()), [REGISTERED, IDLE], 200, "ok\nd/r is registered (1 devices)\n"),
        (
            known(NO_CARDS, BROKEN),
            [],
            200,
            "ok: nothing to register\nload the driver\np0: p0 has no FME\n",
        ),
        (known(None), [], 503, "the first scan is under way\n"),
        (known(Inventory(), error="the scan hangs"), [REGISTERED], 503, "the scan hangs\n"),
    ],
)
def test_ready_means_that_all_is_registered_or_there_is_nothing_to_register(
    state: NodeState, registrations: list[FakeRegistration], status: int, text: str
) -> None:
    assert readyz(state, named(*registrations)) == (status, text)


async def test_a_server_that_takes_connections_and_no_calls_makes_the_plugin_dead(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack.add_card(CardSpec())
    async with running(settings(short_dir)) as plugin:
        await kubelet.until(lambda: kubelet.allocatable == {AF: 1})
        registration = plugin.serving.registrations[AF]
        await eventually_async(lambda: registration.state is RegistrationState.REGISTERED)
        assert (await plugin.healthz())[0] == 200
        assert registration.server is not None
        path, registration.server.path = registration.server.path, short_dir / "deaf.sock"
        silent = f"{AF} doesn't answer on {short_dir}/deaf.sock: "
        assert await plugin.healthz() == (503, f"{silent}UNAVAILABLE\n")
        with socket.socket(socket.AF_UNIX) as deaf, monkeypatch.context() as impatient:
            impatient.setattr(process, "CALL_SECONDS", 0.2)
            deaf.bind(str(short_dir / "deaf.sock"))
            deaf.listen()
            status, text = await plugin.healthz()
        assert status == 503
        assert text.startswith(silent)
        # Whether it is ready is another question, and the kubelet's view is as before.
        assert (await plugin.readyz())[0] == 200
        assert kubelet.allocatable == {AF: 1}
        registration.server.path = path
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
        monkeypatch.setattr(process, "CALL_SECONDS", 0.2)
        status, text = await plugin.healthz()
        stuck.set()
    assert status == 503
    assert text.endswith(".sock: DEADLINE_EXCEEDED\n")


async def test_a_kubelet_that_is_away_makes_it_not_ready_and_not_dead(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec())
    async with running(settings(short_dir)) as plugin:

        async def is_ready() -> bool:
            return (await plugin.readyz())[0] == 200

        async def is_not_ready() -> bool:
            return (await plugin.readyz())[0] == 503

        await eventually_async(is_ready)
        await kubelet.stop()
        kubelet.delete_sockets(own=True)
        await eventually_async(is_not_ready)
        assert (await plugin.healthz())[0] == 200
