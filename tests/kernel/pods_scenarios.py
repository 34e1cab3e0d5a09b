"""Pods on the driver: functions that are programmed before their containers start."""

import os
from collections.abc import Callable
from functools import partial

import pytest

from simulator.cards import NLB0, NLB3
from simulator.driver import raw_bitstream
from simulator.registers.cards import PAC_A10, DflCard
from simulator.registers.features import Reconfiguration
from tests.kernel.bed import DRIVER, Bed
from tests.kernel.cluster import SECONDS, Cluster
from tests.kernel.health_scenarios import FAULTS
from tests.plugin.support import REGION, container
from tests.support import eventually

pytestmark = pytest.mark.usefixtures("card")

CARDS = (PAC_A10, PAC_A10)

PLUGIN = ("--mode", "region", "--scan-interval", "0.5")
DRA = ("--api", "dra", "--cdi-dir", "/run/cdi", "--scan-interval", "0.5")
ADDRESSES = ("0000:00:00.0", "0000:00:01.0")
PCI = "/sys/bus/pci"
PORTS = {"/dev/dfl-port.0", "/dev/dfl-port.1"}
REGIONS = ("dfl-fme.0", "dfl-fme.1")


@pytest.fixture(scope="module")
def cluster(bed: Bed) -> Cluster:
    return Cluster(bed)


def afu(bed: Bed, number: int) -> str:
    """The function that a port shows."""
    text: str = bed.call("shell", f"cat /sys/bus/platform/devices/dfl-port.{number}/afu_id").strip()
    return text


def programmed(bed: Bed) -> list[int]:
    """How often each card was programmed."""
    return [len(each.reconfiguration.programmed) for each in bed.cards]


def take_away_and_bring_back_the_second_card_first(bed: Bed, first: DflCard) -> None:
    for each in ADDRESSES:
        bed.call("write", f"{PCI}/devices/{each}/remove", "1")
    for is_gone in (True, False):
        first.function.is_gone = is_gone
        bed.call("write", f"{PCI}/rescan", "1")


def test_two_containers_get_two_functions_each_on_a_card_of_its_own(
    bed: Bed, cluster: Cluster
) -> None:
    with cluster.serving(*PLUGIN):
        cluster.allocatable(REGION, 2)
        cluster.wants("two", NLB0, NLB3)
        nodes = cluster.runs("two")
        ports = {key: int(next(iter(nodes[key]))[-1]) for key in nodes}
        assert sorted(ports.values()) == [0, 1]
        assert {key: afu(bed, ports[key]) for key in ports} == {"c0": NLB0, "c1": NLB3}
        before = programmed(bed)
        cluster.delete("two")
        cluster.wants("again", NLB3)  # least work: it is there
        assert cluster.runs("again")["c0"]
        assert sum(programmed(bed)) <= sum(before) + 1


def test_a_failed_programming_is_followed_by_a_good_one_without_a_person(
    bed: Bed, cluster: Cluster
) -> None:
    with cluster.serving(*PLUGIN):
        cluster.allocatable(REGION, 2)
        for each in bed.cards:
            each.reconfiguration.refusal = Reconfiguration.CRC
        cluster.wants("fails", NLB3)
        cluster.waits("fails", "reconfig CRC error")
        eventually(lambda: ["port-disabled"] in cluster.devices().values())
        for each in bed.cards:
            each.reconfiguration.refusal = 0
        cluster.runs("fails")
        assert NLB3 in (afu(bed, 0), afu(bed, 1))
        cluster.offers(*REGIONS)


def test_a_start_is_refused_while_a_process_has_the_port(bed: Bed, cluster: Cluster) -> None:
    held = [bed.call("hold", f"/dev/dfl-port.{number}") for number in range(len(CARDS))]
    with cluster.serving(*PLUGIN):
        cluster.allocatable(REGION, 2)
        cluster.wants("waits", NLB3)
        cluster.waits("waits", "is in use by")
        assert programmed(bed) == [0, 0]
        for each in held:
            bed.call("let_go", each)
        assert cluster.runs("waits")


