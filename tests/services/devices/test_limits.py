from dataclasses import replace

import pytest

from services.devices.limits import (
    TOO_HOT,
    TOO_MUCH_POWER,
    Limits,
    limit_problems,
    parse_ignored,
)
from services.devices.model import Fme, Inventory, PluginMode, Problem
from services.devices.resources import with_problems
from services.devices.sensors import CardSensors, Gauge
from services.process.errors import InvalidSettings
from tests.services.cards import BAD, NLB0, advertise, card, function, port, virtual

HOT = Limits(max_temperature=95.0)
GONE = Problem("node-missing", "there is no /dev/dfl-port.0")


def measured(*temperatures: float, power: tuple[float, ...] = ()) -> list[CardSensors]:
    heat = tuple(Gauge(f"t{number}", value) for number, value in enumerate(temperatures))
    watts = tuple(Gauge(f"p{number}", value) for number, value in enumerate(power))
    return [CardSensors("region0", "0000:5e:00.0", heat, watts)]


HEAT, POWER = "went beyond --max-temperature, 95 °C", "went beyond --max-power, 100 W"


@pytest.mark.parametrize(
    ("temperatures", "power", "reason", "message"),
    [
        ((95.0, 40.0), (100.0,), None, ""),
        ((20.0, 95.5), (), TOO_HOT, f"t1 of region0 {HEAT}"),
        ((20.0,), (100.5,), TOO_MUCH_POWER, f"p0 of region0 {POWER}"),
        ((96.0,), (101.0,), TOO_HOT, f"t0 of region0 {HEAT}"),
        ((96, 97, 98, 99, 100), (), TOO_HOT, f"t0, t1, t2 and 2 more of region0 {HEAT}"),
    ],
)
def test_a_card_beyond_a_limit_is_named_with_its_sensors_and_the_flag(
    temperatures: tuple[float, ...], power: tuple[float, ...], reason: str | None, message: str
) -> None:
    found = measured(*temperatures, power=power)
    expected = {"region0": Problem(reason, message)} if reason else {}
    assert limit_problems(found, Limits(95.0, 100.0)) == expected
    assert limit_problems(found, Limits()) == {}


@pytest.mark.parametrize(
    ("temperatures", "power", "before", "reason"),
    [
        ((90.5,), (), TOO_HOT, TOO_HOT),
        ((90.0,), (), TOO_HOT, None),
        ((20.0,), (95.5,), TOO_MUCH_POWER, TOO_MUCH_POWER),
        ((20.0,), (95.0,), TOO_MUCH_POWER, None),
        ((90.5,), (), TOO_MUCH_POWER, None),
        ((90.5,), (100.5,), TOO_HOT, TOO_HOT),
    ],
)
def test_a_card_keeps_its_problem_until_it_is_well_below_the_limit(
    temperatures: tuple[float, ...], power: tuple[float, ...], before: str, reason: str | None
) -> None:
    known = {"region0": Problem(before, "before"), "another": Problem(TOO_HOT, "before")}
    found = limit_problems(measured(*temperatures, power=power), Limits(95.0, 100.0), known)
    assert {card: each.reason for card, each in found.items()} == (
        {"region0": reason} if reason else {}
    )
    assert limit_problems(measured(99), Limits(None, 100.0), known) == {}


def test_a_card_beyond_a_limit_takes_all_its_ports_with_it_those_on_virtual_functions_too() -> None:
    physical = card(0)
    inventory = Inventory((physical, virtual(physical, 1, port("dfl-port.1")), card(2)))
    seen = with_problems(inventory, {"region0": Problem(TOO_HOT, "m")}, HOT)
    for mode, sick in (
        (PluginMode.AF, {"dfl-port.0", "dfl-port.1"}),
        (PluginMode.REGION, {"dfl-fme.0"}),
    ):
        devices = advertise(seen, mode).devices()
        assert {device.id for device in devices if not device.healthy} == sick


def test_problems_known_from_elsewhere_come_after_those_of_the_files_in_this_order() -> None:
    hot, held, remark = Problem(TOO_HOT, "h"), Problem("held", "p"), Problem("remark", "r")
    sick = port("dfl-port.0", NLB0, GONE, BAD)
    whole = replace(card(0, sick, port("dfl-port.1")), problems=(remark,))
    limits = Limits(ignored={BAD.reason: None})
    node = (Problem("no-permission", "n"),)
    for fme, of_engine, of_port in ((whole.fme, (hot,), ()), (None, (), (hot,))):
        inventory = Inventory((replace(whole, fme=fme),), node)
        seen = with_problems(inventory, {"region0": hot, "dfl-port.0": held}, limits)
        (one,) = seen.cards
        assert (one.fme.problems if one.fme else ()) == of_engine
        assert [each.problems for each in one.ports] == [(GONE, *of_port, held), of_port]
        assert one.problems == (remark, replace(BAD, message=f"{BAD.message}; ignored"))
        assert seen.problems == node


@pytest.mark.parametrize(
    ("errors", "ignored", "healthy"),
    [
        (0x40, {"port-errors": 0x40}, True),
        (0x41, {"port-errors": 0x40}, False),
        (None, {"port-errors": 0x40}, False),
        (None, {"port-errors": None}, True),
    ],
)
def test_an_ignored_error_of_a_port_is_a_remark(
    errors: int | None, ignored: dict[str, int | None], healthy: bool
) -> None:
    sick = replace(port("dfl-port.0"), problems=(BAD,), errors=errors)
    (seen,) = with_problems(Inventory((card(0, sick),)), {}, Limits(ignored=ignored)).cards
    assert (not seen.ports[0].problems) == healthy
    assert [each.message for each in seen.problems] == (
        [f"{BAD.message}; ignored"] if healthy else []
    )
    assert seen.ports[0].errors == errors


def test_an_ignored_error_of_an_engine_is_a_remark_and_others_stay() -> None:
    sick = Fme(
        "dfl-fme.0",
        "ce48969398f05f33946d560708be108a",
        (Problem("fme-errors", "e"), Problem("overheated", "o"), Problem("node-missing", "n")),
        (("fme-errors", 0x6),),
    )
    limits = Limits(ignored=parse_ignored(["fme-errors=0x2", "fme-errors=0x4", "overheated"]))
    inventory = Inventory((card(0, fme=sick, pci=function()),))
    (seen,) = with_problems(inventory, {}, limits).cards
    assert seen.fme is not None
    assert [each.reason for each in seen.fme.problems] == ["node-missing"]
    assert [each.reason for each in seen.problems] == ["fme-errors", "overheated"]


def test_ignored_errors_are_read_with_and_without_bits() -> None:
    words = ["port-errors=0x8", "port-errors=0X10", "fme-errors=0x1", "fme-errors", "ap1-event"]
    assert parse_ignored(words) == {"port-errors": 0x18, "fme-errors": None, "ap1-event": None}
    assert parse_ignored(["fme-errors", "fme-errors=0x1"]) == {"fme-errors": None}


@pytest.mark.parametrize("word", ["", "ap1-event=0x1", "port-errors=8", "node-missing"])
def test_a_word_that_is_no_error_is_refused_with_those_that_are(word: str) -> None:
    with pytest.raises(InvalidSettings, match=r"port-errors, fme-errors.* or overheated"):
        parse_ignored([word])
