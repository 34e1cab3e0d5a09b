"""Claims in any order of calls, kills, restarts, forced deletions and reboots: a state machine.

The driver's preparation and book are real; hardware, CDI files, scheduler and kubelet are models.
What must hold after each step:

- no two containers have one device;
- a container finds the function that it asked for, and nobody programs under it;
- a claim that was unprepared leaves nothing.

    waiting ──prepare──► running ──its containers end──► ended ──unprepare──► gone
       ▲────── the sandbox is lost, the node reboots ──────┘ (not for an ended one)
"""

import asyncio
import json
import selectors
import shutil
import tempfile
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from prometheus_client import Counter

from plugin.dra.book import ClaimBook, ClaimEntry
from plugin.dra.claim_files import CdiClaimFiles, GivenDevice
from plugin.dra.claims import ClaimRef
from plugin.dra.preparation import Preparation
from plugin.dra.wants import Want
from services.containers.pod_source import ApiServerPods
from services.containers.wanted import WantedFunctions
from services.devices.dra import DraDevice
from services.devices.model import Device, Inventory
from services.kube.events import EventRecorder
from services.mappings.index import NamespaceMappings, build_namespace
from services.mappings.model import read_entry
from services.node.regions import Readiness, RegionContents, RegionProgramming
from services.process.errors import AccelbindError
from services.programming.assignment import Region, regions_of
from tests.plugin.dra.support import Known, NoPods, claim, config, result
from tests.plugin.support import settings as node_settings
from tests.services.building import function
from tests.services.cards import INTERFACE, NLB0, NLB3, REGION, card, port
from tests.support import soaking

T = TypeVar("T")

DEVICES = ("fpga-0", "fpga-1", "fpga-2")
STEPS = st.none() | st.integers(1, 10)
"""After how many of its steps a call is the last thing that the driver did."""
HOW = st.sampled_from(["", "", "slow", "twice", "shared"])
"""How a claim is prepared: programming takes longer than the call, the call is broken off, or two
pods share the claim."""
MOST_PODS = 8
CONFIGS: Mapping[str, tuple[object, str]] = {
    "nlb0": ({"mapping": "nlb0"}, "FromClaim"),
    "nlb3": ({"mapping": "nlb3"}, "FromClaim"),
    "never": ({"afu": NLB0, "program": "Never"}, "FromClass"),
    "develop": ({"develop": True}, "FromClass"),
}
FUNCTIONS = {"nlb0": NLB0, "nlb3": NLB3, "never": NLB0}
OWN = "0" * 31 + "1"
"""What a workload for development puts into its region."""


class Clock(selectors.SelectSelector):
    """Time of its own: where an event loop would wait, it jumps."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


class Loop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no time, and which does the same each time."""

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


class Killed(BaseException):
    """The process was killed here."""


@dataclass
class Pod:
    """A pod with a claim, as the kubelet knows it."""

    name: str
    wish: str
    devices: tuple[str, ...]
    state: str = "waiting"
    in_api: bool = True

    @property
    def ref(self) -> ClaimRef:
        return ClaimRef("ns", self.name, f"uid-of-{self.name}")

    def body(self) -> bytes:
        results = [result(each) for each in self.devices]
        return json.dumps(
            claim(self.name, *results, configs=(config(*CONFIGS[self.wish]),))
        ).encode()


@dataclass
class Hardware:
    """What outlives the driver: regions, records and CDI files."""

    shown: dict[str, str] = field(default_factory=lambda: dict.fromkeys(DEVICES, NLB0))
    records: dict[str, str] = field(default_factory=lambda: dict.fromkeys(DEVICES, NLB0))
    """What the driver knows of regions; empty before work on one begins."""
    cdi: dict[str, str | None] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    programmings: int = 0

    def users(self, device: str) -> list[Pod]:
        return [pod for pod in self.pods if pod.state == "running" and device in pod.devices]

    def regions(self) -> dict[str, Region]:
        cards = [card(n, port(f"dfl-port.{n}", self.shown[each])) for n, each in enumerate(DEVICES)]
        return dict(regions_of(Inventory(tuple(replace(each, pci=None) for each in cards))))


