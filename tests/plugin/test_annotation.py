"""The node's annotation is followed, whatever the API server does.

API server, kubelet and plugin are in this process, over real TLS and real sockets.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from plugin import process
from plugin.node_mode import ANNOTATION
from plugin.process import Plugin
from services.devices.model import PluginMode
from services.kube import node_watcher
from simulator.apiserver.standin import ApiServerStandIn
from simulator.cards import A10_INTERFACE, NLB0, CardSpec
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import (
    AF,
    REGION,
    Bed,
    container,
    functions,
    pod,
    running,
    serving,
    settings,
)
from tests.plugin.test_process import sockets
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

PATIENCE = 90.0
"""Seconds for a process to start and register, on a machine that is busy with others."""


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServerStandIn]:
    async with ApiServerStandIn(tmp_path) as standin:
        yield standin


@pytest.fixture(autouse=True)
def quick_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the node be read as often as it changes, by plugins in this process."""
    monkeypatch.setattr(node_watcher, "READ_SECONDS", 0.02)


def annotate(api: ApiServerStandIn, mode: str | None) -> None:
    """Make the node, or change it."""
    annotations = {} if mode is None else {ANNOTATION: mode}
    metadata = {"name": "n1", "annotations": annotations}
    api.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": {}})


def mapping(name: str, afu: str = "") -> dict[str, Any]:
    """A function by its name, or a region."""
    region = {"interfaceId": A10_INTERFACE}
    return {
        "apiVersion": "fpga.intel.com/v2",
        "kind": "AcceleratorFunction" if afu else "FpgaRegion",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": region | {"afuId": afu, "mode": "region"} if afu else region,
    }


def with_api(bed: Bed, api: ApiServerStandIn, **values: Any) -> AbstractAsyncContextManager[Plugin]:
    return running(settings(bed.folder, **values), api=api)


async def offers(kubelet: KubeletStandIn, **counts: int) -> None:
    """Wait until just this is offered, and everything else that ever was has capacity 0."""
    wanted = {{"af": AF, "region": REGION}[key]: n for key, n in counts.items()}

    def as_wanted() -> bool:
        offered = {name: count for name, count in kubelet.capacity.items() if count}
        return offered == wanted and kubelet.allocatable.items() >= wanted.items()

    await kubelet.until(as_wanted, timeout=PATIENCE)


def has_registered(bed: Bed, times: int) -> bool:
    return bed.calls("Registered") >= times


def events(api: ApiServerStandIn, reason: str) -> list[dict[str, Any]]:
    return [each for each in api.objects("Event") if each["reason"] == reason]


async def told(api: ApiServerStandIn, reason: str, text: str) -> dict[str, Any]:
    return await eventually_async(
        lambda: next((each for each in events(api, reason) if text in each["message"]), None),
        timeout=PATIENCE,
        what=f"an Event {reason} that says {text!r}",
    )


def sample(plugin: Plugin, name: str, **labels: str) -> float | None:
    return plugin.parts.registry.get_sample_value(name, labels)


async def test_the_annotation_is_followed_and_pods_run_on(
    bed: Bed, api: ApiServerStandIn, figure: Callable[[str], None]
) -> None:
    for _ in range(2):
        bed.rack.add_card(CardSpec())
    bed.record_ports()
    annotate(api, None)
    async with with_api(bed, api):
        await offers(bed.kubelet, af=2)
        started = await bed.start("p", container("c", AF))

        annotate(api, "region")
        began = time.monotonic()
        await bed.kubelet.until(lambda: bed.kubelet.capacity.get(REGION) == 2, timeout=PATIENCE)
        figure(f"another mode is served {time.monotonic() - began:.3f} s after the annotation")
        assert started["c"].running
        assert bed.kubelet.in_use(AF) == {"dfl-port.0"}
        assert bed.kubelet.allocatable[REGION] == 1, "the other one has a port that a pod has"
        spec = pod("q", container("c", REGION, 1, functions(NLB0)))
        api.put(spec)
        api.put(mapping("nlb0", NLB0))
        wants = await bed.kubelet.settled(await bed.kubelet.admit(spec))
        assert wants["c"].running, "the policy of mode region asks this API server"
        await eventually_async(lambda: len(sockets(bed.folder)) == 2)


