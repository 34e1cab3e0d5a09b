"""Claims are prepared and taken back whatever happens in between: crashes at each step, reboots.

The cards are a dictionary here. What is checked: a device is one claim's, what a claim was answered
for is in its region for as long as its containers run, and nothing is left after all of it.
"""

import asyncio
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from dra.book import ClaimBook
from dra.claim_files import Given, given_to
from dra.claims import ClaimRef
from dra.preparation import Preparation, Surroundings
from dra.wants import Want
from services.containers.permission import Enforce
from services.containers.wanted import WantedFunctions
from services.devices.dra import DraDevice
from services.devices.model import Device, DeviceNode, Fme, Port
from services.mappings.index import NamespaceMappings, build_index
from services.mappings.model import parse
from services.node.regions import Readiness, RegionContents
from services.process.errors import AccelbindError, DeviceBusy
from services.programming.assignment import Region
from simulator.cards import A10_INTERFACE, NLB0, NLB3
from tests.dra.support import DEVELOP, REGION, claim, config, mapping, region, result

NAMES = ("fpga-a", "fpga-b")
DEVICES = {
    name: DraDevice(
        name,
        Device(
            f"id-of-{name}",
            REGION,
            healthy=True,
            nodes=(DeviceNode.at(f"port-of-{name}"),),
            interface_id=A10_INTERFACE,
        ),
        {},
    )
    for name in NAMES
}
KINDS = {
    "nlb0": config({"mapping": "nlb0"}, "FromClaim"),
    "nlb3": config({"mapping": "nlb3"}, "FromClaim"),
    "never": config({"afu": NLB0, "program": "Never"}),
    "develop": config(DEVELOP),
}
MAPPED = build_index(map(parse, (mapping("nlb0"), mapping("nlb3", NLB3), region("r"))))


class Crash(BaseException):
    """The process is killed here."""


