"""Region mode on a test bed: a pod starts once its function is in a card, by the real ioctls.

The plugin is a process that names no root; kubelet and API server are stand-ins in this process.
"""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.bitstreams.storage import BitstreamStorage
from simulator.apiserver.standin import ApiServerStandIn
from simulator.bitstreams import make_gbs
from simulator.cards import A10_INTERFACE, NLB0, NLB3
from simulator.kubelet.pods import PodState
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import REGION, container, functions, pod
from tests.support import Process, Processes, eventually_async
from tests.umockdev.beds import TestBed

pytestmark = pytest.mark.anyio

RESET, PROGRAM = 0x40, 0x80
BASE = {"opae": 0xB500, "dfl": 0xB600}
PATIENCE = 60.0
"""Seconds for what takes a process some, on a machine that is busy with others."""


@dataclass
class Node:
    """A bed, a cluster beside it, and the plugin between them."""

    bed: TestBed
    folder: Path
    kubelet: KubeletStandIn
    api: ApiServerStandIn
    plugin: Process

    async def start(self, name: str, afu: str) -> PodState:
        """Let the kubelet start a pod that wants a function; it may try more than once."""
        spec = pod(name, container("c", REGION, 1, functions(afu)))
        self.api.put(spec)
        return await self.kubelet.admit(spec)

    async def runs(self, admitted: PodState) -> bool:
        """Wait until the pod's container runs."""
        await self.kubelet.until(lambda: admitted["c"].running, timeout=PATIENCE)
        return admitted["c"].running

    async def hears(self, text: str) -> str:
        """Wait until the kubelet has an event that says something."""
        return await eventually_async(
            lambda: next(
                (each.message for each in self.kubelet.events if text in each.message), ""
            ),
            timeout=PATIENCE,
            what=f"an event that says {text!r}; there are {self.kubelet.events}",
        )


@pytest.fixture(params=["opae", "dfl"])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def node(
    bed: TestBed,
    processes: Processes,
    short_dir: Path,
    tmp_path: Path,
    anyio_backend: str,  # noqa: ARG001 - async fixtures of anyio need it
) -> AsyncIterator[Node]:
    logs = short_dir / "k/pod-logs"
    install(short_dir, NLB3)
    kubelet = KubeletStandIn(short_dir / "k", node_name="n1", retry_seconds=0.1)
    async with kubelet, ApiServerStandIn(tmp_path) as api:
        logs.mkdir(exist_ok=True)
        for name, afu in (("nlb0", NLB0), ("nlb3", NLB3)):
            api.put(mapping(name, afu))
        plugin = bed.accelbind(
            processes,
            *("plugin", "--mode", "region", "--kubelet-dir", short_dir / "k", "--node-name", "n1"),
            *("--kubeconfig", api.kubeconfig_path, "--pod-logs-dir", logs),
            *("--bitstreams", short_dir / "bitstreams", "--state-dir", short_dir / "state"),
            *("--metrics-host", "127.0.0.1", "--metrics-port", "0", "--log-format", "json"),
            *("--ports-file", short_dir / "ports", "--scan-interval", "1"),
        )
        yield Node(bed, short_dir, kubelet, api, plugin)


def raw(afu: str) -> bytes:
    return bytes.fromhex(afu) + bytes(4711)


def install(folder: Path, afu: str) -> None:
    source = folder / "new.gbs"
    source.write_bytes(make_gbs(A10_INTERFACE, afu, raw(afu)))
    BitstreamStorage(folder / "bitstreams").install(source)


def mapping(name: str, afu: str) -> dict[str, Any]:
    return {
        "apiVersion": "fpga.intel.com/v2",
        "kind": "AcceleratorFunction",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"interfaceId": A10_INTERFACE, "afuId": afu, "mode": "region"},
    }


async def offered(node: Node, count: int) -> None:
    await node.kubelet.until(lambda: node.kubelet.allocatable == {REGION: count}, timeout=PATIENCE)


async def test_a_pod_starts_once_its_function_is_in_the_card(node: Node, driver: str) -> None:
    card = node.bed.add(driver=driver, uevent=True)
    await offered(node, 1)
    first = await node.start("p", NLB3)
    assert await node.runs(first)
    assert node.bed.file(card, f"{card['ports'][0]}/afu_id").read_text().strip() == NLB3
    calls = node.bed.calls()
    requests = [call["request"] - BASE[driver] for call in calls]
    assert [each for each in requests if each in {PROGRAM, RESET}] == [PROGRAM, RESET]
    (call,) = [each for each in calls if each["request"] == BASE[driver] + PROGRAM]
    size, content = {"opae": 32, "dfl": 24}[driver], raw(NLB3)
    assert call["node"] == card["fme"]
    assert call["fields"][:4] == [size, 0, 0, len(content)]  # argsz, flags, port, bytes
    assert call["sha256"] == hashlib.sha256(content).hexdigest()
    await node.kubelet.delete_pod(first)
    assert await node.runs(await node.start("q", NLB3))
    requests = [call["request"] - BASE[driver] for call in node.bed.calls()]
    assert [each for each in requests if each in {PROGRAM, RESET}] == [RESET]
