import pytest

from services.process.yaml_types import typed


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[(text, None) for text in ("", "~", "null", "NULL")],
        *[(text, True) for text in ("y", "Yes", "true", "ON")],
        *[(text, False) for text in ("N", "no", "False", "off")],
        ("0", 0),
        ("-7", -7),
        ("+7", 7),
        ("1_000", 1000),
        ("0x1F", 31),
        ("0b11", 3),
        ("0o17", 15),
        ("010", 8),
        ("-010", -8),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", 2.0**64),
        ("09", 9.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("-1e3", -1000.0),
    ],
)
def test_plain_scalars_mean_what_kubectl_takes_them_for(text: str, value: object) -> None:
    found = typed(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text",
    [
        *("=", "<<", "tRUE", "nil", "12:30:00", "1:20.5", "2026-11-21", "1e999", "1Ki", "-", "+"),
        *("0x", "0xg", "0x1ffffffffffffffff", "1.2.3", "._5", "-.inf", ".nan", "9" * 400),
    ],
)
def test_all_else_is_a_text(text: str) -> None:
    assert typed(text) == text
