"""Devices of device types that come, go and change places while a node is served."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pytest

from services.devices.held import HELD
from simulator.registers.cards import PAC_A10
from tests.kernel.bed import Bed
from tests.kernel.cluster import SECONDS, Cluster
from tests.kernel.peripherals import (
    CHIPS,
    FUNCTION,
    GADGETS,
    SLOT,
    TTY,
    TYPES,
    USB,
    Json,
    adapter,
    bind,
    plug,
    unplug,
    write_type,
)
from tests.plugin.support import container
from tests.support import eventually

CARDS = (PAC_A10,)

FLAGS: Final = ("--mode", "none", "--device-types", TYPES, "--scan-interval", "600")
"""So long that what is seen within seconds is seen by uevents."""
ADAPTER: Final = "device.accelbind.dev/adapter"
AT_ONCE: Final = 10.0
"""Seconds, on a machine that does more. It takes 0.05 to 0.25 on one that does not."""


class Case(NamedTuple):
    """A type, a device that is made, and the file to write for its end."""

    match: Json
    nodes: Sequence[Json]
    make: str
    device: str
    end: tuple[str, str]


CASES: Final = {
    "a USB device": Case(USB, (), adapter("a", 0), "1-1", (f"{GADGETS}/a/UDC", "\n")),
    "a terminal": Case(USB, (TTY,), adapter("a", 0), "1-1", (f"{GADGETS}/a/UDC", "\n")),
    "a terminal by path": Case(
        {"path": ["/dev/ttyACM*"]}, (), adapter("a", 0), "1-1", (f"{GADGETS}/a/UDC", "\n")
    ),
    "a GPIO chip": Case(
        {"path": ["/dev/gpiochip*"]},
        (),
        f"mkdir -p {CHIPS}/c/bank; echo 1 >{CHIPS}/c/live",
        "gpio-sim-0",
        (f"{CHIPS}/c/live", "0"),
    ),
    "a PCI function": Case(
        {"pci": {"vendor": ["8086"], "driver": ["uio_pci_generic"]}},
        ({"class": "accel", "optional": True},),
        bind("uio_pci_generic"),
        "0000-00-00-0",
        (f"{FUNCTION}/driver/unbind", SLOT),
    ),
}


@pytest.fixture(scope="module")
def cluster(bed: Bed) -> Cluster:
    """Stand-ins for kubelet and API server."""
    return Cluster(bed)


@pytest.fixture
def clean(bed: Bed) -> Iterator[None]:
    """Without types and adapters, before and after."""
    yield
    bed.call("shell", f"rm -r {TYPES}; {unplug('a', 'b')}; {bind('')}")


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_devices_are_offered_and_gone_at_once(bed: Bed, cluster: Cluster, case: Case) -> None:
    write_type(bed, [case.match], *case.nodes)
    with cluster.serving(*FLAGS):
        cluster.offers()
        assert bed.call("shell", case.make) == ""
        cluster.offers(case.device)
        cluster.allocatable("device.accelbind.dev/t", 1)
        assert bed.call("seconds_until_gone", case.end) < AT_ONCE
        cluster.allocatable("device.accelbind.dev/t", 0)


@pytest.mark.usefixtures("clean")
def test_no_container_starts_with_the_node_of_another_adapter(bed: Bed, cluster: Cluster) -> None:
    write_type(bed, [USB], TTY, name="adapter")
    bed.call("shell", f"{adapter('a', 0)}\n{adapter('b', 1)}")
    with cluster.serving(*FLAGS):
        cluster.offers("1-1", "2-1")
        cluster.create("p", container("c", ADAPTER, 1))
        cluster.create("q", container("c", ADAPTER, 1))
        given = {name: cluster.runs(name)["c"] for name in "pq"}
        assert sorted(given.values(), key=str) == [{"/dev/ttyACM0"}, {"/dev/ttyACM1"}]
        bed.call("shell", unplug("a", "b"))
        cluster.offers(**{"1-1": "gone", "2-1": "gone"})
        bed.call("shell", plug("b", 1))
        cluster.offers(**{"2-1": HELD, "1-1": "gone"})
        bed.call("shell", plug("a", 0))
        cluster.offers(**{"2-1": HELD, "1-1": HELD})
        bed.call("shell", f"kill -USR1 {cluster.kubelet}")
        for name in "pq":
            cluster.waits(name, "the device has another node now")
            cluster.delete(name)
        cluster.allocatable(ADAPTER, 2)
        cluster.create("r", container("c", ADAPTER, 2))
        assert cluster.runs("r")["c"] == {"/dev/ttyACM0", "/dev/ttyACM1"}


@pytest.mark.usefixtures("clean")
def test_an_adapter_in_another_port_is_another_device(bed: Bed, cluster: Cluster) -> None:
    write_type(bed, [USB], TTY, name="adapter")
    bed.call("shell", adapter("a", 0, serial="A-1"))
    with cluster.serving(*FLAGS):
        cluster.offers("1-1")
        cluster.create("p", container("c", ADAPTER, 1))
        assert cluster.runs("p")["c"] == {"/dev/ttyACM0"}
        bed.call("shell", f"{unplug('a')}\n{plug('a', 1)}")
        cluster.offers(**{"2-1": HELD, "1-1": "gone"})
        bed.call("shell", f"kill -USR1 {cluster.kubelet}")
        cluster.waits("p", "now it has none")


@pytest.mark.usefixtures("clean")
def test_slices_follow_what_is_plugged(bed: Bed, cluster: Cluster) -> None:
    write_type(bed, [USB], TTY, name="adapter")
    with cluster.serving("--api", "dra", "--device-types", TYPES, "--scan-interval", "600"):
        for commands, expected in (
            (adapter("a", 0), {"adapter-1-1"}),
            (f"{unplug('a')}\n{plug('a', 1)}", {"adapter-2-1"}),
            (adapter("b", 0), {"adapter-1-1", "adapter-2-1"}),
            (unplug("a", "b"), set[str]()),
        ):
            assert bed.call("shell", commands) == ""
            _published(cluster, expected)


def _published(cluster: Cluster, expected: set[str]) -> None:
    def found() -> bool:
        names = {each for each in cluster.published() if each.startswith("adapter-")}
        assert names == expected
        return True

    eventually(found, SECONDS)
