"""A node that moves from the device plugin to DRA and back, with a kubelet stand-in."""

from typing import Any

import pytest

from plugin.dra import leftover_resources
from services.devices.model import PluginMode
from simulator.cards import NLB0
from simulator.kubelet.other_plugin import OtherPlugin
from simulator.kubelet.pods import PodState
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.dra.support import Bed, extended_claim, parts, result, with_claim
from tests.plugin.support import Pods, container, functions, pod, running, settings
from tests.services.building import REGION
from tests.support import eventually_async

REQUEST = "container-0-request-0"


@pytest.fixture(autouse=True)
def very_soon(soon: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 - it only has to run
    """Let processes of this machine notice soon what the kubelet counts."""
    monkeypatch.setattr(leftover_resources, "CHECK_SECONDS", 0.05)


def of_plugin(pods: Pods, name: str) -> dict[str, Any]:
    return pods.add(pod(name, container("c", REGION, 1, functions(NLB0))))


async def of_claim(bed: Bed, kubelet: KubeletStandIn, name: str, device: str) -> PodState:
    """A pod that requests the same resource, of which the scheduler made a claim."""
    owner = pod(name, container("c", REGION, 1, functions(NLB0)))
    owner = with_claim(owner, (REQUEST, "c", REGION))
    bed.api.put(owner)
    await bed.ready(extended_claim(owner, result(device, REQUEST)))
    state = await kubelet.admit(owner)
    await kubelet.until(lambda: state["c"].running)
    return state


def calls(kubelet: KubeletStandIn, method: str) -> int:
    return sum(each.method == method and each.resource == REGION for each in kubelet.calls)


def is_served(kubelet: KubeletStandIn) -> bool:
    return not kubelet.devices.registered.registered[REGION].stopped


@pytest.mark.usefixtures("driver")
async def test_a_node_moves_to_dra_and_back_without_a_restart_of_the_kubelet(
    bed: Bed, kubelet: KubeletStandIn
) -> None:
    """Mode region has PreStartContainer, which no pod of a claim can answer."""
    bed.add_fpga()
    bed.add_fpga()
    bed.install(NLB0)
    pods = Pods()
    options = settings(bed.folder, mode=PluginMode.REGION)
    async with running(options, pods):
        await kubelet.until(lambda: kubelet.allocatable.get(REGION) == 2)
        held = await kubelet.settled(await kubelet.admit(of_plugin(pods, "of-the-plugin")))
        assert held["c"].running
    (mine,) = kubelet.in_use(REGION)
    async with bed.running() as dra:
        by_name = parts(dra).state.ledger.by_name
        (free,) = (name for name, each in by_name.items() if each.device.id != mine)
        given = await of_claim(bed, kubelet, "of-a-claim", free)
        assert calls(kubelet, "Register") == 2
        assert kubelet.allocatable[REGION] == kubelet.capacity[REGION] == 0
        await kubelet.restart_container(held, "c")  # of the plugin: it starts unasked
        await kubelet.until(lambda: held["c"].running)
        # The pod still has its device, and the kubelet would forget what nobody registers.
        await kubelet.restart()
        await kubelet.until(lambda: is_served(kubelet))
        assert calls(kubelet, "Register") == 3
        await kubelet.delete_pod(held)
        await kubelet.until(lambda: not is_served(kubelet))
        await kubelet.restart_container(given, "c")
        await kubelet.until(lambda: given["c"].running)
        assert parts(dra).leftover_resources.problems() == []
        await kubelet.delete_pod(given)
    async with running(options, pods):
        await kubelet.until(lambda: kubelet.allocatable.get(REGION) == 2)
        back = await kubelet.settled(await kubelet.admit(of_plugin(pods, "back")))
        assert back["c"].running


async def test_a_resource_that_another_plugin_serves_is_left_to_it(
    bed: Bed, kubelet: KubeletStandIn
) -> None:
    """Also one that it has taken over since."""
    bed.add_fpga()
    other = OtherPlugin(kubelet.folder, ["a"], resource=REGION)  # type: ignore[abstract]
    async with bed.running() as dra:
        async with other:
            await kubelet.until(lambda: kubelet.allocatable.get(REGION) == 1)
            for _ in range(2):
                await parts(dra).leftover_resources.check()
            assert parts(dra).leftover_resources.resources() == []
        await kubelet.until(lambda: calls(kubelet, "Register") == 2)
        assert parts(dra).leftover_resources.problems() == []
    assert calls(kubelet, "Register") == 2


@pytest.mark.usefixtures("driver")
async def test_an_obstacle_to_the_withdrawal_is_shown_with_the_devices(
    bed: Bed, kubelet: KubeletStandIn
) -> None:
    bed.add_fpga()
    async with running(settings(bed.folder, mode=PluginMode.REGION), Pods()):
        await kubelet.until(lambda: kubelet.allocatable.get(REGION) == 1)
    kubelet.set_faults(refuse="not today")
    async with bed.running() as dra:

        async def shows(text: str) -> bool:
            return text in str((await dra.probes.devices())[1])

        await eventually_async(lambda: bool(parts(dra).leftover_resources.problems()))
        assert await shows("not today")
        kubelet.set_faults(refuse="")
        await kubelet.until(lambda: calls(kubelet, "Disconnected") == 2)
        await eventually_async(lambda: not parts(dra).leftover_resources.problems())
        checkpoint = kubelet.folder / "device-plugins/kubelet_internal_checkpoint"
        checkpoint.write_text("{")
        await eventually_async(lambda: bool(parts(dra).leftover_resources.problems()))
        assert await shows("is not a checkpoint of the kubelet")
        checkpoint.unlink()
        await eventually_async(lambda: not parts(dra).leftover_resources.problems())
