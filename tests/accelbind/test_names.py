import json

import pytest

from tests.accelbind.running import Done, run

ARRIA = "ce48969398f05f33946d560708be108a"
NLB0 = "d8424dc4a4a3c413f89e433683f9040b"
REGION = f"fpga.intel.com/region-{ARRIA}"
AF = "fpga.intel.com/af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"


def names(*arguments: str) -> Done:
    return run("names", *arguments)


@pytest.mark.parametrize(
    ("arguments", "known"),
    [
        (["af", ARRIA.upper(), NLB0], {"resource": AF, "interfaceId": ARRIA, "afuId": NLB0}),
        (["decode", AF], {"resource": AF, "interfaceId": ARRIA, "afuId": NLB0}),
        (["region", ARRIA], {"resource": REGION, "interfaceId": ARRIA}),
        (["decode", REGION], {"resource": REGION, "interfaceId": ARRIA}),
    ],
)
def test_programs_get_json(arguments: list[str], known: dict[str, str]) -> None:
    code, out, err = names(*arguments, "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"version": 1} | known


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["af", "x", NLB0], 'error: interface id "x" is not 8 to 32 hex digits\n'),
        (["af", ARRIA, ""], 'error: AFU id "" is not 8 to 40 hex digits\n'),
        (["region", "1234567"], 'error: interface id "1234567" is not 8 to 32 hex digits\n'),
        (["decode", "nlb0\nx"], 'error: "nlb0\\nx" is not a physical resource name: '),
        (["decode"], "error: "),
        (["af", ARRIA], "error: "),
    ],
)
def test_what_is_no_id_and_no_name_is_one_line_of_error(arguments: list[str], error: str) -> None:
    code, out, err = names(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(error)
    assert err.count("\n") == 1
