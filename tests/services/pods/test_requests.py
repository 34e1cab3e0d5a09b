import pytest

from services.pods.requests import MAX_COUNT, parse_count
from services.process.errors import InvalidQuantity


@pytest.mark.parametrize(
    ("quantity", "count"),
    [
        ("0" * 127 + "1", 1),
        ("1e" + "0" * 20 + "3", 1000),
        ("-0", 0),
        ("1E", 10**18),
        ("0.00e-9999999999999999999", 0),
        ("9223372036854775807", MAX_COUNT),
        ("1234567890", 1234567890),
    ],
)
def test_whole_quantities_are_counted(quantity: str, count: int) -> None:
    assert parse_count(quantity) == count


@pytest.mark.parametrize(
    ("quantity", "problem"),
    [
        *(
            (each, "is not a quantity")
            for each in ("", ".", "+", "k", "1 ", "1K", "1e", "1e1.5", "1e3k", "0x10", "1_000")
        ),
        *((each, "is not a quantity") for each in ("NaN", "٣", "²", "1" * 129)),
        ("-0.5", "is negative"),
        ("1500m", "is not a whole number of devices"),
        ("1e-99999999999999999999", "is not a whole number of devices"),
        ("9223372036854775808", "is larger than any Kubernetes quantity"),
        ("1e99999999999999999999", "is larger than any Kubernetes quantity"),
    ],
)
def test_quantities_that_are_no_counts_are_refused_with_a_reason(
    quantity: str, problem: str
) -> None:
    with pytest.raises(InvalidQuantity) as caught:
        parse_count(quantity)
    assert str(caught.value).endswith(f" {problem}")
    assert len(str(caught.value)) < 200