async def test_two_modes_serve_the_same_resource_one_after_the_other(
    bed: Bed, api: ApiServerStandIn
) -> None:
    bed.rack.add_card(CardSpec())
    annotate(api, "region")
    spec = pod("p", container("c", REGION))
    api.put(spec)
    api.put(mapping("devel"))
    async with with_api(bed, api):
        await offers(bed.kubelet, region=1)
        annotate(api, "regiondevel")
        await bed.kubelet.until(partial(has_registered, bed, 2))
        await offers(bed.kubelet, region=1)
        given = await bed.kubelet.settled(await bed.kubelet.admit(spec))
        assert {each.container_path for each in given["c"].granted.devices} >= {"/dev/dfl-fme.0"}


async def test_an_annotation_that_names_no_mode_keeps_the_one_before(
    bed: Bed, api: ApiServerStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    bed.rack.add_card(CardSpec())
    annotate(api, "region")
    async with with_api(bed, api, mode=PluginMode.UNITS) as plugin:
        await offers(bed.kubelet, region=1)
        assert set(bed.kubelet.capacity) == {REGION}, "nothing was offered in the mode of the flag"
        annotate(api, "nonsense")
        await told(api, "ModeAnnotationInvalid", '"nonsense", which is none of af, region')
        assert sample(plugin, "accelbind_node_mode_annotation_invalid") == 1
        assert sample(plugin, "accelbind_node_mode", mode="region", source="annotation") == 1
        await offers(bed.kubelet, region=1)
        annotate(api, "af")
        await told(api, "ModeChanged", "mode af: its annotation says so; it was region")
        await offers(bed.kubelet, af=1)
    assert capsys.readouterr().out.count("the node's annotation is not understood") == 1


async def test_what_the_kubelet_could_not_be_told_of_one_mode_it_is_told_in_the_next(
    bed: Bed, api: ApiServerStandIn
) -> None:
    bed.rack.add_card(CardSpec())
    annotate(api, None)
    async with with_api(bed, api) as plugin:
        await offers(bed.kubelet, af=1)
        with bed.kubelet.faulty(refuse="not now"):
            await bed.kubelet.cut_stream(AF)
            annotate(api, "region")
            await eventually_async(lambda: serving(plugin).mode is PluginMode.REGION)
        await offers(bed.kubelet, region=1)


async def test_an_api_server_that_is_away_delays_and_never_stops(
    bed: Bed,
    api: ApiServerStandIn,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "KNOWN_SECONDS", 0.2)
    bed.rack.add_card(CardSpec())
    annotate(api, "region")
    async with contextlib.AsyncExitStack() as stack:
        async with api.away():
            await stack.enter_async_context(with_api(bed, api))
            await offers(bed.kubelet, af=1)
            assert "hasn't returned this node's annotations yet" in capsys.readouterr().out
        await offers(bed.kubelet, region=1)
        async with api.away():
            annotate(api, "af")
            await bed.kubelet.restart()  # at the same moment
            await bed.kubelet.until(lambda: sum(bed.kubelet.allocatable.values()) == 1)
        await offers(bed.kubelet, af=1)


@contextlib.asynccontextmanager
async def failing(api: ApiServerStandIn) -> AsyncIterator[None]:
    """An outage that a load balancer answers for."""
    with api.faults.failing(503):
        yield


@pytest.mark.parametrize("outage", [ApiServerStandIn.away, failing])
async def test_during_an_outage_a_plugin_goes_on_in_the_mode_of_the_one_before_it(
    bed: Bed,
    api: ApiServerStandIn,
    outage: Callable[[ApiServerStandIn], AbstractAsyncContextManager[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bed.rack.add_card(CardSpec())
    annotate(api, "region")
    async with with_api(bed, api):
        await offers(bed.kubelet, region=1)
        await eventually_async((bed.folder / "k/device-plugins/accelbind/mode").exists)
    await bed.kubelet.until(lambda: bed.kubelet.allocatable == {REGION: 0})
    monkeypatch.setattr(process, "KNOWN_SECONDS", 0.2)
    async with contextlib.AsyncExitStack() as stack:
        async with outage(api):
            plugin = await stack.enter_async_context(with_api(bed, api))
            await offers(bed.kubelet, region=1)
            assert set(bed.kubelet.capacity) == {REGION}, "its ports were not offered otherwise"
            assert sample(plugin, "accelbind_node_mode", mode="region", source="last") == 1
        annotate(api, None)
        await offers(bed.kubelet, af=1)
