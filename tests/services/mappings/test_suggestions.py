import pytest

from services.mappings.suggestions import known_names, nearest

KNOWN = dict.fromkeys(["nlb0", "nlb3", "arria10.dcp1.0-nlb0-orchestrated", "crypto"])


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("nlb03", "nlb3"),
        ("NLB0", "nlb0"),  # another case
        ("arria10.dcp1.0_nlb0_orchestrated", "arria10.dcp1.0-nlb0-orchestrated"),
        ("arria10.nlb0-orchestrated", "arria10.dcp1.0-nlb0-orchestrated"),
        ("zzzz", None),
        ("", None),
        ("crypto-accelerator", None),
        ("my-crypto", "crypto"),
        ("n" * 1_000_000, None),
    ],
)
def test_the_nearest_name_is_found(asked: str, near: str | None) -> None:
    assert nearest(asked, KNOWN) == near


@pytest.mark.parametrize("slip", ["xname-77777", "nae-77777", "naem-77777", "name-77x77"])
def test_one_slip_is_found_among_any_number_of_names(slip: str) -> None:
    many = dict.fromkeys(f"name-{n}" for n in range(70_000, 100_000))
    found = nearest(slip, many)
    assert found is not None
    assert found[:7] + found[8:] == "name-7777"


def test_a_long_name_is_compared_with_the_first_few() -> None:
    many = dict.fromkeys(f"accelerator-function-number-{n}" for n in range(1000))
    assert nearest("accelerator-function-nummer-63", many) == "accelerator-function-number-63"
    assert nearest("accelerator-function-nummer-64", many) != "accelerator-function-number-64"
    assert nearest("a" * 24, dict.fromkeys(["x" * 64] * 64) | {"a" * 23: None}) == "a" * 23


def test_no_guess_is_made_among_many_names_that_are_far_off() -> None:
    many = dict.fromkeys(f"{n:060}" for n in range(100_000))
    assert nearest("nlb0", {}) is nearest("y" * 63, many) is None
    assert known_names(many).endswith(" and 99992 more")


def test_names_are_listed_in_order_up_to_eight() -> None:
    assert known_names(KNOWN) == "arria10.dcp1.0-nlb0-orchestrated, crypto, nlb0 and nlb3"
    assert known_names(dict.fromkeys("ihgfedcba")) == "a, b, c, d, e, f, g, h and 1 more"
    assert known_names({"a\nb": 1}) == "a\\nb"