@pytest.mark.parametrize(
    ("mode", "devices", "nodes"),
    [
        ("af", ["dfl-port.0", "dfl-port.1"], PORTS),
        ("regiondevel", REGIONS, {*PORTS, "/dev/dfl-fme.0", "/dev/dfl-fme.1"}),
        ("bdf", ["00:00.0", "00:01.0"], PORTS),
        ("units", ["0", "1"], set()),
    ],
)
def test_a_mode_gives_its_devices_and_the_next_one_others(
    bed: Bed, cluster: Cluster, mode: str, devices: list[str], nodes: set[str]
) -> None:
    with cluster.serving("--mode", mode, "--units", "2", "--enforce-mappings", "never"):
        cluster.offers(*devices)
        (resource,) = set(cluster.resources().values())
        cluster.allocatable(resource, 2)
        cluster.create(mode, container("c", resource, 2))
        assert cluster.runs(mode)["c"] == nodes
        cluster.delete(mode)
    cluster.annotate("region")
    with cluster.serving("--mode", mode, "--enforce-mappings", "never"):
        cluster.offers(*REGIONS)
        cluster.wants("region", NLB3)
        (port,) = cluster.runs("region")["c0"]
        assert afu(bed, int(port[-1])) == NLB3
    cluster.annotate(None)


def test_a_plugin_killed_while_the_kernel_programs_is_followed_by_the_right_function(
    bed: Bed, cluster: Cluster
) -> None:
    for each in bed.cards:
        each.reconfiguration.seconds = 4
    with cluster.serving(*PLUGIN):
        cluster.allocatable(REGION, 2)
        cluster.wants("p", NLB3)
        eventually(lambda: any(each.reconfiguration.is_working for each in bed.cards))
        assert bed.call("end", cluster.process, 9) == -9
        for each in bed.cards:
            each.reconfiguration.seconds = 0
        cluster.start(*PLUGIN)
        (port,) = cluster.runs("p")["c0"]
        assert afu(bed, int(port[-1])) == NLB3
        assert sum(programmed(bed)) == 2  # what was begun and not recorded is done again


def test_a_driver_killed_while_the_kernel_programs_prepares_the_claim_once_more(
    bed: Bed, cluster: Cluster
) -> None:
    for each in bed.cards:
        each.reconfiguration.seconds = 4
    with cluster.serving(*DRA):
        eventually(lambda: len(cluster.published()) == 2, SECONDS)
        cluster.claim("p", "nlb3")
        eventually(lambda: any(each.reconfiguration.is_working for each in bed.cards))
        assert bed.call("end", cluster.process, 9) == -9
        for each in bed.cards:
            each.reconfiguration.seconds = 0
        cluster.start(*DRA)
        assert afu(bed, int(cluster.prepared("p")[-1])) == NLB3
        assert sum(programmed(bed)) == 2


def test_a_claim_whose_programming_failed_is_prepared_without_a_person(
    bed: Bed, cluster: Cluster
) -> None:
    with cluster.serving(*DRA):
        eventually(lambda: len(cluster.published()) == 2, SECONDS)
        for each in bed.cards:
            each.reconfiguration.refusal = Reconfiguration.CRC
        cluster.claim("refused", "nlb3")
        eventually(lambda: "reconfig CRC error" in cluster.log("driver"), SECONDS)
        for each in bed.cards:
            each.reconfiguration.refusal = 0
        assert afu(bed, int(cluster.prepared("refused")[-1])) == NLB3
        eventually(lambda: len(cluster.published()) == 2, SECONDS)


