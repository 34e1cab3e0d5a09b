import pytest

from services.devices.sensors import (
    MAX_LABEL,
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
        *(("38", 1.0, 38.0), ("0x26", 1.0, 38.0), ("-100", 1.0, -100.0)),
        *(("51500", 1e-3, 51.5), ("400000", 1e-3, 400.0)),
        *(("400001", 1e-3, None), ("-101", 1.0, None), ("2147483647", 1e-3, None)),
        *((text, 1.0, None) for text in ("", "hot", "38.5", "1e3", "0x", "--1", "38\n")),
        *(("0xffffffff", 1.0, None), ("9" * 13, 1e-12, None)),
    ],
)
def test_a_temperature_is_read_as_drivers_write_it(
    text: str, unit: float, value: float | None
) -> None:
    assert celsius(text, unit=unit) == value


def test_a_power_is_between_nothing_and_what_a_card_can_draw() -> None:
    assert [watts(each) for each in ("0x17", "5000", "5001", "-1")] == [23.0, 5000.0, None, None]


def test_the_power_of_a_board_is_right_under_drivers_that_write_milliwatts_too() -> None:
    texts = ("50909", "50909000", "999999", "1000000", "0", "", "-1")
    expected = [50.909, 50.909, 999.999, 1.0, 0.0, None, None]
    assert [board_watts(text) for text in texts] == expected


def test_a_label_is_one_short_line_of_printable_text() -> None:
    assert label("dfl_fme_thermal", "temp1") == "dfl_fme_thermal temp1"
    assert [label("", "temp1"), label("  QSFP  "), label(" ")] == ["temp1", "QSFP", ""]
    assert label("a\nb\x00\ufffd") == "a?b??"
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
        ("TOTAL_ERR_FATAL many", None),
        ("", None),
    ],
)
def test_the_total_of_a_kind_of_bus_error_is_found(text: str, total: int | None) -> None:
    assert aer_total(text) == total
