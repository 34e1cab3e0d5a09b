"""The rules of the ledger, one after the other."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.containers.holders import Given, Holder
from services.devices.held import HELD
from services.devices.model import Card, Device, DeviceNode, Inventory, PluginMode
from services.node.ledger import (
    HUNG_IN_DRIVER,
    RECOVERING,
    RELEASED,
    UNFINISHED,
    Ledger,
    Rules,
    Share,
    World,
    step,
)
from services.process.problem import Problem
from tests.services.cards import AF_NLB0, BAD, NLB0, NLB3, card, port, virtual, world

FPGA = "0000:5e:00.0"


def device(key: str, type_: str, *claims: str, resource: str = "d.example/r") -> Device:
    return Device(key, resource, type=type_, card="x", claims=frozenset(claims))


CARD = device("dfl-port.0", "", FPGA, resource="fpga.intel.com/af-x")
VE = device("0000-b1-00-0", "ve", "0000:b1:00.0", "237:0")
TYPE_CANT = "so type ve can't offer it"
NEITHER = "so none of them is offered"
NO_NODE = Device("x", "", reasons=(Problem("no-node", "x has no node"),), type="ve")


@pytest.mark.parametrize(
    ("found", "offered", "reasons"),
    [
        ([VE], ["0000-b1-00-0"], []),
        ([NO_NODE], [], ["x has no node"]),
        # replicas of one device
        ([device("a-0", "ve", "1:1"), device("a-1", "ve", "1:1")], ["a-0", "a-1"], []),
        (
            [device("a", "ve", FPGA)],
            [],
            [f"{FPGA} belongs to the FPGA device dfl-port.0 ({CARD.resource}), {TYPE_CANT}"],
        ),
        # two files match one device, which is shown once
        (
            [VE, device("0000-b1-00-0", "accel", "0000:b1:00.0")],
            [],
            [f"0000:b1:00.0 is part of x of type accel and x of type ve, {NEITHER}"],
        ),
        # a partner that is also served alone
        (
            [device("card", "alveo", "0000:21:00.0", "189:4"), device("1-2", "jtag", "189:4")],
            [],
            [f"189:4 is part of x of type alveo and x of type jtag, {NEITHER}"] * 2,
        ),
        # one type finds one node under two names
        (
            [device("a", "t", "1:1"), replace(device("b", "t", "1:1"), card="y")],
            [],
            [f"1:1 is part of x of type t and y of type t, {NEITHER}"] * 2,
        ),
        # an id that two devices have
        (
            [device("a", "ve", "1:1"), device("a", "accel", "1:2"), device("dfl-port.0", "t")],
            ["a"],
            [
                "a of type accel has the name of another device",
                "dfl-port.0 of type t has the name of another device",
            ],
        ),
        ([replace(CARD, card="y")], [], ["dfl-port.0 of y has the name of another device"]),
        # a name that two devices have in DRA
        (
            [device("b-c", "a", "1:1"), device("c", "a-b", "1:2")],
            ["b-c"],
            ["c of type a-b has the name of another device"],
        ),
    ],
)
def test_a_device_is_offered_once_or_the_reason_says_who_else_has_it(
    found: list[Device], offered: list[str], reasons: list[str]
) -> None:
    made = step(Ledger(fpgas=Share((CARD,))), world(types=found), 0).offer
    assert [each.id for each in made.devices()] == ["dfl-port.0", *offered]
    assert [each.reasons[0].text for each in made.not_offered] == reasons
    assert not any(each.resource for each in made.not_offered)


ALONE = [device("ve-0", "ve", "237:0")]
SHARED = [device(f"ve-0-r{number}", "ve", "237:0") for number in range(3)]


@pytest.mark.parametrize(
    ("found", "has", "unhealthy"),
    [
        (ALONE, ["ve-0"], 0),
        (SHARED, ["ve-0-r0", "ve-0-r2"], 0),
        # fewer replicas, or one device
        (SHARED[:2], ["ve-0-r0", "ve-0-r2"], 2),
        (ALONE, ["ve-0-r1"], 1),
        # more of them
        (SHARED, ["ve-0"], 3),
        (SHARED, ["ve-1", "ve-1-r0"], 0),
    ],
)
def test_a_share_of_another_number_of_replicas_is_given_to_nobody_else(
    found: list[Device], has: list[str], unhealthy: int
) -> None:
    made = step(Ledger(), world(types=found, allocated=[("d.example/r", each) for each in has]), 0)
    reasons = [each.reasons[0].code for each in made.offer.devices() if not each.healthy]
    assert reasons == [HELD] * unhealthy


UNIT, HOST = "b-com.com/accelerator", "/host"


def at(key: str, *nodes: str, more: DeviceNode | None = None, resource: str = UNIT) -> Device:
    given = (*map(DeviceNode, nodes), *([more] if more else ()))
    return Device(key, resource, nodes=given, place=key)


def has(keys: str, *nodes: str, resource: str = UNIT) -> Given:
    """A container that was given these nodes for its devices."""
    return Given("c", resource, tuple(keys.split()), tuple(f"{HOST}/dev/{each}" for each in nodes))


VFIO = DeviceNode("vfio/vfio", number=(10, 196))
GROUPS = at("a", "vfio/2", more=VFIO), at("b", "vfio/1", more=VFIO)
LINK = DeviceNode("zigbee", target="ttyUSB0")
NOW = at("a", "n1"), at("b", "n0")
SHARES = [
    replace(at(f"b-r{number}", "n0"), type="t", claims=frozenset({"1:1"})) for number in range(2)
]


@pytest.mark.parametrize(
    ("devices", "given", "held"),
    [
        (NOW, [has("a", "n1")], ""),
        (NOW, [has("a", "n0")], "b"),
        (NOW, [has("a", "n0"), has("b", "n1")], "a b"),
        # its device has vanished, or was last read when it had that node
        (NOW[1:], [has("a", "n0")], "b"),
        ((at("a", "n0"), at("b", "n0")), [has("a", "n0")], "b"),
        # of one container with several devices
        (NOW, [has("a b", "n0", "n1")], ""),
        ((*NOW, at("d", "n2")), [has("a b", "n1", "n2")], "d"),
        # a region has several nodes, and may have lost one
        ((at("a", "n0", "e0"), at("b", "n1", "e1")), [has("a", "n0", "n1", "e0")], "b"),
        ((at("a", "n0"), at("b", "n1", "n2")), [has("a", "n0", "n1"), has("b", "n2")], "b"),
        # a container has it with this node
        (NOW, [has("a", "n0"), has("b", "n0")], ""),
        # replicas
        ((at("a-r0", "n1"), *SHARES), [has("a-r0", "n0")], "b-r0 b-r1"),
        (SHARES, [has("b-r0", "n0")], ""),
        ((at("a", "n1"), *SHARES), [has("a", "n0"), has("b-r1", "n0")], "b-r0"),
        ((at("a", "n1"), *SHARES), [has("a", "n0"), has("a b-r1", "n0", "n1")], "b-r0"),
        (SHARES[:1], [has("b-r1", "n0")], "b-r0"),
        # under another resource, which is one reason
        ((at("a", "n0", resource="d.example/r"),), [has("a", "n0")], "a"),
        # a claim, whose devices go by their names
        (NOW, [has("fpga-a", "n0", resource="")], "b"),
        (NOW, [has("a fpga-b", "n0", resource="")], ""),
        ((NOW[0], *SHARES), [has("fpga-a t-b-r0", "n0", "n1", resource="")], ""),
        # a region's engine, which only a container that programs it has
        (NOW, [has("d", "a")], "a"),
        # another device has the same id, and is not offered
        ((at("a", "n0"), at("a", "n0", resource="d.example/r")), [has("a", "n0")], ""),
        # VFIO's own node
        (GROUPS, [has("a", "vfio/3", "vfio/vfio")], ""),
        (GROUPS, [has("a", "vfio/1", "vfio/vfio")], "b"),
        (GROUPS[1:], [has("a", "vfio/3", "vfio/vfio")], ""),
        # links, which earlier versions answered with
        ((at("a", more=LINK),), [has("a", "zigbee")], ""),
        ((at("a", "ttyUSB1"), at("b", more=LINK)), [has("a", "ttyUSB0")], "b"),
        ((at("a"), at("b", more=LINK)), [has("a", "zigbee")], "b"),
    ],
)
def test_a_device_whose_node_a_container_has_from_another_is_given_to_nobody(
    devices: Sequence[Device], given: list[Given], held: str
) -> None:
    holders = {(UNIT, key): (Holder("ns", "p", "c"),) for each in given for key in each.devices}
    start = Ledger(Rules(host_root=HOST, good_scans=1), fpgas=Share(tuple(devices)))
    found = replace(world(), holders=holders, given=frozenset(given))
    made = step(start, found, 0)
    reasons = [(each.id, one.code) for each in made.offer.devices() for one in each.reasons]
    assert reasons == [(each, HELD) for each in held.split()]
    assert step(made, found, 1).offer is made.offer
    assert all(each.healthy for each in step(made, world(), 2).offer.devices())


def test_devices_of_claims_may_be_other_resources() -> None:
    holders = {(f"{AF_NLB0}-x", "dfl-port.0"): (Holder("ns", "", "", claim="c"),)}
    found = replace(world(Inventory((card(0),))), holders=holders)
    assert [each.healthy for each in step(Ledger(), found, 0).offer.devices()] == [True]


# Cards that are worked on


def with_afu(afu_id: str) -> Card:
    return card(0, port("dfl-port.0", afu_id))


WORKED_ON = frozenset({card(0).work_key})


def cards_of(ledger: Ledger) -> tuple[Card, ...]:
    assert ledger.inventory is not None
    return ledger.inventory.cards


def reading(*cards: Card, busy: frozenset[str] = frozenset()) -> World:
    return replace(world(Inventory(cards)), busy=busy)


def test_a_card_that_is_worked_on_stays_as_it_was_read_last() -> None:
    first = step(Ledger(), reading(with_afu(NLB0), card(1)), 0)
    without_ports = replace(card(1), ports=())
    during = step(first, reading(with_afu(""), without_ports, busy=WORKED_ON), 1)
    assert cards_of(during) == (with_afu(NLB0), without_ports)
    after = step(during, reading(with_afu(NLB3), card(1)), 2)
    assert cards_of(after) == (with_afu(NLB3), card(1))


def test_a_card_that_hangs_in_its_driver_has_failed_until_it_comes_back() -> None:
    first = step(Ledger(), reading(with_afu(NLB0)), 0)
    stuck = dict.fromkeys(WORKED_ON, 7.0)
    hung = step(first, replace(reading(with_afu(NLB0), busy=WORKED_ON), stuck=stuck), 1)
    failure = cards_of(hung)[0].failure
    assert failure is not None
    assert (failure.code, "given up" in failure.text) == (HUNG_IN_DRIVER, True)
    assert cards_of(step(hung, reading(with_afu(NLB0)), 2))[0].failure is None


def test_a_card_that_was_never_read_in_peace_is_not_offered() -> None:
    ledger = Ledger()
    for now in range(2):
        ledger = step(ledger, reading(with_afu(NLB0), busy=WORKED_ON), now)
        failure = cards_of(ledger)[0].failure
        assert failure is not None
        assert failure.code == "card-busy"
    assert cards_of(step(ledger, reading(with_afu(NLB0)), 3)) == (with_afu(NLB0),)


def test_a_card_whose_driver_is_rebound_is_unhealthy() -> None:
    found = replace(reading(with_afu(NLB0)), rebinding=frozenset({card(0).lock}))
    (device,) = step(step(Ledger(), reading(with_afu(NLB0)), 0), found, 1).offer.devices()
    assert [each.code for each in device.reasons] == ["card-leaving"]
    assert device.resource
    back = cards_of(step(Ledger(), replace(found, busy=WORKED_ON), 1))[0].failure
    assert back is not None
    assert back.code == "card-leaving"


# Ports that can't be used in a mode


@pytest.mark.parametrize(
    ("mode", "reasons"),
    [
        (PluginMode.AF, [[UNFINISHED], [UNFINISHED]]),
        (PluginMode.BDF, [[UNFINISHED], [UNFINISHED]]),
        (PluginMode.REGION, [[RELEASED]]),
        (PluginMode.REGIONDEVEL, [[]]),
    ],
)
def test_a_port_is_usable_as_the_mode_needs_it(mode: PluginMode, reasons: list[list[str]]) -> None:
    physical = card(0)
    split = virtual(physical, 1, port("dfl-port.1", number=1))
    unfinished = frozenset(f"{physical.address}-port{number}" for number in range(2))
    found = replace(world(Inventory((physical, split))), unfinished=unfinished)
    made = step(Ledger(Rules(mode)), found, 0).offer
    assert [[each.code for each in device.reasons] for device in made.devices()] == reasons
    able = Rules(mode, programs_virtual=frozenset({"dfl"}))
    assert RELEASED not in str(step(Ledger(able), found, 0).offer)


# What can't be read


def test_one_kind_of_devices_stays_while_it_can_not_be_read() -> None:
    both = step(Ledger(), world(Inventory((card(0),)), types=[VE]), 0)
    nothing = world(Inventory(()))
    for kept, later in (
        ("dfl-port.0", replace(nothing, error="no thread", cards=None)),
        (VE.id, replace(nothing, error="no thread", types=None)),
    ):
        left = step(both, later, 1)
        assert left.error == "no thread"
        assert [each.id for each in left.offer.devices()] == [kept]


def test_a_node_that_has_or_had_other_devices_needs_no_driver_of_fpgas() -> None:
    none = Inventory(problems=(Problem("no-driver", "load it"), Problem("no-sysfs", "x")))
    ledger = Ledger()
    for types, codes in (
        ([], ["no-driver", "no-sysfs"]),
        ([VE], ["no-sysfs"]),
        # the last one was unplugged
        ([], ["no-sysfs"]),
        ([], ["no-sysfs"]),
    ):
        ledger = step(ledger, world(none, types=types), 0)
        assert ledger.inventory is not None
        assert [each.code for each in ledger.inventory.problems] == codes


def test_an_offer_stays_while_too_little_is_known_or_nothing_changes() -> None:
    before = step(Ledger(), world(Inventory((card(0),))), 0)
    nothing = replace(world(Inventory(())), error="unknown")
    for later in (replace(nothing, holders=None), replace(nothing, cards=None, types=None)):
        assert step(before, later, 1) == replace(before, error="unknown")
    assert step(before, world(Inventory((card(0),))), 1).offer is before.offer


# Health that doesn't flap

THREE = Rules(good_scans=3)


def kubelet_sees(scans: str, rules: Rules = THREE, spacing: float = 1.0) -> str:
    """How the kubelet sees a device: `+` healthy, `-` unhealthy, a blank for not there."""
    ledger, answer = Ledger(rules), ""
    for index, scan in enumerate(scans):
        found = [] if scan == " " else [replace(VE, reasons=(BAD,) if scan == "-" else ())]
        ledger = step(ledger, world(types=found), index * spacing)
        offered = [*ledger.offer.devices()]
        answer += " " if not offered else "+" if offered[0].healthy else "-"
    return answer


@pytest.mark.parametrize(
    ("scans", "answers"),
    [
        ("+++++", "+++++"),
        ("+-++-+++", "+------+"),
        ("+---+++-+++", "+-----+---+"),
        ("---+++", "---+++"),  # never was healthy: nothing to prove
        ("--+-+++", "--+---+"),
        ("+- +", "+- +"),  # vanished: forgotten
    ],
)
def test_a_device_is_healthy_again_after_three_good_scans(scans: str, answers: str) -> None:
    assert kubelet_sees(scans) == answers


def test_scans_in_a_burst_count_as_one() -> None:
    burst = Rules(good_scans=3, spacing=2.0)
    assert kubelet_sees("+-++++++", burst, spacing=0.1) == "+-------"
    assert kubelet_sees("+-++++++", burst, spacing=1.0) == "+-----++"
    assert kubelet_sees("+-++++++", burst, spacing=2.0) == "+---++++"
    assert kubelet_sees("+-+++", Rules(good_scans=2, spacing=1.0), spacing=0) == "+----"
    assert kubelet_sees("+-+++", Rules(good_scans=2, spacing=4.0), spacing=-5) == "+--++"


def test_a_recovering_device_says_so_and_since_when() -> None:
    ledger = Ledger(THREE)
    for now, reasons in enumerate(((), (BAD,), (), ())):
        ledger = step(ledger, world(types=[replace(VE, reasons=reasons)]), now)
    entry = ledger.entries[VE.id]
    (reason,) = entry.device.reasons
    assert (reason.code, entry.since, entry.good) == (RECOVERING, 2, 2)
    assert "3 good scans in a row" in reason.text


def test_a_device_that_was_not_read_comes_no_closer_to_being_healthy() -> None:
    ledger = Ledger(THREE)
    for now, reasons in enumerate(((), (BAD,), ())):
        ledger = step(ledger, world(types=[replace(VE, reasons=reasons)]), now)
    for now in range(3, 6):
        ledger = step(ledger, replace(world(Inventory()), types=None), now)
        assert ledger.entries[VE.id].good == 1
        assert not ledger.entries[VE.id].device.healthy
    for now in range(6, 9):
        ledger = step(ledger, world(types=[VE]), now)
    assert ledger.entries[VE.id].device.healthy


@given(st.text(alphabet="+- ", max_size=40), st.integers(1, 5), st.floats(0, 10))
def test_recovery_is_always_possible(scans: str, good_scans: int, spacing: float) -> None:
    rules = Rules(good_scans=good_scans, spacing=spacing)
    answers = kubelet_sees(scans + "+" * (good_scans + 1), rules, spacing=spacing * 1.01 + 0.1)
    assert answers.endswith("+")
    assert all(answer != "+" for scan, answer in zip(scans, answers, strict=False) if scan == "-")
