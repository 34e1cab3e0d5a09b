import pytest

from services.mappings.suggestions import COMPARED, known_names, nearest

KNOWN = dict.fromkeys(["nlb0", "nlb3", "arria10.dcp1.0-nlb0-orchestrated", "crypto"])


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("nlb", "nlb0"),  # a letter less
        ("nlb30", "nlb0"),  # a letter more
        ("arria10.dcp1.0-nbl0-orchestrated", "arria10.dcp1.0-nlb0-orchestrated"),  # swapped
        ("nlx3", "nlb3"),  # another letter
        ("NLB0", "nlb0"),  # another case
        ("arria10.nlb0-orchestrated", "arria10.dcp1.0-nlb0-orchestrated"),
        ("my-crypto", "crypto"),
        ("zzzz", None),
        ("", None),
        ("crypto-accelerator", None),
        ("nlb0" * 16, None),
        ("n" * 1_000_000, None),
    ],
)
def test_the_nearest_name_is_found(asked: str, near: str | None) -> None:
    assert nearest(asked, KNOWN) == near


def test_only_so_many_names_are_compared() -> None:
    many = dict.fromkeys(f"{n:060}" for n in range(COMPARED))
    assert nearest("nlb0", {}) is nearest("nlb0", many | {"nlb0": None}) is None
    assert nearest("nlb0", KNOWN, many) == "nlb0"


def test_names_are_listed_in_order_up_to_eight() -> None:
    assert known_names(KNOWN) == "arria10.dcp1.0-nlb0-orchestrated, crypto, nlb0 and nlb3"
    assert known_names(dict.fromkeys("ihgfedcba")) == "a, b, c, d, e, f, g, h and 1 more"
    assert known_names({"a\nb": 1}) == "a\\nb"
