"""What probes answer."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from plugin.device_plugin.face import DevicePlugin
from plugin.probes import Probes
from plugin.process import Plugin
from plugin.settings import PluginSettings
from services.devices.model import Device, Inventory, PluginMode
from services.devices.resources import AdvertisedResources
from services.node.kept_files import KeptFiles
from services.node.ledger import Rules
from services.node.metrics import NodeMetrics
from services.node.registration import RegistrationState
from services.node.state import NodeState
from services.process.errors import KubeletError
from services.process.problem import Problem
from tests.plugin.support import settings
from tests.services.node.support import set_state

pytestmark = pytest.mark.anyio

ONE = {"p0": Device("p0", "d/r")}
BROKEN = Device("p0", "", reasons=(Problem("no-fme", "p0 has no FME"),))


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


def probes_of(*registrations: FakeRegistration, state: NodeState | None = None) -> Probes:
    """The probes of a plugin that serves these."""
    resources = SimpleNamespace(registrations={each.resource: each for each in registrations})
    parts: Any = SimpleNamespace(resources=resources, node=SimpleNamespace(state=state))
    process = SimpleNamespace(files=KeptFiles(NodeMetrics(CollectorRegistry()).files))
    probes = Probes(PluginSettings(node_name="n1"), cast("Any", process))
    probes.serving = parts
    return probes


async def test_alive_means_that_registered_sockets_answer() -> None:
    good, deaf = FakeServer(), FakeServer("d/q is deaf")
    waiting = FakeRegistration("d/w", RegistrationState.WAITING, server=FakeServer("closing"))
    replaced = FakeRegistration("d/x")
    replaced.server = FakeServer("gone", replaces=replaced)
    one, other = FakeRegistration("d/r", server=good), FakeRegistration("d/q", server=deaf)
    assert await probes_of().healthz() == (200, "ok: 0 sockets answered\n")
    assert await probes_of(one, waiting).healthz() == (200, "ok: 1 socket answered\n")
    for between in (FakeRegistration(server=None), replaced):
        assert await probes_of(between).healthz() == (200, "ok: 1 socket answered\n")
    assert await probes_of(one, other).healthz() == (503, "d/q is deaf\n")


def known(inventory: Inventory | None, *not_offered: Device, error: str = "") -> NodeState:
    state = NodeState(Rules())
    set_state(state, inventory, AdvertisedResources({}, not_offered), error)
    return state


NO_CARDS = Inventory(problems=(Problem("no-driver", "load the driver"),))
REGISTERED = FakeRegistration()
FAILED = FakeRegistration("d/q", RegistrationState.FAILED, error="nothing answers")
IDLE = FakeRegistration("d/q", RegistrationState.WAITING, devices={})


@pytest.mark.parametrize(
    ("state", "registrations", "status", "text"),
    [
        (known(Inventory()), [REGISTERED], 200, "ok\nd/r is registered (1 device)\n"),
        (
            known(Inventory()),
            [REGISTERED, FAILED],
            503,
            (
                "not ready\nd/q could not register (1 device): nothing answers\n"
                "d/r is registered (1 device)\n"
            ),
        ),
        (known(Inventory()), [REGISTERED, IDLE], 200, "ok\nd/r is registered (1 device)\n"),
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
async def test_ready_means_that_all_is_registered_or_there_is_nothing_to_register(
    state: NodeState, registrations: list[FakeRegistration], status: int, text: str
) -> None:
    assert await probes_of(*registrations, state=state).readyz() == (status, text)


async def test_the_devices_come_with_all_that_is_wrong_on_the_node(short_dir: Path) -> None:
    options = settings(short_dir)
    process = Plugin(options).process
    probes = Probes(options, process)
    assert (await probes.readyz())[0] == 503
    status, text = await probes.devices()
    assert (status, json.loads(text)["problems"]) == (503, ["the first scan is under way"])
    async with asyncio.TaskGroup() as group:
        probes.serving = DevicePlugin(PluginMode.AF, options, process, group)
        status, text = await probes.devices()
        assert (status, json.loads(text)["problems"][0]) == (503, "the first scan is under way")
        offer = AdvertisedResources({}, (BROKEN,))
        set_state(probes.serving.node.state, NO_CARDS, offer, "no thread")
        status, text = await probes.devices()
    answer = json.loads(text)
    assert (status, [each["device"] for each in answer["devices"]]) == (200, ["p0"])
    assert answer["problems"][:2] == ["no thread", "load the driver"]
