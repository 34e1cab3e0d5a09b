"""The DRA driver for long: many pods, competition, kills, slow cards (with `SOAK=1` only)."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from services.devices.labels import dns_label
from simulator.cards import A10_INTERFACE, NLB0, NLB3, CardSpec
from tests.e2e.api import Json, Place, until
from tests.e2e.cluster import Cluster
from tests.e2e.dra import GROUP, Driver, driver_of, with_template
from tests.e2e.hosts import CARDS, Hosts
from tests.e2e.pods import SHOW, STAY, Pods
from tests.e2e.suite.conftest import mapping
from tests.e2e.suite.dra import KEPT, PROGRAMMED, RETRY_SECONDS
from tests.support import Soak, soak

pytestmark = pytest.mark.usefixtures("can_run")

EIGHT = 8
THIRD = "third-programmed"
FUNCTIONS = {KEPT: NLB0, PROGRAMMED: NLB3, THIRD: "a" * 31 + "3"}
UNKNOWN = "a" * 31 + "f"


@pytest.fixture(scope="module")
def length() -> Soak:
    return soak(short=20, full=600)


@pytest.fixture(scope="module")
def driver(cluster: Cluster, pods: Pods, hosts: Hosts) -> Iterator[Driver]:
    """The driver on a node with eight cards and three functions."""
    if not cluster.api.serves(GROUP, "deviceclasses"):
        pytest.skip("DRA needs Kubernetes 1.36")
    cluster.api.create(mapping(THIRD, pods.namespace, A10_INTERFACE, FUNCTIONS[THIRD], "region"))
    for afu in FUNCTIONS.values():
        hosts.install(afu)
    added = [hosts.rack.add_card(CardSpec()) for _ in range(EIGHT - CARDS)]
    with driver_of(hosts, EIGHT) as running:
        yield running
        pods.tidy()
    for each in added:
        hosts.rack.remove_card(each)
    for afu in FUNCTIONS.values():
        hosts.uninstall(afu)


@dataclass(frozen=True, slots=True)
class Trial:
    """What a test tries: the driver, and pods with claims for three functions."""

    pods: Pods
    driver: Driver
    templates: Mapping[str, str]
    """Of each mapping."""

    @property
    def hosts(self) -> Hosts:
        return self.driver.hosts

    def create(self, name: str, wanted: str, script: str = STAY) -> str:
        self.pods.create(with_template(name, self.templates[wanted], script))
        return name

    def empty(self) -> None:
        """Have all cards carry what nobody wants."""
        for address in self.hosts.rack.addresses:
            self.hosts.rack.set_afu(address, UNKNOWN)

        def look() -> None:
            devices = self.driver.devices().values()
            found = {each["attributes"]["afuID"]["string"] for each in devices}
            assert found == {UNKNOWN}, str(found)

        until(look, seconds=self.pods.patience, what="that in slices")

    def claim(self, pod: str) -> Json:
        """The claim that was made for a pod; empty if there is none yet."""
        statuses = self.pods.get(pod).get("status", {}).get("resourceClaimStatuses") or [{}]
        name = statuses[0].get("resourceClaimName", "none")
        place = Place(GROUP, "ResourceClaim", self.pods.namespace)
        return self.pods.cluster.api.find(place, name) or {}

    def port(self, claim: Json) -> str:
        device, rack = result_of(claim)["device"], self.hosts.rack
        (found,) = [rack.ports(each)[0] for each in rack.addresses if dns_label(each) in device]
        return found

    def carried(self, claim: Json) -> str:
        return self.driver.carried(f"/dev/{self.port(claim)}")

    def end(self) -> None:
        """Have all pods go, and wait until nothing of their claims is left on the node."""
        self.pods.tidy()

        def look() -> None:
            assert (self.driver.claims, self.driver.cdi_files) == ([], [])

        until(look, seconds=self.pods.patience, what="the end of all claims")


@pytest.fixture
def trial(pods: Pods, driver: Driver) -> Iterator[Trial]:
    yield Trial(pods, driver, {name: driver.template(pods, name) for name in FUNCTIONS})
    driver.hosts.start_driver()  # a test may have slow cards


def result_of(claim: Json) -> Json:
    """The device that a claim was allocated; empty if it was not."""
    allocation = claim.get("status", {}).get("allocation") or {"devices": {"results": [{}]}}
    result: Json
    (result,) = allocation["devices"]["results"]
    return result


def test_a_hundred_successive_pods_of_two_functions_are_programmed_twice(
    trial: Trial, length: Soak, figure: Callable[[str], None]
) -> None:
    trial.empty()
    before, begun = len(trial.hosts.programmed()), time.monotonic()
    writes = len(trial.driver.logged("devices published"))
    count = 100 if length.seconds >= 100 else 10
    for number in range(count):
        wanted = (KEPT, PROGRAMMED)[number % 2]
        name = trial.create(f"pod-{number}", wanted, SHOW)
        (device,) = trial.pods.given(name)["show"].devices
        assert trial.driver.carried(device) == FUNCTIONS[wanted]
        trial.pods.remove(name)
    done = trial.hosts.programmed()[before:]
    writes = len(trial.driver.logged("devices published")) - writes
    figure(
        f"{count} pods in {time.monotonic() - begun:.0f} s, {len(done)} programmings, slices were"
        f" written {writes} times"
    )
    assert len(done) == 2


@dataclass(slots=True)
class Competition:
    """Pods that compete for regions; each worker has one after the other."""

    trial: Trial
    chance: random.Random
    until: float
    wrong: list[str] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    chosen: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)

    def compete(self, worker: int) -> None:
        number = 0
        while time.monotonic() < self.until:
            number += 1
            self._one(f"pod-{worker}-{number}")

    def _one(self, name: str) -> None:
        """Run a pod for a while, or delete it before it runs."""
        wanted = self.chance.choice([*FUNCTIONS])
        begun = time.monotonic()
        self.trial.create(name, wanted)
        runs = self._runs(name, patience=self.chance.choice([0.5, 1.5, 4.0, *[300.0] * 5]))
        if runs:
            self.waited.append(time.monotonic() - begun)
            claim = self.trial.claim(name)
            self.chosen[result_of(claim)["request"]] += 1
            self._check(name, claim, FUNCTIONS[wanted])
            time.sleep(self.chance.uniform(0, 6))  # its work
            self._check(name, claim, FUNCTIONS[wanted])
        forced = self.chance.random() < 0.25
        self.ends[("forced" if forced else "asked") + ("" if runs else " early")] += 1
        pods = self.trial.pods
        pods.cluster.api.delete(pods.place, name, grace=0 if forced else 2)

    def _runs(self, name: str, patience: float) -> bool:
        deadline = min(time.monotonic() + patience, self.until + RETRY_SECONDS)
        while time.monotonic() < deadline:
            if self.trial.pods.get(name)["status"].get("phase") == "Running":
                return True
            time.sleep(0.2)  # between two looks
        return False

    def _check(self, name: str, claim: Json, wanted: str) -> None:
        carried = self.trial.carried(claim)
        if carried != wanted:
            self.wrong.append(f"{name}: {result_of(claim)} carries {carried}, wanted {wanted}")


def test_competing_claims_never_get_a_wrong_function_and_no_work_is_wasted(
    trial: Trial, length: Soak, figure: Callable[[str], None]
) -> None:
    trial.empty()
    trial.hosts.start_driver(seconds=1)
    before = len(trial.hosts.programmed())
    chance = random.Random(length.seed)  # noqa: S311 - to be repeated, not to be secret
    fight = Competition(trial, chance, time.monotonic() + length.seconds)
    workers = EIGHT + 4
    with ThreadPoolExecutor(workers) as pool:
        for each in [pool.submit(fight.compete, number) for number in range(workers)]:
            each.result()
    trial.end()
    done = trial.hosts.programmed()[before:]
    least, prepared = least_work(trial.driver)
    waited = sorted(fight.waited)
    figure(
        f"seed {length.seed}: {len(waited)} pods ran ({dict(fight.ends)}), {prepared} claims"
        f" prepared, {len(done)} programmings, {least} at least for what was allocated,"
        f" {wasted(done)} of a function that was there; chosen {dict(fight.chosen)}; waited"
        f" {waited[len(waited) // 2]:.1f} s (median), {waited[-1]:.1f} s (longest)"
    )
    assert fight.wrong == []
    assert wasted(done) == 0
    # What a pod that was deleted early had programmed is there, and no claim says so.
    assert len(done) <= least + sum(n for how, n in fight.ends.items() if "early" in how)


def wasted(done: list[tuple[str, str]]) -> int:
    """The programmings of a port with what it carried."""
    carried: dict[str, str] = {}
    count = 0
    for port, afu in done:
        count += carried.get(port) == afu
        carried[port] = afu
    return count


def least_work(driver: Driver) -> tuple[int, int]:
    """How often the functions that were prepared on a device changed; how many were prepared."""
    carried: dict[str, str] = {}
    changes = 0
    prepared = driver.logged("claim prepared")
    for each in prepared:
        for device, function in zip(each["devices"], each["functions"], strict=True):
            changes += carried.get(device) != function
            carried[device] = function
    return changes, len(prepared)


@pytest.mark.parametrize("number", range(6))
def test_a_driver_that_is_killed_at_any_moment_finishes_what_it_began(
    trial: Trial, length: Soak, figure: Callable[[str], None], number: int
) -> None:
    trial.empty()
    chance = random.Random(length.seed + number)  # noqa: S311 - as above
    trial.hosts.start_driver(seconds=chance.uniform(0, 3))
    before = len(trial.hosts.programmed())
    wanted = [*FUNCTIONS][number % 3]
    names = [trial.create(f"killed-{number}-{each}", wanted) for each in range(EIGHT)]
    until(lambda: progress(trial, names[0]), seconds=trial.pods.patience, what="an allocation")
    time.sleep(chance.uniform(0, 5))  # the moment of the kill
    trial.driver.process.kill()
    killed = time.monotonic()
    states = Counter(progress(trial, name) for name in names)
    trial.driver.start()
    for name in names:
        trial.pods.begun(name)
        assert trial.carried(trial.claim(name)) == FUNCTIONS[wanted]
    seconds = time.monotonic() - killed
    done = Counter(port for port, _ in trial.hosts.programmed()[before:])
    figure(
        f"seed {length.seed}: killed with {dict(states)}; all run {seconds:.0f} s later;"
        f" programmings of each {sorted(done.values())}"
    )
    assert seconds <= RETRY_SECONDS
    assert len(trial.driver.claims) == len(trial.driver.cdi_files) == EIGHT
    assert max(done.values()) <= 2
    trial.end()


def progress(trial: Trial, pod: str) -> str:
    """How far a pod's claim has come; empty before it is allocated."""
    claim = trial.claim(pod)
    if not result_of(claim):
        return ""
    uid = claim["metadata"]["uid"]
    entries = [each for each in trial.driver.claims if each["claim"]["uid"] == uid]
    if not entries:
        return "allocated"
    if entries[0]["is_committed"]:
        return "committed"
    if uid in trial.driver.cdi_files:
        return "CDI file written"
    return "reserved" if trial.carried(claim) == UNKNOWN else "programmed"


