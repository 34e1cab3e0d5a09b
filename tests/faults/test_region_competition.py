"""Twenty pods compete for four regions with three functions.

The plugin is a process; kubelet, API server and the cards' driver are stand-ins in this one, so
that a test knows what they know. Meanwhile the hardware refuses now and then, cards take their
time, functions are lost, containers restart, and the plugin is killed. Seconds in `make test`, ten
minutes under `make soak`.
"""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from simulator.apiserver.standin import ApiServerStandIn
from simulator.cards import NLB0, NLB3, CardSpec, Rack
from simulator.driver import DriverStandIn
from simulator.kubelet.pods import Phase, PodState
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import REGION, container, functions, install, pod, start_plugin
from tests.services.building import function as mapping
from tests.support import Process, Processes, soak

PATIENCE = 120.0
"""Seconds for what takes some, on a machine that is busy with others."""
AFUS = (NLB0, NLB3, "0123456789abcdef0123456789abcdef")
REGIONS = 4
PODS = 20
LEAST_STARTS = 10
"""However slow the machine is."""
LOST = "f" * 31 + "0"
"""What a port shows whose function is gone."""


@dataclass
class RegionNode:
    """A node in mode region, and what a test does with it."""

    folder: Path
    processes: Processes
    api: ApiServerStandIn
    kubelet: KubeletStandIn
    rack: Rack
    driver: DriverStandIn
    admission: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.plugin = self.start_plugin()

    def start_plugin(self) -> Process:
        """Start the plugin, with the allocator's setting of the manifests."""
        folder = self.folder
        flags = ("--pod-logs-dir", folder / "k/pod-logs", "--bitstreams", folder / "bitstreams")
        api_server = ("--api-server", self.api.address)
        env = {"MALLOC_MMAP_THRESHOLD_": "65536"}
        return start_plugin(
            self.processes, folder, "--mode", "region", *flags, *api_server, env=env
        )

    def restart_plugin(self) -> None:
        self.plugin.kill()
        self.plugin = self.start_plugin()

    async def start(self, name: str, wanted: Sequence[str]) -> PodState:
        """A pod that wants functions, once it runs or the kubelet has rejected it for good."""
        spec = pod(name, container("c", REGION, len(wanted), functions(*wanted)))
        self.api.put(spec)
        kubelet = self.kubelet
        async with self.admission:  # as a scheduler, which counts what is free
            await kubelet.until(
                lambda: (
                    kubelet.allocatable.get(REGION, 0) - len(kubelet.in_use(REGION)) >= len(wanted)
                ),
                PATIENCE,
            )
            state = await kubelet.admit(spec)
        await kubelet.until(lambda: state["c"].running or state.phase is Phase.FAILED, PATIENCE)
        return state

    async def delete(self, state: PodState) -> None:
        await self.kubelet.delete_pod(state)
        self.api.drop("Pod", state.spec.name, "ns")

    def content(self, region: str) -> str:
        (path,) = self.rack.root.glob(f"sys/class/fpga*/*/{region}/../*-port.*/afu_id")
        return path.read_text().strip()


@asynccontextmanager
async def region_node(
    folder: Path,
    processes: Processes,
    rack: Rack,
    kubelet: KubeletStandIn,
    cards: Sequence[CardSpec],
) -> AsyncIterator[RegionNode]:
    """A node that serves, in whose namespace all functions are mapped."""
    for card in cards:
        rack.add_card(card)
    (folder / "api").mkdir()
    async with ApiServerStandIn(folder / "api") as api:
        for number, afu_id in enumerate(AFUS):
            api.put(mapping(f"m{number}", "region", afu=afu_id, namespace="ns"))
        with DriverStandIn(rack.root) as driver:
            node = RegionNode(folder, processes, api, kubelet, rack, driver)
            await kubelet.until(lambda: kubelet.allocatable.get(REGION) == len(cards), PATIENCE)
            yield node


