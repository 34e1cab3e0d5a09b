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
