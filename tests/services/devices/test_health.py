import pytest

from services.devices.health import (
    Failure,
    Reading,
    RegisterStatus,
    evaluate_id,
    evaluate_register,
    port_without_driver,
)
from services.process.problem import Problem

AFU = "d8424dc4a4a3c413f89e433683f9040b"
OWN = "afu_id of dfl-port.0"


def evaluate_afu(reading: Reading) -> tuple[str, Problem | None]:
    return evaluate_id("afu-id", "afu_id", "dfl-port.0", reading)


@pytest.mark.parametrize(
    "text", [AFU, AFU.upper(), "d8424dc4-a4a3-c413-f89e-433683f9040b", f"  {AFU}\n"]
)
def test_an_id_is_read_in_any_case_with_or_without_dashes(text: str) -> None:
    assert evaluate_afu(Reading(text)) == (AFU, None)


CRASHED = "afu_id of dfl-port.0 is all f: the card's firmware has crashed"


@pytest.mark.parametrize(
    ("reading", "state", "message"),
    [
        (Reading(failure=Failure.MISSING), "missing", "dfl-port.0 has no afu_id"),
        (Reading("", Failure.UNREADABLE, "EPERM"), "unreadable", f"{OWN} can't be read: EPERM"),
        (Reading("", Failure.DEAD, "EIO"), "unreadable", f"{OWN} can't be read: EIO"),
        (Reading(""), "empty", f"{OWN} is empty"),
        (Reading("--"), "empty", f"{OWN} is empty"),
        (Reading("f" * 32), "all-f", CRASHED),
        (Reading("FFFFFFFF"), "all-f", CRASHED),
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
FORBIDDEN = Reading(failure=Failure.UNREADABLE, detail="Permission denied")
DEAD = Reading(failure=Failure.DEAD, detail="Input/output error")


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
        (FORBIDDEN, None, "", f"{OF} can't be read: Permission denied"),
        (DEAD, None, f"{OF} can't be read: Input/output error", ""),
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
