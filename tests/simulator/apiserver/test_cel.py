"""Match conditions: what the library makes of ours, and its errors in our terms."""

import pytest

from simulator.apiserver.cel import EvaluationError, compile_expression
from tests.simulator.apiserver.support import Json, needs_cel

ASKS_FOR_FPGA = """
(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c,
  c.?resources.?limits.orValue({}).exists(k, k.startsWith('fpga.intel.com/')) ||
  c.?resources.?requests.orValue({}).exists(k, k.startsWith('fpga.intel.com/')))
"""


def holds(text: str, item: object = None) -> bool:
    return compile_expression(text).holds({"object": item, "oldObject": None, "request": {}})


def of(**resources: Json) -> Json:
    return {"name": "c", "resources": resources}


FPGA = {"fpga.intel.com/nlb0": "1"}


@needs_cel
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [of(limits=FPGA)]}, True),
        ({"containers": [of(requests=FPGA)]}, True),
        ({"containers": [of(limits={"cpu": "1"})]}, False),
        ({"containers": [{"name": "c"}]}, False),
        ({"containers": [{"name": "c", "resources": {}}], "initContainers": []}, False),
        ({"containers": [{"name": "c"}], "initContainers": [of(limits=FPGA)]}, True),
        ({"containers": [of(limits={"x": "1", **FPGA})]}, True),
    ],
)
def test_the_condition_of_our_configurations_finds_pods_that_ask_for_an_fpga(
    spec: Json, expected: bool
) -> None:
    assert holds(ASKS_FOR_FPGA, {"spec": spec}) is expected


def test_without_the_library_every_condition_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.apiserver.cel.library", None)
    made = compile_expression("object.nothing == 'only compiled here'")
    assert made.holds({"object": {}})
    with pytest.raises(EvaluationError):
        made.text_of({"object": {}})