def test_a_card_that_takes_a_minute_is_programmed_once(
    trial: Trial, figure: Callable[[str], None]
) -> None:
    trial.empty()
    trial.hosts.start_driver(seconds=60)
    before, begun = len(trial.hosts.programmed()), time.monotonic()
    name = trial.create("slow", KEPT)
    trial.pods.until_waiting(name, "no answer within 36 s")
    failed = time.monotonic() - begun
    trial.pods.begun(name)
    figure(f"error after {failed:.0f} s, running after {time.monotonic() - begun:.0f} s")
    assert len(trial.hosts.programmed()) == before + 1


def test_a_claim_is_taken_back_while_its_card_hangs(
    trial: Trial, figure: Callable[[str], None]
) -> None:
    trial.empty()
    card = trial.hosts.running["driver"].popen
    card.send_signal(signal.SIGSTOP)
    try:
        name = trial.create("hangs", KEPT)
        until(
            lambda: _equal(progress(trial, name), "reserved"),
            seconds=trial.pods.patience,
            what="the claim to be reserved",
        )
        begun = time.monotonic()
        trial.end()
        figure(f"pod and claim were gone after {time.monotonic() - begun:.1f} s")
    finally:
        card.send_signal(signal.SIGCONT)
    trial.pods.begun(trial.create("after", KEPT))


