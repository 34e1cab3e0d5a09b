"""Cards that are broken: wrong lists of features, late answers, clocks, a card that is torn out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simulator.bitstreams import gbs_metadata, gbs_of, make_gbs
from simulator.cards import A10_INTERFACE, NLB3
from simulator.driver import raw_bitstream
from simulator.registers.cards import PAC_A10, Bar, DflCard
from tests.kernel.bed import DRIVER, Bed, Done
from tests.support import REPOSITORY

CARDS = (PAC_A10, PAC_A10)

STATE = ("--state-dir", "/run/state")
ONES = 2**64 - 1
PCI = "/sys/bus/pci"
FIRST = "0000:00:00.0"

Reasons = dict[str, set[str]]
WHOLE: Reasons = {"dfl-fme.0": set(), "dfl-port.0": set()}
NO_ID: Reasons = {"dfl-fme.0": {"interface-id-missing"}, "dfl-port.0": {"interface-id-missing"}}
LISTS: dict[str, tuple[Callable[[DflCard], object], Reasons]] = {
    "that ends after the engine": (lambda card: card.engine.link(0, is_last=True), NO_ID),
    "that ends after the port": (lambda card: card.ports[0].link(0, is_last=True), WHOLE),
    "that goes on behind the BAR": (lambda card: card.engine.link(0x300000, is_last=False), {}),
    "whose engine is ones": (lambda card: card.engine.registers.update({0: ONES}), {}),
    "whose port is ones": (
        lambda card: card.ports[0].registers.update({0: ONES}),
        {"dfl-fme.0": set()},
    ),
    "with a feature that is ones": (lambda card: card.errors.registers.update({0: ONES}), NO_ID),
    "without the port": (
        lambda card: card.engine.registers.update({0x38: 0}),
        {"dfl-fme.0": {"interface-id-missing"}},
    ),
    "with the port in no BAR": (lambda card: card.engine.place_port(0, 5, 0), {}),
    "with more ports than there are": (lambda card: card.engine.put_field(0x30, 17, 19, 4), WHOLE),
    "without a function": (
        lambda card: card.ports[0].registers.pop(0x18),
        {"dfl-fme.0": set(), "dfl-port.0": {"afu-id-missing"}},
    ),
}
"""What breaks a list, and the devices that its card has then; without any, no driver takes it."""


def found(bed: Bed, slot: int) -> Reasons:
    """The devices of a card, with their reasons."""
    return {
        each["device"]: {why["reason"] for why in each["problems"]}
        for each in bed.listed()
        if each["pciAddress"] == f"0000:00:{slot:02x}.0"
    }


def program(bed: Bed, afu_id: str, **clocks: float) -> Done:
    """Program a function that asks for clocks."""
    metadata: dict[str, Any] = gbs_metadata(A10_INTERFACE, afu_id)
    metadata["afu-image"].update({f"clock-frequency-{key}": mhz for key, mhz in clocks.items()})
    bed.call("create", "/run/file.gbs", gbs_of(metadata, raw_bitstream(afu_id)))
    return bed.accelbind("fpga", "program", "dfl-port.0", "/run/file.gbs", "--force", *STATE)


def test_the_host_is_out_of_reach(bed: Bed) -> None:
    mounts = dict(line.split()[1:3] for line in bed.call("read", "/proc/mounts").splitlines())
    for folder in ("/var/lib/kubelet", "/var/lib/accelbind", "/var/log/pods", "/srv", "/run"):
        assert mounts.get(folder) == ("tmpfs" if Path(folder).exists() else None)
    assert [mounts[each] for each in ("/sys", "/dev")] == ["sysfs", "devtmpfs"]
    for folder in ("", "/etc", "/tmp", "/var/lib", str(REPOSITORY)):
        assert "Read-only" in bed.call("shell", f"touch {folder}/of-the-bed")


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_features_shows_what_is_right_in_it(bed: Bed, card: DflCard, name: str) -> None:
    break_it, expected = LISTS[name]
    break_it(card)
    bed.call("write", f"{DRIVER}/unbind", FIRST)
    assert (bed.call("write", f"{DRIVER}/bind", FIRST) == 0) is bool(expected)
    assert found(bed, 0) == expected
    assert {frozenset(each) for each in found(bed, 1).values()} == {frozenset()}


def test_a_port_without_an_engine_is_not_offered(bed: Bed, card: DflCard) -> None:
    port, bar = card.ports[0], Bar()
    assert port.afu is not None
    bar.add_list(0, [port, port.errors])
    bar.add(0x40000, port.afu)
    card.function.put_behind({0: bar})
    bed.call("write", f"{DRIVER}/unbind", FIRST)
    bed.call("write", f"{DRIVER}/bind", FIRST)
    done = bed.accelbind("devices", "--files", "--mode", "bdf", "-o", "json")
    devices = {each["device"]: each for each in json.loads(done.stdout)["devices"]}
    assert [each["reason"] for each in devices["00:00.0"]["reasons"]] == ["no-fme"]
    assert devices["00:01.0"]["reasons"] == []


def test_a_card_that_its_driver_has_refused_is_bound_by_its_address(
    bed: Bed, card: DflCard
) -> None:
    card.engine.link(0x300000, is_last=False)
    again = f"accelbind fpga rebind {FIRST}"
    for device, said in (("region0", again), (FIRST, "can't be bound to its driver (Invalid")):
        done = bed.accelbind("fpga", "rebind", device, "--force")
        assert (done.code, said in done.stderr) == (1, True)
    assert again in bed.accelbind("fpga", "list").stderr
    assert again in bed.accelbind("doctor", "--node", "--only", "node.devices").stdout
    card.power_up()
    done = bed.accelbind("fpga", "rebind", FIRST)
    said = f"the driver of {FIRST} is rebound: its ports are dfl-port.0\n"
    assert done == (0, said, "")
    assert (found(bed, 0), bed.accelbind("fpga", "list").stderr) == (WHOLE, "")


def test_a_card_that_answers_late_is_served_all_the_same(bed: Bed, card: DflCard) -> None:
    card.function.delay = 0.005
    assert bed.reasons("dfl-port.0") == set()
    assert program(bed, NLB3).code == 0
    assert card.reconfiguration.programmed == [(0, raw_bitstream(NLB3))]


@pytest.mark.parametrize(
    ("mhz", "code", "said"),
    [
        (156.25, 0, ""),
        (100.0, 0, "is 200/100 MHz, and the function in the bitstream asks for 312.5/156.25 MHz"),
        (0.0, 0, "is 0/0 MHz"),
        (300.0, 1, "is 600/300 MHz, and the function in the bitstream asks for 312.5/156.25 MHz"),
    ],
)
def test_a_clock_is_compared_with_the_one_that_a_function_asks_for(
    bed: Bed, card: DflCard, mhz: float, code: int, said: str
) -> None:
    card.ports[0].clock = mhz
    done = program(bed, NLB3, low=156.25)
    assert done.code == code
    assert said in done.stderr
    assert bool(said) is bool(done.stderr)


def test_a_programming_of_20_s_is_waited_for(bed: Bed, card: DflCard) -> None:
    bed.call("create", "/run/slow.gbs", make_gbs(A10_INTERFACE, NLB3, raw_bitstream(NLB3)))
    card.reconfiguration.pause = 20
    assert bed.call("ensure", "dfl-port.0", "/run/slow.gbs") == "programmed"


def test_a_card_torn_out_is_worked_on_in_vain(bed: Bed, card: DflCard) -> None:
    card.function.is_gone = True
    assert "can't be programmed" in (said := program(bed, NLB3).stderr)
    assert "Invalid argument" in said
    for command in (("reset", "dfl-port.0", *STATE), ("clear-errors", "dfl-port.0")):
        assert "Connection timed out" in bed.accelbind("fpga", *command).stderr
    bed.call("write", f"{PCI}/devices/{FIRST}/remove", "1")
    assert found(bed, 0) == {}
    card.power_up()
    bed.call("write", f"{PCI}/rescan", "1")
    assert found(bed, 0) == WHOLE
