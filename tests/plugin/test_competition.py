"""Twenty pods compete for four regions with three functions, as fast as the plugin lets them.

All of it is in this process: `tests/faults/test_region_competition.py` has it in a cluster of
processes.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from services.bitstreams.storage import BitstreamStorage
from services.devices.model import PluginMode
from services.mappings.index import build_index
from services.mappings.model import parse
from simulator.bitstreams import make_gbs
from simulator.cards import A10_INTERFACE, CardSpec, Rack
from simulator.driver import DriverStandIn, raw_bitstream
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import (
    NLB0,
    NLB3,
    REGION,
    Pods,
    container,
    functions,
    pod,
    running,
    settings,
)
from tests.support import soak

pytestmark = pytest.mark.anyio

FUNCTIONS = (NLB0, NLB3, "0123456789abcdef0123456789abcdef")
REGIONS = 4
PODS = 20


@dataclass
class Competition:
    """The regions, what is in them, and what has happened so far."""

    kubelet: KubeletStandIn
    rack: Rack
    driver: DriverStandIn
    pods: Pods
    chance: random.Random
    until: float
    content: dict[str, str] = field(default_factory=dict)
    """What a region carries, by its name: the test's own account."""
    starts: int = 0
    least: int = 0
    """How many programmings the kubelet's choices would have needed at least."""
    wrong: list[str] = field(default_factory=list)
    free: int = REGIONS
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    numbers: Any = field(default_factory=itertools.count)

    async def compete(self) -> None:
        """One of the pods, again and again, each time as another one."""
        while time.monotonic() < self.until:
            wanted = self.chance.choices(FUNCTIONS, k=self.chance.choice((1, 1, 1, 2)))
            await self.take(len(wanted))
            await self.live(wanted)
            async with self.changed:
                self.free += len(wanted)
                self.changed.notify_all()

    async def take(self, count: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.free >= count)
            self.free -= count

    async def live(self, wanted: list[str]) -> None:
        name = f"p{next(self.numbers)}"
        spec = pod(name, container("c", REGION, len(wanted), functions(*wanted)))
        admitted = await self.kubelet.admit(self.pods.add(spec))
        await self.kubelet.until(lambda: admitted["c"].running, 60)
        regions = [each for _, ids in admitted["c"].granted.allocated for each in ids]
        self.judge(name, wanted, regions)
        if self.chance.random() < 0.3:
            if self.chance.random() < 0.5:
                self.lose(self.chance.choice(regions))
            await self.kubelet.restart_container(admitted, "c")
            await self.kubelet.until(lambda: admitted["c"].running, 60)
            self.judge(name, wanted, regions)
        await self.kubelet.delete_pod(admitted)
        del self.pods.pods["ns", name]

    def judge(self, name: str, wanted: list[str], regions: list[str]) -> None:
        """Looks at what is in the regions of a container that has just started."""
        before = [self.content[each] for each in regions]
        self.least += min(
            sum(function != there for function, there in zip(order, before, strict=True))
            for order in itertools.permutations(wanted)
        )
        now = [self.read(each) for each in regions]
        if sorted(now) != sorted(wanted):
            self.wrong.append(f"{name} wants {wanted} and started on {now}")
        self.content.update(zip(regions, now, strict=True))
        self.starts += 1

    def lose(self, region: str) -> None:
        """A region's function is gone, as after a fault of its card."""
        address = next(each for each in self.rack.addresses if self.rack.fme(each) == region)
        self.rack.set_afu(address, "f" * 31 + "0")
        self.content[region] = ""

    def read(self, region: str) -> str:
        (path,) = self.rack.root.glob(f"sys/class/fpga*/*/{region}/../*-port.*/afu_id")
        return path.read_text().strip()

    async def trouble(self) -> None:
        """The hardware refuses now and then."""
        while time.monotonic() < self.until:
            self.driver.refuse = not self.driver.refuse and self.chance.random() < 0.3
            self.driver.seconds = self.chance.choice((0.0, 0.01, 0.05))
            await asyncio.sleep(0.5)  # the pace of the trouble
        self.driver.refuse = False


@pytest.mark.long
@pytest.mark.timeout(0)
async def test_no_container_starts_on_a_wrong_function_and_no_work_is_done_twice(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, figure: Callable[[str], None]
) -> None:
    length = soak(short=4, full=600)
    storage = BitstreamStorage(short_dir / "bitstreams")
    for afu in FUNCTIONS:
        (short_dir / "new.gbs").write_bytes(make_gbs(A10_INTERFACE, afu, raw_bitstream(afu)))
        storage.install(short_dir / "new.gbs")
    for number in range(REGIONS):
        driver_name = ("opae", "dfl")[number % 2]
        rack.add_card(CardSpec(driver=driver_name, afu_ids=(FUNCTIONS[number % 3],)))
    with DriverStandIn(rack.root) as driver:
        competition = Competition(
            kubelet,
            rack,
            driver,
            pods_with_mappings(),
            random.Random(length.seed),  # noqa: S311 - to be repeated, not to be secret
            time.monotonic() + length.seconds,
        )
        for address in rack.addresses:
            region = str(rack.fme(address))
            competition.content[region] = competition.read(region)
        async with running(settings(short_dir, PluginMode.REGION), competition.pods):
            await kubelet.until(lambda: kubelet.allocatable.get(REGION) == REGIONS)
            async with asyncio.TaskGroup() as group:
                group.create_task(competition.trouble())
                for _ in range(PODS):
                    group.create_task(competition.compete())
        done = len(driver.programmed)
    figure(
        f"seed {length.seed}: {competition.starts} starts, {done} programmings, and"
        f" {competition.least} at least for what the kubelet chose"
    )
    assert competition.wrong == []
    assert competition.starts >= PODS
    assert done == competition.least


def pods_with_mappings() -> Pods:
    pods = Pods()
    spec = {"interfaceId": A10_INTERFACE, "mode": "region"}
    pods.mapped = build_index(
        parse(
            {
                "apiVersion": "fpga.intel.com/v2",
                "kind": "AcceleratorFunction",
                "metadata": {"name": f"f{number}", "namespace": "ns"},
                "spec": spec | {"afuId": afu},
            }
        )
        for number, afu in enumerate(FUNCTIONS)
    )
    return pods
