"""Region mode from a pod's creation to its start, through the webhook and plugin as processes."""

import gzip
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.bitstreams.storage import BitstreamStorage
from simulator.bitstreams import OPENCL_AFU, aocx_of, make_gbs
from simulator.cards import A10_INTERFACE, NLB0, NLB3, CardSpec
from simulator.driver import raw_bitstream
from tests.faults.region_cluster import (
    FUNCTIONS,
    NAMESPACE,
    REGION,
    Json,
    RegionCluster,
    bitstream,
    mapping,
    namespace,
    pod,
    pod_of,
    region_cluster,
)
from tests.support import Processes, eventually_async

pytestmark = pytest.mark.anyio

UNMAPPED = "deadbeefdeadbeefdeadbeefdeadbeef"
MEBIBYTES = 1024 * 1024
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def cluster(
    short_dir: Path,
    processes: Processes,
    anyio_backend: str,  # noqa: ARG001 - async fixtures of anyio need it
) -> AsyncIterator[RegionCluster]:
    async with region_cluster(short_dir, processes, [CardSpec(afu_ids=(NLB0,))]) as running:
        yield running


async def told(cluster: RegionCluster, reason: str, name: str) -> Json:
    """The Event of a reason about a pod, once there is one."""

    async def look() -> Json | None:
        return next(iter(await cluster.events(reason, name)), None)

    return await eventually_async(look, 60, what=f"an Event {reason} about pod {name}") or {}


async def test_a_missing_bitstream_is_an_event_on_the_pod_which_starts_once_it_is_installed(
    cluster: RegionCluster,
) -> None:
    made = await cluster.create(pod("p", ["nlb3"]))
    failed = await told(cluster, "ProgrammingFailed", "p")
    assert failed["involvedObject"]["uid"] == made["metadata"]["uid"]
    assert failed["metadata"]["namespace"] == NAMESPACE  # which takes rights there
    assert (failed["type"], failed["source"]["component"]) == ("Warning", "accelbind-plugin")
    sentence = (
        f"no bitstream for AFU {NLB3} (interface {A10_INTERFACE}) in"
        f" {cluster.folder}/bitstreams on node n1 for "
    )
    assert sentence in failed["message"]
    kubelets = await told(cluster, "Failed", "p")
    assert sentence in kubelets["message"]
    assert "code = NotFound" in kubelets["message"]

    install = ("bitstream", "install", bitstream(cluster.folder, NLB3), "--bitstreams")
    done = cluster.processes.accelbind(*install, cluster.folder / "bitstreams")
    await eventually_async(lambda: not done.running, 60)
    assert done.wait() == 0, done.transcript()
    started = await cluster.started("p")
    assert started["c"].running
    assert [each.afu_id for each in cluster.driver.programmed] == [NLB3]
    programmed = await told(cluster, "Programmed", "p")
    assert programmed["type"] == "Normal"
    assert f"AFU {NLB3} programmed into dfl-fme.0 (dfl-port.0)" in programmed["message"]


def env(afu_id: str) -> list[dict[str, Any]]:
    return [
        {"name": "FPGA_REGION_1", "value": A10_INTERFACE},
        {"name": "FPGA_AFU_1", "value": afu_id},
    ]


def from_config_map(key: str) -> dict[str, Any]:
    return {"name": key, "valueFrom": {"configMapKeyRef": {"name": "forged", "key": key}}}


FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "in the spec": ({"env": env(UNMAPPED)}, "no AcceleratorFunction of mode region in namespace"),
    "what another namespace maps": ({"env": env(UNMAPPED[::-1])}, "in namespace team maps that"),
    "what is no id": ({"env": env("../../" + NLB3)}, "which is not an id"),
    "in the image alone": ({}, "names no function for it"),
    "all variables of a ConfigMap": (
        {"envFrom": [{"configMapRef": {"name": "forged"}}]},
        "names no function for it",
    ),
    "keys of a ConfigMap": (
        {"env": [from_config_map("FPGA_REGION_1"), from_config_map("FPGA_AFU_1")]},
        "has no plain value",
    ),
    "one function beside a mapped one": (
        {
            "env": [
                *env(NLB0),
                {"name": "FPGA_REGION_2", "value": A10_INTERFACE},
                {"name": "FPGA_AFU_2", "value": UNMAPPED},
            ]
        },
        "no AcceleratorFunction of mode region in namespace team maps that",
    ),
    "twice": ({"env": [*env(NLB0), *env(NLB3)]}, "FPGA_REGION_1 is set twice"),
    "more than it was given": (
        {
            "env": [
                *env(NLB0),
                {"name": "FPGA_REGION_2", "value": A10_INTERFACE},
                {"name": "FPGA_AFU_2", "value": NLB3},
            ]
        },
        "names 2 functions and was given 1 regions",
    ),
}


async def test_a_pod_that_never_saw_the_webhook_has_nothing_programmed_whatever_it_says(
    cluster: RegionCluster,
) -> None:
    """The webhook's configurations are away, as in the minute in which somebody removed them.

    What an image or a ConfigMap sets, a container has and its pod's spec hasn't.
    """
    for kind in ("mutating", "validating"):
        path = f"{CONFIGURATIONS}/{kind}webhookconfigurations/accelbind"
        assert (await cluster.http.delete(path)).status_code == 200
    for afu_id in (*FUNCTIONS.values(), UNMAPPED, UNMAPPED[::-1]):
        cluster.install(afu_id)
    cluster.api.put(namespace("other"))
    cluster.api.put(mapping("theirs", UNMAPPED[::-1], "other"))
    for number, (container, why) in enumerate(FORGED.values()):
        name = f"forged-{number}"
        amount = {"resources": {"limits": {REGION: "1"}}}
        await cluster.create(pod_of(name, {**amount, **container}))
        event = await told(cluster, "Failed", name)
        assert why in event["message"]
        assert not (await cluster.known(name))["c"].started
        await cluster.delete(name)
    assert cluster.driver.done == []
    assert cluster.content("dfl-fme.0") == NLB0


@pytest.mark.soak
async def test_a_bitstream_is_in_memory_only_while_it_is_programmed(
    cluster: RegionCluster,
) -> None:
    """Those of large cards have 70 MB, and the plugin has 96 MiB without one."""
    cluster.install(NLB3, 64 * MEBIBYTES)
    raw = raw_bitstream(OPENCL_AFU) + os.urandom(20 * MEBIBYTES)
    packed = gzip.compress(make_gbs(A10_INTERFACE, OPENCL_AFU, raw), 1)
    programs = ("a" * 40, "b" * 40)
    storage, file = BitstreamStorage(cluster.folder / "bitstreams"), cluster.folder / "program"
    for program in programs:
        cluster.api.put(mapping(program[:4], program))
        file.write_bytes(aocx_of(program, packed))
        storage.install(file)
    for name in ("nlb3", *(program[:4] for program in programs)):
        await cluster.create(pod(name, [name]))
        assert (await cluster.started(name))["c"].running
        await cluster.delete(name)
    done = [each.afu_id for each in cluster.driver.programmed]
    assert done == [NLB3, OPENCL_AFU, OPENCL_AFU]
    status = Path(f"/proc/{cluster.plugin.pid}/status")

    def resident() -> float:
        return int(status.read_text().partition("VmRSS:")[2].split()[0]) / 1024

    await eventually_async(lambda: resident() <= 96, 90, what="the plugin without a bitstream")