def test_a_region_with_another_name_since_its_driver_was_rebound_serves_the_next_pod(
    bed: Bed, cluster: Cluster
) -> None:
    bed.call("write", f"{PCI}/devices/{ADDRESSES[0]}/remove", "1")
    with cluster.serving(*PLUGIN):
        cluster.offers("dfl-fme.1")
        cluster.allocatable(REGION, 1)
        bed.cards[1].reconfiguration.refusal = Reconfiguration.CRC
        cluster.wants("renamed", NLB3)
        cluster.waits("renamed", "reconfig CRC error")
        bed.cards[1].reconfiguration.refusal = 0
        cluster.offers("dfl-fme.0", **{"dfl-fme.1": "gone"})
        cluster.waits("renamed", "delete the pod")
        assert "hangs in its driver" not in cluster.log()
        cluster.delete("renamed")
        cluster.wants("after", NLB3)
        assert cluster.runs("after") == {"c0": {"/dev/dfl-port.0"}}
        assert afu(bed, 0) == NLB3
    bed.call("write", f"{PCI}/rescan", "1")


def test_cards_that_come_back_in_the_other_order_keep_their_functions(
    bed: Bed, cluster: Cluster, card: DflCard
) -> None:
    file = "/run/nlb3.gbs"
    assert bed.accelbind("fpga", "program", "dfl-port.0", file, "--force").code == 0
    with cluster.serving("--mode", "af"):
        cluster.offers("dfl-port.0", "dfl-port.1")
        before = cluster.resources()
        assert len(set(before.values())) == 2
        take_away_and_bring_back_the_second_card_first(bed, card)
        assert afu(bed, 1) == NLB3
        after = {"dfl-port.1": before["dfl-port.0"], "dfl-port.0": before["dfl-port.1"]}
        eventually(lambda: cluster.resources() == after, SECONDS)
        cluster.offers("dfl-port.0", "dfl-port.1")
        cluster.allocatable(before["dfl-port.0"], 1)
        cluster.create("p", container("c", before["dfl-port.0"]))
        assert cluster.runs("p")["c"] == {"/dev/dfl-port.1"}


def test_a_driver_unbound_under_a_running_container_takes_only_its_device(
    bed: Bed, cluster: Cluster
) -> None:
    with cluster.serving(*PLUGIN):
        cluster.allocatable(REGION, 2)
        cluster.wants("p", NLB3)
        (port,) = cluster.runs("p")["c0"]
        region, address = cluster.device(port)
        bed.call("write", f"{DRIVER}/unbind", address)
        cluster.allocatable(REGION, 1)
        healthy = [key for key, reasons in cluster.devices().items() if not reasons]
        assert [region, *healthy] in ([*REGIONS], [*REGIONS[::-1]])
        assert cluster.runs("p")["c0"] == {port}
        cluster.delete("p")
        cluster.wants("other", NLB3)
        assert cluster.runs("other")["c0"] == PORTS - {port}
        bed.call("write", f"{DRIVER}/bind", address)
        cluster.wants("again", NLB0)
        assert cluster.runs("again")["c0"] == {port}
        number = int(port[-1])
        assert [afu(bed, each) for each in (number, 1 - number)] == [NLB0, NLB3]


def test_a_card_is_withdrawn_before_its_driver_is_rebound(bed: Bed, cluster: Cluster) -> None:
    bed.call("shell", "mkdir -p /run/host && mount --rbind / /run/host")
    in_a_pod = ("--root", "/run/host")
    with cluster.serving("--mode", "af", "--scan-interval", "600", *in_a_pod):
        cluster.offers("dfl-port.0", "dfl-port.1")
        (resource,) = set(cluster.resources().values())
        cluster.allocatable(resource, 2)
        bed.call("shell", f"kill -STOP {cluster.process}")
        done = cluster.command("fpga", "rebind", "region0")
        assert (done.code, "is unknown: one serves in" in done.stderr) == (3, True)
        bed.call("shell", f"kill -CONT {cluster.process}")
        elsewhere = ("--state-dir", "/run/other", "--timeout", "4s")
        done = cluster.command("fpga", "rebind", "region0", *elsewhere)
        assert (done.code, "still offers dfl-port.0" in done.stderr) == (3, True)
        done = cluster.command("fpga", "rebind", "region0")
        assert (done.code, done.stderr) == (0, "")
        assert f"this node offers less meanwhile: {resource} (dfl-port." in done.stdout
        cluster.offers("dfl-port.0", "dfl-port.1")
        assert "is about to be rebound" in cluster.log()
        cluster.create("p", container("c", resource, 2))
        cluster.runs("p")
        refused = cluster.command("fpga", "rebind", "region0")
        assert (refused.code, "is held by" in refused.stderr) == (3, True)
        cluster.offers("dfl-port.0", "dfl-port.1")
    bed.call("shell", "umount -l /run/host")


