"""The plugin and a kubelet that does all that kubelets do, in one process."""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from plugin.process import Plugin
from services.devices.model import PluginMode
from services.kubelet.sockets import plugins_folder, registration_socket
from services.node import registration
from services.node.registration import RegistrationState
from services.process.errors import AccelbindError
from simulator.cards import CardSpec, Rack
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import AF, Bed, is_ready, running, serving, settings
from tests.support import eventually_async

REGISTERED = RegistrationState.REGISTERED


@pytest.fixture(autouse=True)
def card(rack: Rack) -> str:
    """The address of the first card, which is there from the start."""
    return rack.add_card(CardSpec())


def state(plugin: Plugin) -> RegistrationState | None:
    found = serving(plugin).resources.registrations.get(AF)
    return found.state if found else None


def trouble(plugin: Plugin) -> str:
    found = serving(plugin).resources.registrations.get(AF)
    return found.error if found else ""


# Kubelets that come, go and restart --------------------------------------------------------------


async def test_a_kubelet_that_comes_later_is_waited_for(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(settings(short_dir)) as plugin:
        await eventually_async(lambda: state(plugin) is RegistrationState.WAITING)
        status, text = await plugin.probes.readyz()
        assert status == 503
        assert f"{AF} waits for the kubelet (1 device)" in text
        assert (await plugin.probes.healthz())[0] == 200
        async with KubeletStandIn(short_dir / "k", node_name="n1") as kubelet:
            await kubelet.until(lambda: kubelet.allocatable == {AF: 1})
    assert capsys.readouterr().out.count("kubelet is away: waiting for its socket") == 1


async def test_a_refused_registration_is_tried_again_and_said_once(
    bed: Bed, capsys: pytest.CaptureFixture[str]
) -> None:
    async with AsyncExitStack() as stack:
        with bed.kubelet.faulty(refuse="the node is not in the mood"):
            plugin = await stack.enter_async_context(bed.running())
            await bed.kubelet.until(lambda: bed.calls("Register") >= 3)
            expected = (
                "the kubelet does not accept the registration: UNKNOWN: the node is not in the mood"
            )
            assert trouble(plugin) == expected
            status, text = await plugin.probes.readyz()
            assert status == 503
            assert expected in text
        await bed.offers(1)
        await eventually_async(lambda: trouble(plugin) == "")
    assert capsys.readouterr().out.count("[warning  ] registration failed") == 1


async def test_a_registration_that_nothing_comes_of_is_tried_again(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "OPEN_SECONDS", 0.05)
    with bed.kubelet.faulty(ignore=True):
        async with bed.running() as plugin:
            await bed.kubelet.until(lambda: bed.calls("Registered") >= 2)
            assert "hasn't asked for the devices within" in trouble(plugin)


async def test_another_kubelet_is_registered_with_before_the_first_has_asked(bed: Bed) -> None:
    with bed.kubelet.faulty(ignore=True):
        async with bed.running() as plugin:
            await bed.kubelet.until(lambda: bed.calls("Registered") == 1)
            os.utime(registration_socket(bed.kubelet.folder), (1, 1))  # it looks like another one's
            await bed.kubelet.until(lambda: bed.calls("Registered") == 2)
            assert trouble(plugin) == "the kubelet restarted during the registration"


HOOK = {"mode": PluginMode.REGION, "programming": "oci-hook"}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"kubelet_dir": Path("/tmp") / ("d" * 90)}, "too long for a unix socket's path"),
        ({"ports_file": Path("/gone/ports")}, "can't write the ports file /gone/ports"),
        (HOOK | {"state_dir": Path("/dev/null/state")}, "the OCI hook's socket"),
    ],
)
async def test_an_obstacle_to_a_start_ends_the_plugin_in_words(
    short_dir: Path, values: dict[str, Any], text: str
) -> None:
    options = settings(short_dir, cdi_dir=short_dir / "cdi", **values)
    with capture_logs() as logs, pytest.raises(AccelbindError, match=text):
        async with asyncio.timeout(60):
            await Plugin(options).serve(asyncio.Event())
    assert [line["event"] for line in logs if line["log_level"] in {"error", "critical"}] == []


async def test_of_two_plugins_the_second_waits_through_restarts_of_the_kubelet(bed: Bed) -> None:
    folder, seen = plugins_folder(bed.folder / "k"), set()
    async with AsyncExitStack() as stack:
        async with bed.running():
            await bed.offers(1)
            other = bed.running(ports_file=bed.folder / "second")
            second = await stack.enter_async_context(other)
            await eventually_async(lambda: second.process.folder.lock.waits_for)
            assert second.face is None, "nothing is composed"
            for _ in range(3):
                seen |= {path.name.split("-")[1] for path in folder.glob("accelbind-*.sock")}
                await bed.kubelet.restart()
                await bed.offers(1)
            assert not await is_ready(second)
        assert len(seen) == 1, "all sockets were the first one's"
        await bed.offers(0)
        await bed.offers(1)
        await eventually_async(lambda: is_ready(second))  # the kubelet asks before it answers


# Cards that come, go and break -------------------------------------------------------------------


async def test_a_removed_last_card_leaves_a_capacity_of_zero_even_if_the_stream_was_cut(
    bed: Bed, card: str
) -> None:
    async with bed.running() as plugin:
        await bed.offers(1)
        with bed.kubelet.faulty(refuse="not now"):
            await bed.kubelet.cut_stream(AF)
            bed.rack.remove_card(card)
            await eventually_async(lambda: serving(plugin).node.state.ledger.offer.resources == {})
        await bed.kubelet.until(lambda: not any(bed.kubelet.capacity.values()))
