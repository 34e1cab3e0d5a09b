"""The node's annotation, followed by a real plugin process through what API servers do.

The API server and the kubelet are stand-ins in this process, over real TLS and real sockets.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from plugin.mode import ANNOTATION
from simulator.apiserver.faults import watches
from simulator.apiserver.standin import ApiServerStandIn
from simulator.card_faults import Fault
from simulator.cards import A10_INTERFACE, NLB0, CardSpec, Rack
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import AF, NLB3, REGION, container, functions, pod
from tests.plugin.test_process import get, resident_mib, sockets, start
from tests.support import Process, Processes, eventually_async

pytestmark = pytest.mark.anyio

PATIENCE = 90.0
"""Seconds for a process to start and register, on a machine that is busy with others."""

UNITS = "b-com.com/accelerator"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServerStandIn]:
    async with ApiServerStandIn(tmp_path) as standin:
        yield standin


def annotate(api: ApiServerStandIn, mode: str | None) -> None:
    """Makes the node, or changes it."""
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


def begin(processes: Processes, folder: Path, api: ApiServerStandIn, *flags: str | Path) -> Process:
    logs = folder / "k" / "pod-logs"
    logs.mkdir(exist_ok=True)
    return start(
        processes, folder, "--kubeconfig", api.kubeconfig_path, "--pod-logs-dir", logs, *flags
    )


async def offers(kubelet: KubeletStandIn, **counts: int) -> None:
    """Waits until just this is offered, and everything else that ever was has capacity 0."""
    wanted = {{"af": AF, "region": REGION, "units": UNITS}[key]: n for key, n in counts.items()}

    def as_wanted() -> bool:
        offered = {name: count for name, count in kubelet.capacity.items() if count}
        return offered == wanted and kubelet.allocatable.items() >= wanted.items()

    await kubelet.until(as_wanted, timeout=PATIENCE)


def registrations(kubelet: KubeletStandIn) -> int:
    return [call.method for call in kubelet.calls].count("Registered")


def has_registered(kubelet: KubeletStandIn, times: int) -> bool:
    return registrations(kubelet) >= times


def events(api: ApiServerStandIn, reason: str) -> list[dict[str, Any]]:
    return [each for each in api.objects("Event") if each["reason"] == reason]


async def told(api: ApiServerStandIn, reason: str, text: str) -> dict[str, Any]:
    return await eventually_async(
        lambda: next((each for each in events(api, reason) if text in each["message"]), None),
        timeout=PATIENCE,
        what=f"an Event {reason} that says {text!r}",
    )


def counts(api: ApiServerStandIn, reason: str, wanted: list[int]) -> bool:
    """Whether there are as many Events of a reason, with these counts."""
    return [each["count"] for each in events(api, reason)] == wanted


async def metrics(folder: Path) -> str:
    return (await asyncio.to_thread(get, folder, "/metrics"))[1]


async def test_the_annotation_is_followed_and_pods_run_on(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    api: ApiServerStandIn,
    processes: Processes,
    *,
    figure: Callable[[str], None],
) -> None:
    for _ in range(2):
        rack.add_card(CardSpec())
    annotate(api, None)
    plugin = begin(processes, short_dir, api)
    await offers(kubelet, af=2)
    admitted = await kubelet.settled(await kubelet.admit(pod("p", container("c", AF))))

    annotate(api, "region")
    began = time.monotonic()
    await offers(kubelet, region=2)
    figure(f"another mode is served {time.monotonic() - began:.3f} s after the annotation")
    assert admitted["c"].running
    assert kubelet.in_use(AF) == {"dfl-port.0"}
    spec = pod("q", container("c", REGION, 1, functions(NLB0)))
    api.put(spec)
    api.put(mapping("nlb0", NLB0))
    wants = await kubelet.settled(await kubelet.admit(spec))
    assert wants["c"].running, "the gate of mode region asks this API server"
    assert 'accelbind_node_mode{mode="region",source="annotation"} 1.0' in await metrics(short_dir)
    await told(api, "ModeChanged", "mode region: its annotation says so; it was af")

    annotate(api, "nonsense")
    await told(api, "ModeAnnotationInvalid", '"nonsense", which is none of af, region')
    assert "accelbind_node_mode_annotation_invalid 1.0" in await metrics(short_dir)
    await offers(kubelet, region=2)
    assert plugin.stderr.count("the node's annotation is not understood") == 1

    annotate(api, "regiondevel")  # the same resource, another server behind it
    await kubelet.until(lambda: registrations(kubelet) >= 3)
    await offers(kubelet, region=2)
    await kubelet.delete_pod(wants)
    devel = pod("r", container("c", REGION))
    api.put(devel)
    api.put(mapping("devel"))
    given = await kubelet.settled(await kubelet.admit(devel))
    assert {each.container_path for each in given["c"].granted.devices} >= {"/dev/dfl-fme.0"}

    annotate(api, None)
    await offers(kubelet, af=2)
    assert admitted["c"].running
    await eventually_async(lambda: len(sockets(short_dir)) == 2)
    assert not [line for line in plugin.stderr.splitlines() if json.loads(line)["level"] == "error"]


async def test_a_region_that_is_broken_while_its_mode_changes_stays_under_its_resource(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    api: ApiServerStandIn,
    processes: Processes,
) -> None:
    card = rack.add_card(CardSpec())
    annotate(api, "region")
    begin(processes, short_dir, api)
    await offers(kubelet, region=1)
    rack.break_(card, Fault.INTERFACE_ALL_F)
    await kubelet.until(lambda: kubelet.allocatable == {REGION: 0})
    for count, mode in enumerate(("regiondevel", "region"), 2):
        annotate(api, mode)
        await kubelet.until(partial(has_registered, kubelet, count), timeout=PATIENCE)
        await kubelet.until(lambda: kubelet.capacity == {REGION: 1})
        assert kubelet.allocatable == {REGION: 0}
    rack.heal(card, Fault.INTERFACE_ALL_F)
    await offers(kubelet, region=1)


async def test_what_the_kubelet_could_not_be_told_of_one_mode_it_is_told_in_the_next(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    api: ApiServerStandIn,
    processes: Processes,
) -> None:
    rack.add_card(CardSpec())
    annotate(api, None)
    plugin = begin(processes, short_dir, api)
    await offers(kubelet, af=1)
    with kubelet.refusing("not now"):
        await kubelet.cut_stream(AF)
        annotate(api, "region")
        ended = "what was served in a mode has ended"
        await eventually_async(lambda: ended in plugin.stderr, timeout=PATIENCE)
    await offers(kubelet, region=1)


async def test_it_starts_in_the_mode_of_the_annotation_and_offers_no_other(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    api: ApiServerStandIn,
    processes: Processes,
) -> None:
    rack.add_card(CardSpec())
    annotate(api, "region")
    begin(processes, short_dir, api, "--mode", "units")
    await offers(kubelet, region=1)
    assert set(kubelet.capacity) == {REGION}


async def test_an_api_server_that_is_away_delays_and_never_stops(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    api: ApiServerStandIn,
    processes: Processes,
) -> None:
    rack.add_card(CardSpec())
    annotate(api, "region")
    async with api.away():
        plugin = begin(processes, short_dir, api)
        await offers(kubelet, af=1)
        assert "hasn't told this node's annotations yet" in plugin.stderr
    await offers(kubelet, region=1)
    for mode, offered in (("af", {"af": 1}), ("region", {"region": 1})):
        async with api.away():
            annotate(api, mode)
            await kubelet.restart()  # at the same moment
            await kubelet.until(lambda: sum(kubelet.allocatable.values()) == 1)
        await offers(kubelet, **offered)


async def test_during_an_outage_a_plugin_goes_on_in_the_mode_of_the_one_before_it(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    api: ApiServerStandIn,
    processes: Processes,
) -> None:
    rack.add_card(CardSpec())
    annotate(api, "region")
    first = begin(processes, short_dir, api)
    await offers(kubelet, region=1)
    await eventually_async((short_dir / "k/device-plugins/accelbind/offered.json").exists)
    async with api.away():
        await asyncio.to_thread(first.kill)
        begin(processes, short_dir, api)
        await kubelet.until(lambda: kubelet.allocatable == {REGION: 0})
        await offers(kubelet, region=1)
        assert set(kubelet.capacity) == {REGION}, "its ports were not offered under another name"
        assert 'mode="region",source="last"' in await metrics(short_dir)
    annotate(api, None)
    await offers(kubelet, af=1)


async def test_the_annotation_changes_under_load_and_nothing_lingers(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    api: ApiServerStandIn,
    processes: Processes,
) -> None:
    for afu in (NLB0, NLB0, NLB3):
        rack.add_card(CardSpec(afu_ids=(afu,)))
    annotate(api, None)
    plugin = begin(processes, short_dir, api)
    await kubelet.until(lambda: sum(kubelet.allocatable.values()) == 3, timeout=PATIENCE)
    held = await kubelet.settled(await kubelet.admit(pod("held", container("c", AF))))
    for number in range(12):
        annotate(api, ("region", "regiondevel", "nonsense", None)[number % 4])
        if number % 3 == 0:
            api.cut_watches()
        if number % 4 == 1:
            await kubelet.restart()
        loaded = await kubelet.admit(pod(f"p{number}", container("c", AF)))
        await kubelet.settled(loaded)
        await kubelet.delete_pod(loaded)
    annotate(api, "region")
    await offers(kubelet, region=3)
    assert held["c"].running
    assert kubelet.in_use(AF) == {"dfl-port.0"}
    await eventually_async(lambda: len(sockets(short_dir)) == 2)
    annotate(api, None)
    await kubelet.until(
        lambda: sorted(count for count in kubelet.capacity.values() if count) == [1, 2]
    )
    assert "mistake" not in plugin.stderr


async def test_with_the_rights_to_get_alone_the_annotation_is_followed_too(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    api: ApiServerStandIn,
    processes: Processes,
) -> None:
    rack.add_card(CardSpec())
    annotate(api, None)
    with api.faults.failing(403, matches=lambda request: request.method == "PATCH"):
        with api.faults.failing(403, matches=watches):
            plugin = begin(processes, short_dir, api)
            await offers(kubelet, af=1)
            annotate(api, "region")
            await eventually_async(
                lambda: "the node's mode changes" in plugin.stderr, timeout=PATIENCE
            )
        await offers(kubelet, region=1)
    assert plugin.stderr.count("watching the node is forbidden") == 1


async def test_without_an_api_server_the_flag_counts_and_it_is_said_once(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, processes: Processes
) -> None:
    rack.add_card(CardSpec())
    plugin = start(processes, short_dir)
    await offers(kubelet, af=1)
    assert plugin.stderr.count("no access to the API server: --mode counts") == 1


async def test_what_is_wrong_on_a_node_is_told_as_events_on_it(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    api: ApiServerStandIn,
    processes: Processes,
) -> None:
    annotate(api, None)
    begin(processes, short_dir, api)
    await told(api, "NoDriver", "load the driver")
    card = rack.add_card(CardSpec(driver="opae"))
    await told(api, "CardsFound", "1")
    await offers(kubelet, af=1)
    for count in ([1], [2]):
        rack.break_(card, Fault.AFU_EMPTY)
        await eventually_async(partial(counts, api, "DeviceUnhealthy", count))
        rack.heal(card, Fault.AFU_EMPTY)
        await eventually_async(partial(counts, api, "DeviceHealthy", count))
    bad = await told(api, "DeviceUnhealthy", "intel-fpga-port.0")
    assert "afu_id" in bad["message"]
    assert bad["involvedObject"]["uid"] == "n1"
    rack.break_(card, Fault.PORT_ERRORS)
    await told(api, "ErrorsCleared", "intel-fpga-port.0")
    begin(processes, short_dir, api, "--ports-file", short_dir / "second")
    await told(api, "SecondPlugin", "another accelbind plugin serves on this node")
    counted = await metrics(short_dir)
    assert 'accelbind_events_total{outcome="created"}' in counted
    assert 'accelbind_events_total{outcome="refused"} 0.0' in counted


async def test_memory_is_bounded_with_an_api_server_64_cards_and_changing_modes(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    api: ApiServerStandIn,
    processes: Processes,
    *,
    figure: Callable[[str], None],
) -> None:
    for number in range(64):
        rack.add_card(CardSpec(driver="dfl" if number % 2 else "opae"))
    annotate(api, None)
    plugin = begin(processes, short_dir, api)
    await offers(kubelet, af=64)
    for _ in range(3):
        annotate(api, "region")
        await offers(kubelet, region=64)
        annotate(api, None)
        await offers(kubelet, af=64)
    resident = resident_mib(plugin)
    figure(f"resident with 64 cards and an API server {resident:.1f} MiB")
    assert resident < 96