class Steps:
    """Counts the steps that are made, and crashes at one of them."""

    def __init__(self) -> None:
        self.left: int | None = None

    def step(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise Crash


class Cards:
    """What is in regions, by id; and what uses them now."""

    def __init__(self, steps: Steps) -> None:
        self.shown: dict[str, str] = {each.device.id: NLB0 for each in DEVICES.values()}
        self.records: dict[str, str] = {}
        self.open: set[str] = set()
        self.programmed = 0
        self._steps = steps

    async def prepare(self, wanted: WantedFunctions, ids: Sequence[str]) -> Readiness:
        for key, function in zip(ids, wanted.functions, strict=True):
            if key in self.open:
                raise DeviceBusy(f"{key} is in use")
            if self.records.get(key) == function:
                continue
            self.records[key] = ""
            self._steps.step()
            self.shown[key] = function
            self.programmed += 1
            self._steps.step()
            self.records[key] = function
        return Readiness((), ())

    verify = prepare

    async def is_ready(self, wanted: WantedFunctions, ids: Sequence[str]) -> bool:
        pairs = zip(ids, wanted.functions, strict=True)
        return all(self.records.get(key) == function for key, function in pairs)

    async def read(self) -> RegionContents:
        engine = Fme("fme", A10_INTERFACE)
        regions = {
            key: Region(key, "dfl", key, "", engine, (Port(f"p-{key}", 0, shown),))
            for key, shown in self.shown.items()
        }
        contents = {f"p-{key}": function for key, function in self.records.items() if function}
        unfinished = frozenset(f"p-{key}" for key, text in self.records.items() if not text)
        return RegionContents(regions, contents, unfinished)

    async def settle(self, ids: Sequence[str]) -> None:
        assert ids

    async def empty(self, ids: Sequence[str]) -> None:
        for key in ids:
            self._steps.step()
            self.records[key] = ""


class Files:
    """CDI files, by UID."""

    def __init__(self, steps: Steps) -> None:
        self.files: set[str] = set()
        self._steps = steps

    async def write(self, uid: str, wants: Sequence[Want]) -> tuple[Given, ...]:
        self._steps.step()
        self.files.add(uid)
        self._steps.step()
        return given_to(uid, wants, DEVICES)

    async def remove(self, uid: str) -> None:
        self._steps.step()
        self.files.discard(uid)
        self._steps.step()


class Book(ClaimBook):
    """The book, killed before and after it writes."""

    def __init__(self, folder: Path, steps: Steps) -> None:
        super().__init__(folder)
        self._steps = steps

    def reserve(self, claim: ClaimRef, wants: tuple[Want, ...]) -> None:
        self._steps.step()
        super().reserve(claim, wants)
        self._steps.step()

    def commit(self, claim: ClaimRef, wants: tuple[Want, ...], carried: Mapping[str, str]) -> None:
        self._steps.step()
        super().commit(claim, wants, carried)
        self._steps.step()

    def remove(self, uid: str) -> None:
        super().remove(uid)
        self._steps.step()


class Api:
    """Claims by name."""

    def __init__(self) -> None:
        self.claims: dict[str, bytes] = {}

    async def get_claim(self, namespace: str, name: str) -> bytes | None:
        assert namespace == "ns"
        return self.claims.get(name)

    async def get_pod(self, namespace: str, name: str) -> bytes | None:
        raise AssertionError(f"nobody needs pod {namespace}/{name}")

    async def mappings(self, namespace: str) -> NamespaceMappings:
        return MAPPED.namespace(namespace)


class Node(RuleBasedStateMachine):
    """A node with two regions, its kubelet and its scheduler."""

    claims = Bundle("claims")

    @initialize()
    def boot(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp())
        self.steps, self.api = Steps(), Api()
        self.cards, self.files = Cards(self.steps), Files(self.steps)
        self.kinds: dict[str, tuple[str, str]] = {}
        self.running: dict[str, str] = {}
        """Claims whose containers run, and the function that they were promised."""
        self.start()

    def start(self) -> None:
        self.book = Book(self.folder / "claims", self.steps)

        async def known() -> Mapping[str, DraDevice]:
            return DEVICES

        async def none() -> frozenset[str]:
            return frozenset()

        around = Surroundings("n1", self.api, known, none, Enforce.AUTO)
        self.preparation = Preparation(self.book, self.cards, self.files, around, seconds=SOON)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            for name in list(self.kinds):
                self.give_back(name)
            assert self.book.entries() == ()
            assert self.files.files == set()
            self.loop.close()
            shutil.rmtree(self.folder)

    @rule(target=claims, kind=st.sampled_from(sorted(KINDS)), device=st.sampled_from(NAMES))
    def allocate(self, kind: str, device: str) -> str:
        """A claim; the scheduler may have forgotten that the device is another one's."""
        name = f"c{len(self.kinds)}"
        self.kinds[name] = kind, device
        item = claim(name, result(device), configs=(KINDS[kind],))
        self.api.claims[name] = json.dumps(item).encode()
        return name

    @rule(name=claims, crash=st.none() | st.integers(0, 12))
    def prepare(self, name: str, crash: int | None) -> None:
        self.steps.left = crash
        try:
            given = self.loop.run_until_complete(self.preparation.prepare(ref(name)))
        except Crash:
            self.start()
        except AccelbindError:
            pass
        else:
            assert [each.device for each in given] == [self.kinds[name][1]]
            if name not in self.running:
                self.running[name] = self.promised(name)
                self.cards.open.add(self.key(name))
        self.steps.left = None

    def promised(self, name: str) -> str:
        return {"nlb0": NLB0, "never": NLB0, "nlb3": NLB3}.get(self.kinds[name][0], "")

    def key(self, name: str) -> str:
        return DEVICES[self.kinds[name][1]].device.id

    @rule(name=claims, crash=st.none() | st.integers(0, 4))
    def unprepare(self, name: str, crash: int | None) -> None:
        """The containers have ended; the claim may be deleted already."""
        self.stop(name)
        self.steps.left = crash
        try:
            self.loop.run_until_complete(self.preparation.unprepare(ref(name)))
        except Crash:
            self.start()
        self.steps.left = None

    @rule(name=claims)
    def give_back(self, name: str) -> None:
        self.unprepare(name, None)
        assert self.book.find(f"uid-of-{name}") is None
        assert f"uid-of-{name}" not in self.files.files

    @rule(name=claims)
    def force_delete(self, name: str) -> None:
        self.api.claims.pop(name, None)

    @rule(device=st.sampled_from(NAMES))
    def develop(self, device: str) -> None:
        """A workload that develops programs the region."""
        for name in self.running:
            if self.kinds[name] == ("develop", device):
                self.cards.shown[self.key(name)] = NLB3

    @rule()
    def reboot(self) -> None:
        """Everything in memory is gone."""
        for name in list(self.running):
            self.stop(name)
        shutil.rmtree(self.folder / "claims", ignore_errors=True)
        self.files.files.clear()
        self.cards.records.clear()
        self.start()

    def stop(self, name: str) -> None:
        if self.running.pop(name, None) is not None:
            self.cards.open.discard(self.key(name))

    @invariant()
    def a_device_is_one_claims(self) -> None:
        devices = [self.kinds[name][1] for name in getattr(self, "running", {})]
        assert len(devices) == len(set(devices))

    @invariant()
    def what_runs_has_its_function(self) -> None:
        for name, function in getattr(self, "running", {}).items():
            if function:
                assert self.cards.shown[self.key(name)] == function


SOON = 0.02
"""For a claim whose device another one has."""


def ref(name: str) -> ClaimRef:
    return ClaimRef("ns", name, f"uid-of-{name}")


TestNode = Node.TestCase
TestNode.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_a_crash_at_each_step_costs_at_most_one_more_programming() -> None:
    """As for the process: it goes on where it was, and there is one entry."""
    for crash in range(14):
        node = Node()
        node.boot()
        name = node.allocate("nlb3", NAMES[0])
        node.prepare(name, crash)
        node.prepare(name, None)
        assert name in node.running
        assert node.cards.programmed <= 2
        assert [each.is_committed for each in node.book.entries()] == [True]
        node.teardown()