@pytest.mark.parametrize("flags", [("--mode", "af"), ("--api", "dra", "--cdi-dir", "/run/cdi")])
def test_cards_that_are_all_removed_at_once_are_gone_within_two_seconds(
    bed: Bed, cluster: Cluster, flags: tuple[str, ...]
) -> None:
    with cluster.serving(*flags, "--scan-interval", "600"):
        eventually(lambda: cluster.devices() and not any(cluster.devices().values()), SECONDS)
        orders = [(f"{PCI}/devices/{each}/remove", "1") for each in ADDRESSES]
        seconds = bed.call("seconds_until_gone", *orders)
        assert seconds < 2 * max(1, os.getloadavg()[0])
        bed.call("write", f"{PCI}/rescan", "1")
        eventually(lambda: not any(cluster.devices().values()), SECONDS)


def test_a_port_that_was_released_and_assigned_is_enabled_without_a_person(
    bed: Bed, cluster: Cluster
) -> None:
    engine = ("dfl-fme.0", "--port", "0", "--state-dir", "/run/state")
    with cluster.serving(*PLUGIN):
        cluster.offers(*REGIONS)
        assert bed.accelbind("fpga", "release", *engine).code == 0
        cluster.offers("dfl-fme.1", **{"dfl-fme.0": "no-port"})
        assert bed.accelbind("fpga", "assign", *engine).code == 0
        cluster.offers(*REGIONS)


@pytest.mark.parametrize("flags", [("--mode", "af", "--scan-interval", "0.5"), DRA])
def test_each_fault_shows_with_the_next_scan_and_ends(
    bed: Bed, cluster: Cluster, card: DflCard, flags: tuple[str, ...]
) -> None:
    def shows(*wanted: set[str]) -> Callable[[], bool]:
        return lambda: sorted(map(set, cluster.devices().values()), key=len) == [*wanted]

    slow = (lambda card: setattr(card.function, "delay", 0.6)), {"card-hung"}
    with cluster.serving(*flags, "--no-clear-errors"):
        eventually(shows(set(), set()), SECONDS)
        for name, (break_it, reasons) in (FAULTS | {"slow": slow}).items():
            break_it(card)
            eventually(shows(set(), reasons), SECONDS, what=name)
            if flags is DRA and reasons:
                eventually(lambda: len(cluster.published()) == 1, SECONDS, what=name)
            card.power_up()
            bed.call("ioctl", "/dev/dfl-port.0", 0xB640, ())
            eventually(shows(set(), set()), SECONDS, what=f"the end of {name}")


def test_errors_that_the_driver_does_not_clear_in_ap6_are_cleared_after_it(
    cluster: Cluster, card: DflCard
) -> None:
    with cluster.serving("--mode", "af", "--scan-interval", "0.5"):
        cluster.offers("dfl-port.0", "dfl-port.1")
        card.ports[0].throttle(6)
        card.ports[0].errors.report("errors", 0x40)
        eventually(lambda: "can't be cleared in AFU power state 6" in cluster.log(), SECONDS)
        card.ports[0].throttle(0)
        cluster.offers("dfl-port.0", "dfl-port.1")