def _equal(found: object, wanted: object) -> None:
    assert found == wanted


def test_a_pool_of_many_devices_never_has_one_twice(
    driver: Driver, hosts: Hosts, figure: Callable[[str], None]
) -> None:
    """Consumers count the slices of the pool's highest generation, once it is complete."""
    added = [hosts.rack.add_card(CardSpec()) for _ in range(70 - EIGHT)]
    seen: Counter[str] = Counter()

    def look(count: int) -> None:
        slices = driver.slices()
        last = max(each["spec"]["pool"]["generation"] for each in slices)
        parts = [each for each in slices if each["spec"]["pool"]["generation"] == last]
        is_complete = len(parts) == parts[0]["spec"]["pool"]["resourceSliceCount"]
        names = [one["name"] for each in parts for one in each["spec"]["devices"]]
        seen[f"{len(names)} devices" if is_complete else "incomplete"] += 1
        if is_complete and len(names) > len(set(names)):
            pytest.fail(f"a device is there twice: {sorted(names)}")
        assert (is_complete, len(names)) == (True, count)

    patience = driver.hosts.cluster.settings.patience
    try:
        until(lambda: look(70), seconds=patience, what="70 devices")
        hosts.rack.remove_card(added.pop(3))
        until(lambda: look(69), seconds=patience, what="69 devices")
        figure(f"seen one after the other: {dict(seen)}")
    finally:
        for each in added:
            hosts.rack.remove_card(each)
        until(lambda: look(EIGHT), seconds=patience, what="the cards of before")