class Fuse:
    """Kills the process after so many steps."""

    def __init__(self) -> None:
        self.left: int | None = None

    @property
    def is_burnt(self) -> bool:
        return self.left == 0

    def step(self) -> None:
        if self.left is not None:
            self.left = max(0, self.left - 1)
            if self.is_burnt:
                raise Killed


class KillableBook(ClaimBook):
    """A book before and after each of whose writes the process may be killed."""

    fuse = Fuse()

    def reserve(
        self,
        claim: ClaimRef,
        wants: tuple[Want, ...],
        pods: tuple[str, ...] = (),
        pod_claim: str | None = None,
    ) -> ClaimEntry:
        self.fuse.step()
        entry = super().reserve(claim, wants, pods, pod_claim)
        self.fuse.step()
        return entry

    def commit(self, entry: ClaimEntry) -> None:
        self.fuse.step()
        super().commit(entry)
        self.fuse.step()

    def remove(self, uid: str) -> None:
        self.fuse.step()
        super().remove(uid)
        self.fuse.step()


def device_of(key: str) -> str:
    return f"fpga-{key.rpartition('.')[2]}"


class ModelRegions(RegionProgramming):
    """Programs regions; slow work goes on after the call that began it, and has the card's lock."""

    def __init__(self, hardware: Hardware, fuse: Fuse) -> None:
        self._hardware = hardware
        self._fuse = fuse
        self._locks = {each: asyncio.Lock() for each in DEVICES}
        self._going_on: set[asyncio.Task[None]] = set()
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def prepare(self, wanted: WantedFunctions, ids: Sequence[str]) -> Readiness:
        for key, wish in zip(ids, wanted.functions, strict=True):
            task = asyncio.create_task(self._program(device_of(key), wish))
            self._going_on.add(task)
            task.add_done_callback(self._going_on.discard)
            await asyncio.shield(task)
        return Readiness((), ())

    async def _program(self, device: str, wish: str) -> None:
        async with self._locks[device]:
            if self._hardware.records.get(device) == wish:
                return
            self._hardware.records[device] = ""
            self._fuse.step()
            assert not self._hardware.users(device), f"{device} is programmed under a container"
            self._hardware.shown[device] = ""
            self._hardware.programmings += 1
            await self.may_end.wait()
            assert not self._hardware.users(device), f"{device} is programmed under a container"
            self._hardware.shown[device] = wish
            self._fuse.step()
            self._hardware.records[device] = wish

    async def ended(self) -> None:
        """Wait for work that goes on."""
        await asyncio.gather(*self._going_on, return_exceptions=True)

    async def is_ready(self, wanted: WantedFunctions, ids: Sequence[str]) -> bool:
        records = [self._hardware.records.get(device_of(each)) for each in ids]
        return records == list(wanted.functions)

    async def read(self) -> RegionContents:
        records = self._hardware.records
        known = {each.replace("fpga-", "dfl-port."): found for each, found in records.items()}
        return RegionContents(self._hardware.regions(), known)

    async def settle(self, ids: Sequence[str]) -> None:
        assert ids

    async def empty(self, ids: Sequence[str]) -> None:
        for each in ids:
            self._hardware.records[device_of(each)] = ""
        self._fuse.step()


class ModelFiles(CdiClaimFiles):
    """CDI files."""

    def __init__(self, hardware: Hardware, fuse: Fuse) -> None:
        self._hardware = hardware
        self._fuse = fuse

    def describe(self, entry: ClaimEntry) -> tuple[tuple[GivenDevice, ...], ClaimEntry]:
        return (), msgspec.structs.replace(entry, file="its devices")

    async def write(self, entry: ClaimEntry) -> dict[Path, str]:
        self._fuse.step()
        self._hardware.cdi[entry.claim.uid] = entry.file
        self._fuse.step()
        return {}

    async def remove(self, uid: str) -> None:
        self._fuse.step()
        self._hardware.cdi.pop(uid, None)


