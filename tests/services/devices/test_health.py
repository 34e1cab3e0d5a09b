import pytest

from services.devices.health import (
    DeviceNodeState,
    Failure,
    Reading,
    evaluate_id,
    evaluate_node,
    evaluate_register,
    no_fme,
)
from services.devices.model import Problem

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
        (Reading("x" * 32), "invalid", f"{OWN} is not 32 hex digits: '{'x' * 32}'"),
    ],
)
def test_an_unusable_id_has_a_reason(reading: Reading, state: str, message: str) -> None:
    assert evaluate_afu(reading) == ("", Problem(f"afu-id-{state}", message))


def test_a_message_shows_only_the_start_of_a_long_text() -> None:
    _, problem = evaluate_afu(Reading("z" * 4096))
    assert problem is not None
    assert len(problem.message) < 120


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("0x0", 0), ("0x" + "0" * 32, 0), ("00", 0), ("0X0", 0)]
)
def test_a_register_of_zero_is_good(text: str, value: int) -> None:
    status = evaluate_register("port-errors", "errors/errors", "dfl-port.0", Reading(text))
    assert (status.value, status.problem, status.remark) == (value, None, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("0x40", 0x40), ("0X1f", 0x1F), ("10", 16), ("F" * 64, 16**64 - 1)],
)
def test_a_register_that_is_not_zero_is_a_problem(text: str, value: int) -> None:
    status = evaluate_register("port-errors", "errors/errors", "dfl-port.0", Reading(text))
    message = f"errors/errors of dfl-port.0 reads {value:#x}"
    assert status.value == value
    assert status.problem == Problem("port-errors", message)
    assert status.remark is None


@pytest.mark.parametrize("text", ["", "many", "-1", "0x", "1_0", "0x1 0x2", "F" * 65, "\u0663"])
def test_a_register_that_makes_no_sense_is_only_remarked_on(text: str) -> None:
    status = evaluate_register("ap1-event", "ap1_event", "dfl-port.0", Reading(text))
    message = f"ap1_event of dfl-port.0 is not a hex number: {text[:48]!r}"
    assert status.problem is None
    assert status.value is None
    assert status.remark == Problem("ap1-event-unreadable", message)


def test_a_register_that_is_not_there_is_fine() -> None:
    reading = Reading(failure=Failure.MISSING)
    status = evaluate_register("ap1-event", "ap1_event", "dfl-port.0", reading)
    assert (status.value, status.problem, status.remark) == (None, None, None)


def test_a_register_that_may_not_be_read_is_only_remarked_on() -> None:
    reading = Reading(failure=Failure.UNREADABLE, detail="Permission denied")
    status = evaluate_register("fme-errors", "errors/fme_errors", "dfl-fme.0", reading)
    message = "errors/fme_errors of dfl-fme.0 can't be read: Permission denied"
    assert status.problem is None
    assert status.remark == Problem("fme-errors-unreadable", message)


def test_a_card_that_does_not_answer_is_unhealthy() -> None:
    reading = Reading(failure=Failure.DEAD, detail="Input/output error")
    status = evaluate_register("fme-errors", "errors/fme_errors", "dfl-fme.0", reading)
    message = "errors/fme_errors of dfl-fme.0 can't be read: Input/output error"
    assert status.problem == Problem("fme-errors-unreadable", message)
    assert status.remark is None


@pytest.mark.parametrize(
    ("state", "reason", "message"),
    [
        (DeviceNodeState.MISSING, "node-missing", "there is no /dev/dfl-port.0"),
        (DeviceNodeState.UNREADABLE, "node-unreadable", "/dev/dfl-port.0 can't be read"),
        (
            *(DeviceNodeState.NOT_A_DEVICE, "node-not-a-device"),
            "/dev/dfl-port.0 is not a character device",
        ),
    ],
)
def test_a_device_node_must_be_a_device(state: DeviceNodeState, reason: str, message: str) -> None:
    assert evaluate_node("dfl-port.0", state) == Problem(reason, message)
    assert evaluate_node("dfl-port.0", DeviceNodeState.PRESENT) is None


def test_a_port_without_engine_says_where_it_was_looked_for() -> None:
    assert no_fme("dfl-port.0", None) == Problem(
        "no-fme", "dfl-port.0 can't be programmed or named: its card has no FME"
    )
    assert no_fme("dfl-port.0", "0000:5e:00.0") == Problem(
        "no-fme",
        "dfl-port.0 can't be programmed or named: its physical function 0000:5e:00.0 has no FME",
    )
