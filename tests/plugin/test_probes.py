"""What probes answer."""

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
from services.devices.reasons import advised
from services.devices.resources import AdvertisedResources
from services.node.kept_files import KeptFiles
from services.node.metrics import NodeMetrics
from services.node.registration import RegistrationState
from services.process.errors import KubeletError
from services.process.problem import Problem
from tests.plugin.support import settings
from tests.services.node.support import set_state

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


@pytest.fixture
def face(short_dir: Path) -> DevicePlugin:
    """A plugin that has scanned nothing yet."""
    options = settings(short_dir)
    return DevicePlugin(PluginMode.AF, options, Plugin(options).process)


def serving(face: DevicePlugin, *registrations: FakeRegistration) -> Probes:
    """The probes of a plugin that serves these."""
    face.resources.registrations = cast("Any", {each.resource: each for each in registrations})
    files = SimpleNamespace(files=KeptFiles(NodeMetrics(CollectorRegistry()).files))
    probes = Probes(PluginSettings(node_name="n1"), cast("Any", files))
    probes.face = face
    return probes


async def test_alive_means_that_registered_sockets_answer(face: DevicePlugin) -> None:
    good, deaf = FakeServer(), FakeServer("d/q is deaf")
    waiting = FakeRegistration("d/w", RegistrationState.WAITING, server=FakeServer("closing"))
    replaced = FakeRegistration("d/x")
    replaced.server = FakeServer("gone", replaces=replaced)
    one, other = FakeRegistration("d/r", server=good), FakeRegistration("d/q", server=deaf)
    assert await serving(face).healthz() == (200, "ok\n")
    assert await serving(face, one, waiting).healthz() == (200, "ok\n")
    for between in (FakeRegistration(server=None), replaced):
        assert await serving(face, between).healthz() == (200, "ok\n")
    assert await serving(face, one, other).healthz() == (503, "d/q is deaf\n")


NO_CARDS = Inventory(problems=(Problem("no-driver", "load the driver"),))
REGISTERED = FakeRegistration()
FAILED = FakeRegistration("d/q", RegistrationState.FAILED, error="nothing answers")
IDLE = FakeRegistration("d/q", RegistrationState.WAITING, devices={})


@pytest.mark.parametrize(
    ("inventory", "error", "registrations", "status", "text"),
    [
        (Inventory(), "", [REGISTERED], 200, "ok\nd/r is registered (1 device)\n"),
        (
            Inventory(),
            "",
            [REGISTERED, FAILED],
            503,
            "not ready\nd/q could not register (1 device): nothing answers\n",
        ),
        (Inventory(), "", [REGISTERED, IDLE], 200, "ok\nd/r is registered (1 device)\n"),
        (NO_CARDS, "", [], 200, "ok\nnothing to register\nload the driver\np0: p0 has no FME\n"),
        (None, "", [], 503, "the first scan is under way\n"),
        (Inventory(), "the scan hangs", [REGISTERED], 503, "the scan hangs\n"),
    ],
)
async def test_ready_means_that_all_is_registered_or_there_is_nothing_to_register(
    face: DevicePlugin,
    *,
    inventory: Inventory | None,
    error: str,
    registrations: list[FakeRegistration],
    status: int,
    text: str,
) -> None:
    set_state(face.node.state, inventory, AdvertisedResources({}, (BROKEN,)), error)
    assert await serving(face, *registrations).readyz() == (status, text)


async def test_the_devices_come_with_all_that_is_wrong_on_the_node(face: DevicePlugin) -> None:
    probes = serving(face)
    status, text = await probes.devices()
    assert (status, json.loads(text)["problems"][0]) == (503, "the first scan is under way")
    offer = AdvertisedResources({}, (BROKEN,))
    set_state(face.node.state, NO_CARDS, offer, "no thread")
    status, text = await probes.devices()
    answer = json.loads(text)
    assert (status, [each["device"] for each in answer["devices"]]) == (200, ["p0"])
    assert answer["problems"][:2] == ["no thread", advised(*NO_CARDS.problems)]
