"""`accelbind plugin` with the default root, on a test bed with a `/sys` and a `/dev` of its own."""

import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest

from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import AF, container, pod
from tests.support import Process, Processes
from tests.umockdev.beds import TestBed

pytestmark = pytest.mark.anyio

SLOW = "3600"
"""Seconds between two scans: what is seen sooner is seen because of a uevent."""


@dataclass
class Host:
    """A bed, a kubelet beside it, and the plugin between them once it is started."""

    bed: TestBed
    processes: Processes
    folder: Path
    kubelet: KubeletStandIn

    def start(self, *flags: str) -> Process:
        """Start the plugin; it names no root."""
        return self.bed.accelbind(
            self.processes,
            *("plugin", "--kubelet-dir", self.folder / "k", "--node-name", "n1"),
            *("--metrics-host", "127.0.0.1", "--metrics-port", "0"),
            *("--ports-file", self.folder / "ports", "--state-dir", self.folder / "state"),
            *("--scan-interval", SLOW, "--log-format", "json", *flags),
        )

    async def offers(self, resources: dict[str, int]) -> None:
        """Wait until the kubelet has just these."""
        await self.kubelet.until(lambda: self.kubelet.allocatable == resources)

    async def gives(self, resource: str) -> list[str]:
        """What a container that asks for one gets: the nodes' paths on the host."""
        kubelet = self.kubelet
        admitted = await kubelet.settled(await kubelet.admit(pod("p", container("c", resource))))
        return [each.host_path for each in admitted["c"].granted.devices]


@pytest.fixture
async def host(
    bed: TestBed,
    processes: Processes,
    short_dir: Path,
    anyio_backend: str,  # noqa: ARG001 - async fixtures of anyio need it
) -> AsyncIterator[Host]:
    async with KubeletStandIn(short_dir / "k", node_name="n1", retry_seconds=0.05) as kubelet:
        yield Host(bed, processes, short_dir, kubelet)


def logged(process: Process, level: str) -> list[str]:
    lines = [json.loads(line) for line in process.stderr.splitlines()]
    return [line["event"] for line in lines if line["level"] == level]


@pytest.mark.parametrize("driver", ["opae", "dfl"])
async def test_cards_of_a_driver_are_found_without_naming_a_root(host: Host, driver: str) -> None:
    card = host.bed.add(driver=driver, numa_node=1)
    plugin = host.start()
    await host.offers({AF: 1})
    assert await host.gives(AF) == [f"/dev/{card['ports'][0]}"]
    assert logged(plugin, "error") == []


@pytest.mark.parametrize("driver", ["opae"])
async def test_cards_that_come_and_go_are_on_the_stream_because_of_udevs_events(
    host: Host, driver: str, figure: Callable[[str], None]
) -> None:
    host.bed.add(driver=driver)
    host.start()
    await host.offers({AF: 1})
    seen = []
    for _ in range(5):
        second = host.bed.add(driver=driver)
        began = time.perf_counter()
        host.bed.ask("tell", address=second["address"], action="add")
        await host.offers({AF: 2})
        seen.append(time.perf_counter() - began)
        host.bed.ask("remove", address=second["address"], uevent=True)
        await host.offers({AF: 1})
    figure(f"on the stream {1000 * median(seen):.0f} ms after the uevent (median of {len(seen)})")


@pytest.mark.parametrize("driver", ["dfl"])
async def test_cards_that_come_and_go_are_on_the_stream_because_of_the_kernels_own_events(
    host: Host, driver: str
) -> None:
    first = host.bed.add(driver=driver)
    host.start()
    await host.offers({AF: 1})
    second = host.bed.add(driver=driver)
    assert host.bed.ask("kernel_event", address=second["address"], action="add") >= 1
    await host.offers({AF: 2})
    host.bed.ask("remove", address=second["address"])
    assert host.bed.ask("kernel_event", address=first["address"], action="remove", number=2) >= 1
    await host.offers({AF: 1})