@dataclass
class Competition:
    """The regions, what is in them, and what has happened so far."""

    node: RegionNode
    chance: random.Random
    until: float
    content: dict[str, str] = field(default_factory=dict)
    """What a region carries, by its name: the test's own account."""
    starts: int = 0
    least: int = 0
    """How many programmings the kubelet's choices would have needed at least."""
    wrong: list[str] = field(default_factory=list)
    rejected: int = 0
    kills: int = 0
    numbers: Iterator[int] = field(default_factory=itertools.count)

    async def compete(self) -> None:
        while time.monotonic() < self.until or self.starts <= LEAST_STARTS:
            wanted = self.chance.choices(AFUS, k=self.chance.choice((1, 1, 1, 2)))
            await self.live(f"p{next(self.numbers)}", wanted)

    async def live(self, name: str, wanted: list[str]) -> None:
        state = await self.node.start(name, wanted)
        if state.phase is Phase.FAILED:  # the plugin had just been killed
            self.rejected += 1
        else:
            self.judge(state, wanted)
            await asyncio.sleep(self.chance.uniform(0, 0.2))  # what it is there for
            if self.chance.random() < 0.3:
                await self.restart(state, wanted)
        await self.node.delete(state)

    async def restart(self, state: PodState, wanted: list[str]) -> None:
        """End the container, which the kubelet starts again; its function may be gone."""
        if self.chance.random() < 0.5:
            self.lose(self.chance.choice(regions_of(state)))
        await self.node.kubelet.restart_container(state, "c")
        await self.node.kubelet.until(lambda: state["c"].running, PATIENCE)
        self.judge(state, wanted)

    def judge(self, state: PodState, wanted: list[str]) -> None:
        """Look at what is in the regions of a container that has just started."""
        regions = regions_of(state)
        before = [self.content[each] for each in regions]
        self.least += min(
            sum(function != there for function, there in zip(order, before, strict=True))
            for order in itertools.permutations(wanted)
        )
        now = [self.node.content(each) for each in regions]
        if sorted(now) != sorted(wanted):
            self.wrong.append(f"{state.spec.name} wants {wanted} and started on {now}")
        self.content.update(zip(regions, now, strict=True))
        self.starts += 1

    def lose(self, region: str) -> None:
        """A region's function is gone, as after a fault of its card."""
        rack = self.node.rack
        address = next(each for each in rack.addresses if rack.fme(each) == region)
        rack.set_afu(address, LOST)
        self.content[region] = LOST

    async def trouble(self) -> None:
        driver = self.node.driver
        while time.monotonic() < self.until:
            driver.refuse = not driver.refuse and self.chance.random() < 0.3
            driver.seconds = self.chance.choice((0.0, 0.01, 0.2))
            await asyncio.sleep(0.5)  # the pace of the trouble
        driver.refuse = False

    async def killing(self, every: float) -> None:
        while time.monotonic() + every < self.until:
            await asyncio.sleep(every * self.chance.uniform(0.7, 1))  # its pace
            await asyncio.to_thread(self.node.restart_plugin)
            self.kills += 1


def regions_of(state: PodState) -> list[str]:
    return [each for _, ids in state["c"].granted.allocated for each in ids]


@pytest.mark.long
@pytest.mark.timeout(0)
async def test_no_container_starts_on_a_wrong_function_and_no_work_is_done_twice(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    processes: Processes,
    figure: Callable[[str], None],
) -> None:
    length = soak(short=5, full=600)
    cards = [
        CardSpec(driver=("opae", "dfl")[number % 2], afu_ids=(AFUS[number % 3],))
        for number in range(REGIONS)
    ]
    async with region_node(short_dir, processes, rack, kubelet, cards) as node:
        install(short_dir, *AFUS)
        chance = random.Random(length.seed)  # noqa: S311 - to be repeated, not to be secret
        fight = Competition(node, chance, time.monotonic() + length.seconds)
        for address in rack.addresses:
            # what ports show before they are programmed is no proof
            fight.content[str(rack.fme(address))] = ""
        async with asyncio.TaskGroup() as group:
            group.create_task(fight.trouble())
            group.create_task(fight.killing(every=min(20.0, length.seconds / 1.5)))
            for _ in range(PODS):
                group.create_task(fight.compete())
        done = len(node.driver.programmed)
    figure(
        f"seed {length.seed}: {fight.starts} starts, {done} programmings, and {fight.least} at"
        f" least for what the kubelet chose; the plugin was killed {fight.kills} times, and"
        f" {fight.rejected} pods came just then"
    )
    assert fight.wrong == []
    # What a killed plugin had begun, its successor may do anew: a driver that is killed while it
    # programmes would let nobody else in, the stand-in can't know of the death.
    assert fight.least <= done <= fight.least + REGIONS * fight.kills
