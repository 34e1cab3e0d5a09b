from dataclasses import replace

import pytest

from services.devices.health import (
    Failure,
    Reading,
    RegisterStatus,
    evaluate_id,
    evaluate_register,
    parse_ignored,
    port_without_driver,
)
from services.devices.model import Fme, Inventory
from services.devices.resources import with_problems
from services.process.errors import InvalidSettings
from services.process.problem import Problem
from tests.services.cards import BAD, NLB0, card, function, port

OWN = "afu_id of dfl-port.0"


def evaluate_afu(reading: Reading) -> tuple[str, Problem | None]:
    return evaluate_id("afu-id", "afu_id", "dfl-port.0", reading)


@pytest.mark.parametrize(
    "text", [NLB0, NLB0.upper(), "d8424dc4-a4a3-c413-f89e-433683f9040b", f"  {NLB0}\n"]
)
def test_an_id_is_read_in_any_case_with_or_without_dashes(text: str) -> None:
    assert evaluate_afu(Reading(text)) == (NLB0, None)


@pytest.mark.parametrize(
    ("reading", "state", "message"),
    [
        (Reading(failure=Failure.MISSING), "missing", "dfl-port.0 has no afu_id"),
        (Reading("", Failure.UNREADABLE, "EPERM"), "unreadable", f"{OWN} can't be read: EPERM"),
        (Reading(""), "empty", f"{OWN} is empty"),
        (Reading("--"), "empty", f"{OWN} is empty"),
        (Reading("F" * 32), "all-f", f"{OWN} is all f: the card's firmware has crashed"),
        (Reading("d8424dc4"), "invalid", f"{OWN} is not 32 hex digits: 'd8424dc4'"),
        (Reading("z" * 4096), "invalid", f"{OWN} is not 32 hex digits: '{'z' * 48}'"),
    ],
)
def test_an_unusable_id_has_a_reason(reading: Reading, state: str, message: str) -> None:
    assert evaluate_afu(reading) == ("", Problem(f"afu-id-{state}", message))


def test_a_port_whose_function_is_refused_is_disabled() -> None:
    busy = Reading(failure=Failure.BUSY, detail="Device or resource busy")
    afu_id, problem = evaluate_afu(busy)
    assert (afu_id, problem and problem.code) == ("", "port-disabled")
    assert problem
    assert problem.text.endswith("accelbind fpga rebind dfl-port.0")
    other = evaluate_id("interface-id", "compat_id", "dfl-fme.0", busy)[1]
    assert other
    assert other.code == "interface-id-unreadable"


def test_a_port_without_driver_names_the_command() -> None:
    problem = port_without_driver("dfl-port.0")
    assert problem.code == "port-without-driver"
    assert problem.text.endswith("accelbind fpga rebind dfl-port.0")


OF = "errors/errors of dfl-port.0"


@pytest.mark.parametrize(
    ("reading", "value", "problem", "remark"),
    [
        *((Reading(text), 0, "", "") for text in ("0", "0x0", "00", "0X0", "0x" + "0" * 32)),
        *(
            (Reading(text), value, f"{OF} reads {value:#x}", "")
            for text, value in (("1", 1), ("0x40", 64), ("0X1f", 31), ("10", 16))
        ),
        (Reading("F" * 64), 16**64 - 1, f"{OF} reads {16**64 - 1:#x}", ""),
        *(
            (Reading(text), None, "", f"{OF} is not a hex number: {text[:48]!r}")
            for text in ("", "many", "-1", "0x", "1_0", "0x1 0x2", "F" * 65, "\u0663")
        ),
        (Reading(failure=Failure.MISSING), None, "", ""),
        (Reading("", Failure.UNREADABLE, "EPERM"), None, "", f"{OF} can't be read: EPERM"),
        (Reading("", Failure.DEAD, "EIO"), None, f"{OF} can't be read: EIO", ""),
    ],
)
def test_a_register_is_a_problem_if_it_is_not_zero_or_its_card_does_not_answer(
    reading: Reading, value: int | None, problem: str, remark: str
) -> None:
    status = evaluate_register("port-errors", "errors/errors", "dfl-port.0", reading)
    code = "port-errors" if value else "port-errors-unreadable"
    assert status == RegisterStatus(
        value,
        Problem(code, problem) if problem else None,
        Problem("port-errors-unreadable", remark) if remark else None,
    )


# Problems known from elsewhere, and errors that are ignored


GONE = Problem("node-missing", "there is no /dev/dfl-port.0")


def test_problems_known_from_elsewhere_come_after_those_of_the_files_in_this_order() -> None:
    held, remark = Problem("held", "p"), Problem("remark", "r")
    sick = port("dfl-port.0", NLB0, GONE, BAD)
    whole = replace(card(0, sick, port("dfl-port.1")), problems=(remark,))
    node = (Problem("no-permission", "n"),)
    seen = with_problems(Inventory((whole,), node), {"dfl-port.0": held}, {BAD.code: None})
    (one,) = seen.cards
    assert [each.problems for each in one.ports] == [(GONE, held), ()]
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