class ModelApi(ApiServerPods):
    """The claims and the namespace's mappings."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware

    async def get_claim(self, namespace: str, name: str) -> bytes | None:  # noqa: ARG002 - as overridden
        found = [pod for pod in self._hardware.pods if pod.name == name and pod.in_api]
        return found[0].body() if found else None

    async def mappings(self, namespace: str) -> NamespaceMappings:  # noqa: ARG002 - the same
        entries = [
            read_entry(function(name, "region", afu=afu, namespace="ns"))
            for name, afu in (("nlb0", NLB0), ("nlb3", NLB3))
        ]
        return build_namespace("ns", filter(None, entries))


ALL_DEVICES = {
    each: DraDevice(each, Device(f"dfl-fme.{n}", REGION, interface_id=INTERFACE), {})
    for n, each in enumerate(DEVICES)
}


NO_EVENTS = EventRecorder(
    None, component="", host="", results=Counter("events", "Of this test", registry=None)
)


class ClaimLife(RuleBasedStateMachine):
    """A node whose driver, kubelet and users do what they like."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="ab-"))
        self.loop = Loop()
        self.hardware = Hardware()
        self.made = 0
        self.boots = 0
        self.count_boot()
        self.begin()

    # The driver

    def count_boot(self) -> None:
        self.boots += 1
        (self.folder / "boot").write_text(f"boot-{self.boots}\n")

    def boot(self) -> None:
        self.count_boot()
        shutil.rmtree(self.folder / "claims", ignore_errors=True)
        self.hardware.cdi.clear()
        self.hardware.records.clear()

    def begin(self) -> None:
        """Start the driver."""
        self.fuse = Fuse()
        self.book = KillableBook(self.folder / "claims", self.folder / "boot")
        self.book.fuse = self.fuse
        self.regions = ModelRegions(self.hardware, self.fuse)
        self.driver = Preparation(
            node_settings(self.folder, enforce_mappings="never"),
            self.book,
            self.regions,
            ModelFiles(self.hardware, self.fuse),
            Known(ALL_DEVICES),
            source=ModelApi(self.hardware),
            plugin=NoPods(),
            events=NO_EVENTS,
        )

    def kill(self) -> None:
        """Kill the driver, and start it again."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.fuse.left = None
        self.do(self._ended(tasks))
        self.begin()

    @staticmethod
    async def _ended(tasks: Collection[asyncio.Task[object]]) -> None:
        await asyncio.gather(*tasks, return_exceptions=True)

    def do(self, work: Any) -> Any:
        async def awaited() -> Any:
            return await work

        return self.loop.run_until_complete(awaited())

    def call(self, work: Coroutine[Any, Any, object]) -> bool:
        """Make a call; False if it failed, or the driver was killed in it."""
        try:
            self.do(work)
        except (AccelbindError, Killed):
            return False
        finally:
            is_burnt = self.fuse.is_burnt
            if is_burnt:
                self.kill()
        return not is_burnt

    def some(self, *states: str) -> list[Pod]:
        return [pod for pod in self.hardware.pods if pod.state in states]

    # Rules

    @rule(
        wish=st.sampled_from(sorted(CONFIGS)),
        start=st.integers(0, len(DEVICES) - 1),
        count=st.integers(1, 2),
        steps=STEPS,
        how=HOW,
    )
    def schedule(self, wish: str, start: int, count: int, steps: int | None, how: str) -> None:
        """The scheduler knows of devices only what claims in the API have."""
        taken = {each for pod in self.hardware.pods if pod.in_api for each in pod.devices}
        order = DEVICES[start:] + DEVICES[:start]
        free = [each for each in order if each not in taken]
        if len(free) >= count and len(self.hardware.pods) < MOST_PODS:
            self.made += 1
            pod = Pod(f"p{self.made}", wish, tuple(free[:count]))
            self.hardware.pods.append(pod)
            self.prepare(pod, steps, how)

    @precondition(lambda self: self.some("waiting"))
    @rule(data=st.data(), steps=STEPS, how=HOW)
    def ask_again(self, data: st.DataObject, steps: int | None, how: str) -> None:
        pod = data.draw(st.sampled_from(self.some("waiting")), label="pod")
        self.prepare(pod, steps, how)

    def prepare(self, pod: Pod, steps: int | None, how: str) -> None:
        """The kubelet asks, perhaps twice, since it was restarted before it had heard."""
        self.fuse.left = steps
        if how == "slow":
            self.regions.may_end.clear()
        if how == "twice":
            self.call(self._broken_off(pod))
        if self.call(self._shared(pod) if how == "shared" else self.driver.prepare(pod.ref)):
            self.run(pod)
        self.fuse.left = None

    async def _broken_off(self, pod: Pod) -> None:
        task = asyncio.ensure_future(self.driver.prepare(pod.ref))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _shared(self, pod: Pod) -> None:
        await asyncio.gather(self.driver.prepare(pod.ref), self.driver.prepare(pod.ref))

    def run(self, pod: Pod) -> None:
        """Start the containers of a pod that was prepared."""
        entry = self.book.find(pod.ref.uid)
        assert entry is not None
        assert entry.is_committed
        assert pod.ref.uid in self.hardware.cdi
        pod.state = "running"
        if pod.wish == "develop":
            self.hardware.shown |= dict.fromkeys(pod.devices, OWN)

    @precondition(lambda self: not self.regions.may_end.is_set())
    @rule()
    def let_work_end(self) -> None:
        """Programming that took longer than a call ends."""
        self.regions.may_end.set()
        self.do(self.regions.ended())

    @precondition(lambda self: self.some("running", "waiting"))
    @rule(data=st.data())
    def force_delete(self, data: st.DataObject) -> None:
        """The API forgets pod and claim; containers run on."""
        pod = data.draw(st.sampled_from(self.some("running", "waiting")), label="pod")
        pod.in_api = False

    @precondition(lambda self: self.some("running"))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.some("running")), label="pod").state = "ended"

    @precondition(lambda self: any(not pod.in_api for pod in self.some("waiting")))
    @rule()
    def end_before_it_ran(self) -> None:
        """The kubelet unprepares what it has asked for, whatever the answer was."""
        for pod in self.some("waiting"):
            if not pod.in_api:
                pod.state = "ended"

    @precondition(lambda self: self.some("ended"))
    @rule(data=st.data(), steps=st.none() | st.integers(1, 3))
    def unprepare(self, data: st.DataObject, steps: int | None) -> None:
        """The kubelet asks until it is told that nothing is left."""
        pod = data.draw(st.sampled_from(self.some("ended")), label="pod")
        self.fuse.left = steps
        if self.call(self.driver.unprepare(pod.ref)):
            assert self.book.find(pod.ref.uid) is None
            assert pod.ref.uid not in self.hardware.cdi
            self.hardware.pods.remove(pod)
        self.fuse.left = None

    @precondition(lambda self: self.some("running"))
    @rule(data=st.data())
    def lose_sandbox(self, data: st.DataObject) -> None:
        """A kubelet that was restarted makes a new sandbox, and asks again."""
        data.draw(st.sampled_from(self.some("running")), label="pod").state = "waiting"

    @rule()
    def restart(self) -> None:
        self.kill()

    @rule(shown=st.sampled_from(["", NLB0, NLB3]))
    def reboot(self, shown: str) -> None:
        """Cards show what their flash has, or keep what they had."""
        self.kill()
        for pod in self.some("running"):
            pod.state = "waiting"
        self.boot()
        self.begin()
        if shown:
            self.hardware.shown = dict.fromkeys(DEVICES, shown)

    # What must hold

    @invariant()
    def one_claim_per_device(self) -> None:
        for device in DEVICES:
            assert len(self.hardware.users(device)) <= 1, device

    @invariant()
    def the_right_function(self) -> None:
        for pod in self.some("running"):
            if wish := FUNCTIONS.get(pod.wish):
                found = {self.hardware.shown[each] for each in pod.devices}
                assert found == {wish}, f"{pod.name} wants {wish}"

    def teardown(self) -> None:
        self.kill()
        for pod in tuple(self.hardware.pods):
            assert self.call(self.driver.unprepare(pod.ref)), pod
        assert self.book.entries() == ()
        assert not self.hardware.cdi
        self.loop.close()
        shutil.rmtree(self.folder)


ClaimLife.TestCase.settings = settings(
    max_examples=2000 if soaking() else 25, stateful_step_count=50, deadline=None
)
TestClaimLife = pytest.mark.timeout(0 if soaking() else 300)(ClaimLife.TestCase)


def test_a_kill_after_each_step_costs_at_most_one_more_programming() -> None:
    for steps in range(1, 12):
        life = ClaimLife()
        pod = Pod("p", "nlb3", DEVICES[:1])
        life.hardware.pods.append(pod)
        life.prepare(pod, steps, "")
        life.prepare(pod, None, "")
        assert pod.state == "running"
        assert life.hardware.programmings <= 2
        assert [each.is_committed for each in life.book.entries()] == [True]
        life.teardown()