def test_a_function_is_offered_once_it_is_whole_and_no_container_has_the_one_before(
    cluster: Cluster, card: DflCard
) -> None:
    def program(name: str, *flags: str) -> int:
        return cluster.command("fpga", "program", "dfl-port.0", f"/run/{name}.gbs", *flags).code

    with cluster.serving("--mode", "af", "--scan-interval", "0.5"):
        cluster.offers("dfl-port.0", "dfl-port.1")
        card.reconfiguration.refusal = Reconfiguration.CRC
        assert program("nlb3") == 1
        card.reconfiguration.refusal = 0
        assert cluster.command("fpga", "rebind", "dfl-port.0").code == 0
        cluster.offers("dfl-port.1", **{"dfl-port.0": "programming-unfinished"})
        assert program("nlb3") == 0
        cluster.offers("dfl-port.0", "dfl-port.1")
        resource = cluster.resources()["dfl-port.0"]
        cluster.allocatable(resource, 1)
        cluster.create("p", container("c", resource))
        cluster.runs("p")
        assert program("nlb0", "--force") == 0
        cluster.offers("dfl-port.1", **{"dfl-port.0": "held-as-other-resource"})


@pytest.mark.parametrize(
    ("mode", "device", "other"), [("af", "dfl-port.0", "dfl-port.1"), ("region", *REGIONS)]
)
def test_only_in_mode_region_a_disabled_port_is_enabled_without_a_person(
    bed: Bed, cluster: Cluster, mode: str, device: str, other: str
) -> None:
    with cluster.serving("--mode", mode, "--scan-interval", "0.5"):
        cluster.offers(device, other)
        held = bed.call("hold", "/dev/dfl-port.0")
        assert bed.call("program", "/dev/dfl-fme.0", 0, b"no bitstream at all.") == -5
        cluster.offers(other, **{device: "port-disabled"})
        bed.call("let_go", held)
        if mode == "region":
            cluster.offers(device, other)
            assert bed.call("program", "/dev/dfl-fme.0", 0, raw_bitstream("1" * 32)) == 0
            assert afu(bed, 0) == "1" * 32
        else:
            assert cluster.devices()[device] == ["port-disabled"]


@pytest.mark.parametrize("flags", [PLUGIN, DRA], ids=["plugin", "dra"])
def test_a_start_without_programming_says_how_to_enable_a_port(
    bed: Bed, cluster: Cluster, flags: tuple[str, ...]
) -> None:
    def says(words: str) -> None:
        said = partial(cluster.log, "driver") if flags is DRA else partial(cluster.why, "p")
        eventually(lambda: words in said(), SECONDS, what=words)

    with cluster.serving(*flags, "--programming", "none"):
        if flags is DRA:
            eventually(lambda: len(cluster.published()) == 2, SECONDS)
            cluster.claim("p", "nlb3")
        else:
            cluster.allocatable(REGION, 2)
            cluster.wants("p", NLB3)
        says("carries an unknown function")
        for number in (0, 1):
            assert bed.call("program", f"/dev/dfl-fme.{number}", 0, b"no bitstream at all.") == -5
        says(", then program it")


def test_a_claim_is_prepared_by_programming(bed: Bed, cluster: Cluster, card: DflCard) -> None:
    with cluster.serving(*DRA):
        eventually(lambda: len(cluster.published()) == 2, SECONDS)
        cluster.claim("p", "nlb3")
        cluster.claim("q", "nlb0")
        ports = [cluster.prepared(each) for each in "pq"]
        assert [afu(bed, int(each[-1])) for each in ports] == [NLB3, NLB0]
        assert sum(programmed(bed)) == 2
        take_away_and_bring_back_the_second_card_first(bed, card)
        # Each has the other's port, and may run.
        eventually(lambda: not cluster.published(), SECONDS)
        cluster.release("q")
        eventually(lambda: len(cluster.published()) == 1, SECONDS)
        eventually(lambda: cluster.prepared("p") == ports[1], SECONDS)
        cluster.release("p")
        eventually(lambda: len(cluster.published()) == 2, SECONDS)
        cluster.claim("r", "nlb0")
        assert afu(bed, int(cluster.prepared("r")[-1])) == NLB0
