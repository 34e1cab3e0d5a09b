import pytest

from services.devices.model import Problem
from services.devices.sensors import (
    MAX_LABEL,
    CardSensors,
    Gauge,
    aer_total,
    board_watts,
    celsius,
    gauges,
    label,
    watts,
)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("38", 1.0, 38.0),
        ("0x26", 1.0, 38.0),
        ("-5", 1.0, -5.0),
        ("51500", 1e-3, 51.5),
        ("-40000", 1e-3, -40.0),
        ("0", 1e-3, 0.0),
        ("400000", 1e-3, 400.0),
        ("400001", 1e-3, None),
        ("-100", 1.0, -100.0),
        ("-101", 1.0, None),
        ("0xffffffff", 1.0, None),
        ("2147483647", 1e-3, None),
        ("", 1.0, None),
        ("hot", 1.0, None),
        ("38.5", 1.0, None),
        ("1e3", 1.0, None),
        ("0x", 1.0, None),
        ("--1", 1.0, None),
        ("9" * 13, 1e-12, None),
        ("38\n", 1.0, None),
    ],
)
def test_a_temperature_is_read_as_drivers_write_it(
    text: str, unit: float, value: float | None
) -> None:
    assert celsius(text, unit=unit) == value


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("0x17", 1.0, 23.0),
        ("0X17", 1.0, 23.0),
        ("23", 1.0, 23.0),
        ("64709000", 1e-6, 64.709),
        ("23500", 1e-3, 23.5),
        ("0", 1.0, 0.0),
        ("-1", 1.0, None),
        ("5000", 1.0, 5000.0),
        ("5001", 1.0, None),
        ("0xffff", 1.0, None),
        ("much", 1.0, None),
    ],
)
def test_a_power_is_read_as_drivers_write_it(text: str, unit: float, value: float | None) -> None:
    assert watts(text, unit=unit) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("50909", 50.909),
        ("50909000", 50.909),
        ("999999", 999.999),
        ("1000000", 1.0),
        ("0", 0.0),
        ("", None),
        ("-1", None),
    ],
)
def test_the_power_of_a_board_is_right_under_drivers_that_write_milliwatts_too(
    text: str, value: float | None
) -> None:
    assert board_watts(text) == value


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("Board Temperature",), "Board Temperature"),
        (("dfl_fme_thermal", "temp1"), "dfl_fme_thermal temp1"),
        (("", "temp1"), "temp1"),
        (("  QSFP  ",), "QSFP"),
        (("a\nb\x00\ufffd",), "a?b??"),
        (("",), ""),
        ((" ",), ""),
    ],
)
def test_a_label_is_one_line_of_printable_text(words: tuple[str, ...], text: str) -> None:
    assert label(*words) == text


def test_a_label_is_short() -> None:
    assert label("x" * 500) == "x" * MAX_LABEL
    assert label("x" * (MAX_LABEL - 1) + " y") == "x" * (MAX_LABEL - 1)


def test_sensors_of_one_label_are_told_apart_and_those_that_measure_nothing_are_left_out() -> None:
    found = [("a", 1.0), ("b", None), ("a", 2.0), ("a (2)", 3.0), ("a", None), ("a", 4.0)]
    assert gauges(found) == (
        Gauge("a", 1.0),
        Gauge("a (2)", 2.0),
        Gauge("a (2) (2)", 3.0),
        Gauge("a (3)", 4.0),
    )
    assert gauges([]) == ()


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("Undefined 0\nDLP 1\nTOTAL_ERR_FATAL 12", 12),
        ("RxErr 0\nTOTAL_ERR_COR 0\n", 0),
        ("TOTAL_ERR_NONFATAL   3", 3),
        ("DLP 1", None),
        ("TOTAL_ERR_FATAL many", None),
        ("", None),
    ],
)
def test_the_total_of_a_kind_of_bus_error_is_found(text: str, total: int | None) -> None:
    assert aer_total(text) == total


def test_a_card_is_as_hot_as_its_hottest_place_and_draws_what_its_board_draws() -> None:
    read = CardSensors(
        "dfl",
        "region0",
        "0000:5e:00.0",
        temperatures=(Gauge("board", 35.0), Gauge("die", 50.0), Gauge("cage", -1.0)),
        powers=(Gauge("core", 14.0), Gauge("board", 64.7)),
    )
    assert (read.temperature, read.power) == (50.0, 64.7)


def test_a_card_that_measures_nothing_has_neither() -> None:
    problem = Problem("sensors-hung", "reading the sensors of region0 hangs")
    read = CardSensors("dfl", "region0", "", problem=problem)
    assert (read.temperature, read.power) == (None, None)
    assert (read.temperatures, read.powers, read.registers) == ((), (), ())
    assert not read.bus_errors
