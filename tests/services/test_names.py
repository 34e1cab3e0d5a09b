import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.names import (
    AFU_LENGTHS,
    DOMAIN,
    UNIT_RESOURCE,
    FunctionName,
    RegionName,
    canonical_id,
    decode,
    function_name,
    is_name_part,
    is_physical,
    region_name,
)
from services.process.errors import InvalidName

ARRIA = "ce48969398f05f33946d560708be108a"
NLB0 = "d8424dc4a4a3c413f89e433683f9040b"
KNOWN = [
    (ARRIA, NLB0, "af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"),
    (
        "69528db6eb31577a8c3668f9faa081f6",
        NLB0,
        "af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs",
    ),
]

HEX = "0123456789abcdef"


def test_the_names_that_clusters_hold_never_change() -> None:
    assert DOMAIN == "fpga.intel.com"
    assert UNIT_RESOURCE == "b-com.com/accelerator"
    assert region_name(ARRIA) == f"region-{ARRIA}"


@pytest.mark.parametrize(("interface", "afu", "name"), KNOWN)
def test_known_functions_have_their_known_names(interface: str, afu: str, name: str) -> None:
    assert function_name(interface, afu) == name
    assert decode(name) == FunctionName(interface, afu)


@pytest.mark.parametrize(
    "written", [ARRIA.upper(), f"  {ARRIA}\n", "CE489693-98f0-5f33-946d-560708be108a", f"-{ARRIA}-"]
)
def test_ids_are_compared_without_case_dashes_and_blanks(written: str) -> None:
    assert canonical_id(written) == ARRIA
    assert region_name(written) == f"region-{ARRIA}"
    assert function_name(written, NLB0.upper()) == KNOWN[0][2]


@pytest.mark.parametrize(
    ("interface", "afu", "message"),
    [
        *[
            (text, NLB0, f'interface id "{shown}" is not 8 to 32 hex digits')
            for text, shown in (
                ("a" * 33, "a" * 33),
                ("abcdefg\n1", "abcdefg\\n1"),
                ("٣" * 32, "٣" * 32),  # a digit, but not a hex one
            )
        ],
        (ARRIA, "a" * 7, 'AFU id "aaaaaaa" is not 8 to 40 hex digits'),
        (ARRIA, "a" * 41, f'AFU id "{"a" * 41}" is not 8 to 40 hex digits'),
        (
            "a" * 9,
            "b" * 8,
            (
                "interface id aaaaaaaaa and AFU id bbbbbbbb have 17 hex digits together, which are "
                "no whole bytes: there is no resource name for them"
            ),
        ),
        (
            "0" * 32,
            "0" * 38 + "3f",
            (
                f"the resource name of interface id {'0' * 32} and AFU id {'0' * 38}3f would be "
                f"af-000.000.{'A' * 47}_, and Kubernetes allows none that ends in '-' or '_'"
            ),
        ),
    ],
)
def test_pairs_without_a_name_are_refused(interface: str, afu: str, message: str) -> None:
    with pytest.raises(InvalidName) as caught:
        function_name(interface, afu)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("interface", "afu"),
    [
        ("f" * 32, "0" * 40),  # the longest name
        ("123456789", "abcdef012"),  # odd lengths, but whole bytes together
        ("a" * 8, "b" * 8),
    ],
)
def test_ids_of_all_lengths_have_names_that_fit_kubernetes(interface: str, afu: str) -> None:
    name = function_name(interface, afu)
    assert len(name) <= 59
    assert decode(region_name(interface)) == RegionName(interface)
    assert decode(f"{DOMAIN}/{region_name(interface)}") == RegionName(interface)


@given(
    st.text(HEX, min_size=32, max_size=32),
    st.text(HEX, min_size=AFU_LENGTHS[0], max_size=AFU_LENGTHS[-1]),
)
def test_a_name_spells_its_ids(interface: str, afu: str) -> None:
    try:
        name = function_name(interface, afu)
    except InvalidName as error:
        assert len(afu) % 2 or str(error).partition(",")[0][-1] in "-_"  # noqa: PT017 - either
        return
    assert is_physical(name)
    assert is_name_part(name)
    # The rule itself, in other words than the code's:
    assert name[:11] == f"af-{interface[:3]}.{afu[:3]}."
    text = name[11:].replace("-", "+").replace("_", "/")
    assert base64.b64decode(text + "=" * (-len(text) % 4)).hex() == interface + afu
    assert decode(f"{DOMAIN}/{name}") == FunctionName(interface, afu)


NOT_PHYSICAL = (
    "is not a physical resource name: those are "
    "region-<interface id> and af-<3 hex digits>.<3 hex digits>.<base64url>"
)


@pytest.mark.parametrize(
    "resource",
    [
        "",
        "nlb0",
        f"region-{ARRIA}0",
        f"region-{ARRIA.upper()}",
        f"region-{ARRIA}\n",
        f"other.com/region-{ARRIA}",
        "af-ce4.d84." + "A" * 49,
        "af-CE4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs",
    ],
)
def test_names_without_a_physical_form_are_refused(resource: str) -> None:
    assert not is_physical(resource)
    with pytest.raises(InvalidName, match=NOT_PHYSICAL):
        decode(resource)


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ("af-ce4.fff.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs", "spells no interface id"),
        ("af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAt", "spells no interface id"),
        (function_name("a" * 8, "b" * 8), "spells no interface id of 32 digits and AFU id"),
        ("af-ce4.d84.zkiWk5jwXzOUb", "is not base64url: "),
        ("af-ce4.d84." + "A" * 10 + "-", "is not a physical resource name"),
    ],
)
def test_names_that_no_ids_have_are_refused(resource: str, message: str) -> None:
    with pytest.raises(InvalidName, match=message):
        decode(resource)


@given(st.text(string.ascii_letters + string.digits + "-_.", min_size=0, max_size=70))
def test_no_text_breaks_decode(text: str) -> None:
    for candidate in (text, f"af-{text}", f"af-abc.abc.{text}", f"region-{text}"):
        try:
            ids = decode(candidate)
        except InvalidName:
            continue
        if isinstance(ids, FunctionName):
            assert function_name(ids.interface_id, ids.afu_id) == candidate
        else:
            assert region_name(ids.interface_id) == candidate


def test_kubernetes_allows_63_characters_that_begin_and_end_alphanumeric() -> None:
    for name in ("a", "A0", "a.b-c_d", "0" * 63):
        assert is_name_part(name)
    for name in ("", "-a", "a-", ".a", "a_", "0" * 64, "a b", "a/b", "ä", "a\n"):
        assert not is_name_part(name)
