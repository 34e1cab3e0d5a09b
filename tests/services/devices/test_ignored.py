from dataclasses import replace

import pytest

from services.devices.health import parse_ignored
from services.devices.model import Fme, Inventory, PluginMode
from services.devices.resources import with_problems
from services.process.errors import InvalidSettings
from services.process.problem import Problem
from tests.services.cards import BAD, NLB0, advertise, card, function, port, virtual

GONE = Problem("node-missing", "there is no /dev/dfl-port.0")


def test_a_problem_of_a_card_is_one_of_each_port_those_on_virtual_functions_too() -> None:
    physical = card(0)
    inventory = Inventory((physical, virtual(physical, 1, port("dfl-port.1")), card(2)))
    seen = with_problems(inventory, {"region0": Problem("hot", "m")}, {})
    for mode, sick in (
        (PluginMode.AF, {"dfl-port.0", "dfl-port.1"}),
        (PluginMode.REGION, {"dfl-fme.0"}),
    ):
        devices = advertise(seen, mode).devices()
        assert {device.id for device in devices if not device.healthy} == sick


def test_problems_known_from_elsewhere_come_after_those_of_the_files_in_this_order() -> None:
    hot, held, remark = Problem("hot", "h"), Problem("held", "p"), Problem("remark", "r")
    sick = port("dfl-port.0", NLB0, GONE, BAD)
    whole = replace(card(0, sick, port("dfl-port.1")), problems=(remark,))
    ignored = {BAD.code: None}
    node = (Problem("no-permission", "n"),)
    for fme, of_engine, of_port in ((whole.fme, (hot,), ()), (None, (), (hot,))):
        inventory = Inventory((replace(whole, fme=fme),), node)
        seen = with_problems(inventory, {"region0": hot, "dfl-port.0": held}, ignored)
        (one,) = seen.cards
        assert (one.fme.problems if one.fme else ()) == of_engine
        assert [each.problems for each in one.ports] == [(GONE, *of_port, held), of_port]
        assert one.problems == (remark, Problem(BAD.code, f"{BAD.text}; ignored"))
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
    (seen,) = with_problems(Inventory((card(0, sick),)), {}, ignored).cards
    assert (not seen.ports[0].problems) == healthy
    assert [each.text for each in seen.problems] == ([f"{BAD.text}; ignored"] if healthy else [])
    assert seen.ports[0].errors == errors


def test_an_ignored_error_of_an_engine_is_a_remark_and_others_stay() -> None:
    sick = Fme(
        "dfl-fme.0",
        "ce48969398f05f33946d560708be108a",
        (Problem("fme-errors", "e"), Problem("overheated", "o"), Problem("node-missing", "n")),
        (("fme-errors", 0x6),),
    )
    ignored = parse_ignored(["fme-errors=0x2", "fme-errors=0x4", "overheated"])
    inventory = Inventory((card(0, fme=sick, pci=function()),))
    (seen,) = with_problems(inventory, {}, ignored).cards
    assert seen.fme is not None
    assert [each.code for each in seen.fme.problems] == ["node-missing"]
    assert [each.code for each in seen.problems] == ["fme-errors", "overheated"]


def test_ignored_errors_are_read_with_and_without_bits() -> None:
    words = ["port-errors=0x8", "port-errors=0X10", "fme-errors=0x1", "fme-errors", "ap1-event"]
    assert parse_ignored(words) == {"port-errors": 0x18, "fme-errors": None, "ap1-event": None}
    assert parse_ignored(["fme-errors", "fme-errors=0x1"]) == {"fme-errors": None}


@pytest.mark.parametrize("word", ["", "ap1-event=0x1", "port-errors=8", "node-missing"])
def test_a_word_that_is_no_error_is_refused_with_those_that_are(word: str) -> None:
    with pytest.raises(InvalidSettings, match=r"port-errors, fme-errors.* or overheated"):
        parse_ignored([word])
