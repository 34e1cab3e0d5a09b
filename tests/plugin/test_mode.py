"""The node's mode is decided at the start, whatever the API server does.

API server, kubelet and plugin are in this process, over real TLS and real sockets.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from plugin import mode as module
from plugin.mode import ANNOTATION, choose
from plugin.process import Plugin
from services.devices.model import PluginMode
from services.process.errors import ClusterError
from simulator.apiserver.standin import ApiServerStandIn
from simulator.cards import NLB0, CardSpec
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import AF, REGION, Bed, container, functions, pod, running, settings
from tests.plugin.test_process import sockets
from tests.recorded import write_last_mode
from tests.services.building import function
from tests.support import eventually_async

PATIENCE = 90.0
"""Seconds for a process to start and register, on a machine that is busy with others."""


def annotate(api: ApiServerStandIn, mode: str | None) -> None:
    """Make the node, or change it."""
    annotations = {} if mode is None else {ANNOTATION: mode}
    metadata = {"name": "n1", "annotations": annotations}
    api.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": {}})


def with_api(bed: Bed, api: ApiServerStandIn, **values: Any) -> AbstractAsyncContextManager[Plugin]:
    return running(settings(bed.folder, **values), api=api)


async def offers(kubelet: KubeletStandIn, **counts: int) -> None:
    """Wait until just this is offered, and everything else that ever was has capacity 0."""
    wanted = {{"af": AF, "region": REGION}[key]: n for key, n in counts.items()}

    def as_wanted() -> bool:
        offered = {name: count for name, count in kubelet.capacity.items() if count}
        return offered == wanted and kubelet.allocatable.items() >= wanted.items()

    await kubelet.until(as_wanted, timeout=PATIENCE)


async def told(api: ApiServerStandIn, reason: str, text: str) -> None:
    """Wait for an Event."""

    def found() -> list[str]:
        events = [each for each in api.objects("Event") if each["reason"] == reason]
        return [each["message"] for each in events if text in each["message"]]

    await eventually_async(found, PATIENCE, what=f"an Event {reason} that says {text!r}")


def sample(plugin: Plugin, name: str, **labels: str) -> float | None:
    return plugin.process.registry.get_sample_value(name, labels)


AF_MODE, UNITS = PluginMode.AF, PluginMode.UNITS


@pytest.mark.parametrize(
    ("annotation", "last", "mode", "source"),
    [
        (None, PluginMode.REGION, AF_MODE, "flag"),
        ("region", None, PluginMode.REGION, "annotation"),
        (" regiondevel\n", PluginMode.REGION, PluginMode.REGIONDEVEL, "annotation"),
        ("units", None, AF_MODE, "flag"),
        ("regoin", PluginMode.REGION, PluginMode.REGION, "last"),
        ("", UNITS, AF_MODE, "flag"),
    ],
)
def test_the_annotation_counts_before_the_flag_if_it_names_a_mode(
    annotation: str | None, last: PluginMode | None, mode: PluginMode, source: str
) -> None:
    annotations = {} if annotation is None else {ANNOTATION: annotation}
    found = choose(AF_MODE, last, annotations)
    assert (found.mode, found.source) == (mode, source)
    assert bool(found.error) == (source != "annotation" and annotation is not None)


async def test_a_changed_annotation_counts_at_the_next_start_and_pods_run_on(
    bed: Bed, api: ApiServerStandIn
) -> None:
    for _ in range(2):
        bed.rack.add_card(CardSpec())
    bed.record_ports()
    annotate(api, "af")
    async with with_api(bed, api):
        await offers(bed.kubelet, af=2)
        started = await bed.start("p", container("c", AF))
        annotate(api, "region")
        api.put(spec := pod("q", container("c", REGION, 1, functions(NLB0))))
        api.put(function("nlb0", "region", namespace="ns"))
    assert ["/nodes" in each.request.path for each in api.seen].count(True) == 1
    async with with_api(bed, api):
        await bed.kubelet.until(lambda: bed.kubelet.capacity.get(REGION) == 2, timeout=PATIENCE)
        await told(api, "ModeChanged", "mode region: its annotation says so; it was af")
        assert started["c"].running
        assert bed.kubelet.in_use(AF) == {"dfl-port.0"}
        assert bed.kubelet.allocatable[REGION] == 1, "the other one has a port that a pod has"
        wants = await bed.kubelet.settled(await bed.kubelet.admit(spec))
        assert wants["c"].running, "mode region asks this API server"
        await bed.restart(started)
        assert len(sockets(bed.folder)) == 3, "a pod still has a device of the other mode"
        await bed.kubelet.delete_pod(started)
        await eventually_async(lambda: len(sockets(bed.folder)) == 2)


async def test_an_annotation_that_names_no_mode_is_reported(
    bed: Bed, api: ApiServerStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    bed.rack.add_card(CardSpec())
    annotate(api, "nonsense")
    write_last_mode(bed.folder / "k/device-plugins", PluginMode.REGION)
    async with with_api(bed, api, mode=UNITS) as plugin:
        await offers(bed.kubelet, region=1)
        assert set(bed.kubelet.capacity) == {REGION}, "nothing was offered in the mode of the flag"
        await told(api, "ModeAnnotationInvalid", '"nonsense", which is none of af, region')
        assert sample(plugin, "accelbind_node_mode_annotation_invalid") == 1
        assert sample(plugin, "accelbind_node_mode", mode="region", source="last") == 1
    assert capsys.readouterr().out.count("the node's annotation is not understood") == 1


@contextlib.asynccontextmanager
async def failing(api: ApiServerStandIn) -> AsyncIterator[None]:
    """An outage that a load balancer answers for."""
    with api.faults.failing(503):
        yield


@pytest.mark.parametrize("outage", [ApiServerStandIn.away, failing])
@pytest.mark.parametrize("then", ["region", "af"])
async def test_during_an_outage_a_plugin_goes_on_in_the_mode_of_the_one_before_it(
    bed: Bed,
    api: ApiServerStandIn,
    outage: Callable[[ApiServerStandIn], AbstractAsyncContextManager[None]],
    then: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once the API server answers, it ends itself if that names another mode."""
    bed.rack.add_card(CardSpec())
    annotate(api, "region")
    async with with_api(bed, api):
        await offers(bed.kubelet, region=1)
        await eventually_async((bed.folder / "k/device-plugins/accelbind/mode").exists)
    await bed.kubelet.until(lambda: bed.kubelet.allocatable == {REGION: 0})
    monkeypatch.setattr(module, "KNOWN_SECONDS", 0.2)
    goes_on = contextlib.nullcontext()
    ends = pytest.raises(ClusterError, match="the node has mode af: only a restarted plugin")
    with goes_on if then == "region" else ends:
        async with contextlib.AsyncExitStack() as stack:
            async with outage(api):
                plugin = await stack.enter_async_context(with_api(bed, api))
                await offers(bed.kubelet, region=1)
                assert set(bed.kubelet.capacity) == {REGION}, "its ports were not offered otherwise"
                assert sample(plugin, "accelbind_node_mode", mode="region", source="last") == 1
                annotate(api, then)
            await eventually_async(
                lambda: sample(plugin, "accelbind_node_mode", mode=then, source="annotation")
            )
            if then == "af":
                await bed.kubelet.until(lambda: bed.kubelet.allocatable == {REGION: 0})
            else:
                assert bed.kubelet.allocatable == {REGION: 1}
