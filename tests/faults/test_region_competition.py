"""Twenty pods compete for four regions with three functions, in a cluster of processes.

Pods are created by logical name; webhook, scheduler, kubelet and plugin do the rest. Meanwhile the
hardware refuses now and then, cards take their time, functions are lost, containers restart, and
the plugin is killed. Seconds in `make test`, ten minutes under `make soak`.
"""

import asyncio
import gzip
import itertools
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from services.bitstreams.storage import BitstreamStorage
from simulator.bitstreams import OPENCL_AFU, aocx_of, make_gbs
from simulator.cards import A10_INTERFACE, NLB0, NLB3, CardSpec
from simulator.driver import raw_bitstream
from simulator.kubelet.pods import Phase, PodState
from tests.faults.region_cluster import (
    FUNCTIONS,
    PATIENCE,
    RegionCluster,
    mapping,
    pod,
    region_cluster,
)
from tests.support import Processes, eventually_async, soak

pytestmark = pytest.mark.anyio

MEBIBYTES = 1024 * 1024
REGIONS = 4
PODS = 20
LEAST_STARTS = 20
"""However slow the machine is."""
LOST = "f" * 31 + "0"
"""What a port shows whose function is gone."""


@dataclass
class Competition:
    """The regions, what is in them, and what has happened so far."""

    cluster: RegionCluster
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
        """One of the pods, again and again, each time as another one."""
        while time.monotonic() < self.until or self.starts <= LEAST_STARTS:
            wanted = self.chance.choices(list(FUNCTIONS), k=self.chance.choice((1, 1, 1, 2)))
            await self.live(f"p{next(self.numbers)}", wanted)

    async def live(self, name: str, wanted: list[str]) -> None:
        """A pod from its creation to its end."""
        await self.cluster.create(pod(name, wanted))
        state = await self.cluster.started(name)
        if state.phase is Phase.FAILED:  # bound to a node whose plugin had just been killed
            self.rejected += 1
        else:
            self.judge(state, wanted)
            await asyncio.sleep(self.chance.uniform(0, 0.2))  # what it is there for
            if self.chance.random() < 0.3:
                await self.restart(state, wanted)
        await self.cluster.delete(name)

    async def restart(self, state: PodState, wanted: list[str]) -> None:
        """End the container, which the kubelet starts again; its function may be gone."""
        if self.chance.random() < 0.5:
            self.lose(self.chance.choice(regions_of(state)))
        await self.cluster.kubelet.restart_container(state, "c")
        await self.cluster.kubelet.until(lambda: state["c"].running, PATIENCE)
        self.judge(state, wanted)

    def judge(self, state: PodState, wanted: list[str]) -> None:
        """Look at what is in the regions of a container that has just started."""
        functions, regions = [FUNCTIONS[each] for each in wanted], regions_of(state)
        before = [self.content[each] for each in regions]
        self.least += min(
            sum(function != there for function, there in zip(order, before, strict=True))
            for order in itertools.permutations(functions)
        )
        now = [self.cluster.content(each) for each in regions]
        if sorted(now) != sorted(functions):
            self.wrong.append(f"{state.spec.name} wants {functions} and started on {now}")
        self.content.update(zip(regions, now, strict=True))
        self.starts += 1

    def lose(self, region: str) -> None:
        """A region's function is gone, as after a fault of its card."""
        rack = self.cluster.rack
        address = next(each for each in rack.addresses if rack.fme(each) == region)
        rack.set_afu(address, LOST)
        self.content[region] = LOST

    async def trouble(self) -> None:
        """The hardware refuses now and then, and takes its time."""
        driver = self.cluster.driver
        while time.monotonic() < self.until:
            driver.refuse = not driver.refuse and self.chance.random() < 0.3
            driver.seconds = self.chance.choice((0.0, 0.01, 0.2))
            await asyncio.sleep(0.5)  # the pace of the trouble
        driver.refuse = False

    async def killing(self, every: float) -> None:
        """The plugin is killed now and then, whatever it does, and started again."""
        while time.monotonic() + every < self.until:
            await asyncio.sleep(every * self.chance.uniform(0.7, 1))  # its pace
            await asyncio.to_thread(self.cluster.restart_plugin)
            self.kills += 1


def regions_of(state: PodState) -> list[str]:
    """The regions that a container was given."""
    return [each for _, ids in state["c"].granted.allocated for each in ids]


@pytest.mark.long
@pytest.mark.timeout(0)
async def test_no_container_starts_on_a_wrong_function_and_no_work_is_done_twice(
    short_dir: Path, processes: Processes, figure: Callable[[str], None]
) -> None:
    length, afus = soak(short=6, full=600), tuple(FUNCTIONS.values())
    cards = [
        CardSpec(driver=("opae", "dfl")[number % 2], afu_ids=(afus[number % 3],))
        for number in range(REGIONS)
    ]
    async with region_cluster(short_dir, processes, cards) as cluster:
        for afu_id in afus:
            cluster.install(afu_id)
        chance = random.Random(length.seed)  # noqa: S311 - to be repeated, not to be secret
        fight = Competition(cluster, chance, time.monotonic() + length.seconds)
        for address in cluster.rack.addresses:
            region = str(cluster.rack.fme(address))
            fight.content[region] = ""  # what ports show before they are programmed is no proof
        async with asyncio.TaskGroup() as group:
            group.create_task(fight.trouble())
            group.create_task(fight.killing(every=min(20.0, length.seconds / 3)))
            for _ in range(PODS):
                group.create_task(fight.compete())
        done = len(cluster.driver.programmed)
    figure(
        f"seed {length.seed}: {fight.starts} starts, {done} programmings, and {fight.least} at"
        f" least for what the kubelet chose; the plugin was killed {fight.kills} times, and"
        f" {fight.rejected} pods came just then"
    )
    assert fight.wrong == []
    # What a killed plugin had begun, its successor may do anew: a driver that is killed while it
    # programmes would let nobody else in, the stand-in can't know of the death.
    assert fight.least <= done <= fight.least + REGIONS * fight.kills


@pytest.mark.soak
async def test_a_bitstream_is_in_memory_only_while_it_is_programmed(
    short_dir: Path, processes: Processes
) -> None:
    """Those of large cards have 70 MB, and the plugin has 96 MiB without one."""
    async with region_cluster(short_dir, processes, [CardSpec(afu_ids=(NLB0,))]) as cluster:
        await program_large_bitstreams(cluster)


async def program_large_bitstreams(cluster: RegionCluster) -> None:
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
