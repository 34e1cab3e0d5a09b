"""The devices of several providers as one offer."""

from dataclasses import replace

import pytest

from services.devices.model import Device, Problem
from services.devices.provider import HELD, Found, merge

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
        (
            [device("a-0", "ve", "1:1"), device("a-1", "ve", "1:1")],
            ["a-0", "a-1"],
            [],
        ),
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
        (
            [device("a", "ve", "1:1", "2:2"), replace(device("b", "ve", "1:2", "2:2"), card="y")],
            [],
            [f"2:2 is part of x of type ve and y of type ve, {NEITHER}"] * 2,
        ),
        # one type finds one node under two names
        (
            [
                device("a", "t", "1:1"),
                replace(device("b", "t", "1:1"), card="y"),
            ],
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
    made = merge([Found((CARD,)), Found(tuple(found))])
    assert [each.id for each in made.devices()] == ["dfl-port.0", *offered]
    assert [each.reasons[0].message for each in made.not_offered] == reasons
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
def test_what_a_container_has_by_an_earlier_number_of_replicas_is_given_to_nobody_else(
    found: list[Device], has: list[str], unhealthy: int
) -> None:
    made = merge([Found(tuple(found))], [("d.example/r", each) for each in has]).devices()
    assert [each.reasons[0].reason for each in made if not each.healthy] == [HELD] * unhealthy
