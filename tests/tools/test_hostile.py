"""No pod costs more than in proportion to its bytes: bytecodes are counted, since time varies."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from services.mappings.index import MappingIndex
from tools.bench.hostile import GUARDED, PODS, index, outcome, review

TINY, SMALL, LARGE = 2**12, 2**16, 2**17
"""Bytes of a first pod, and of the two that are compared: both reach every limit of a number."""
START = 20_000
"""Bytecodes of any review, however short."""
MOST = 1_250_000
"""Bytecodes of the smaller one: work that grows faster may have reached a limit there already."""


@pytest.fixture(scope="module")
def mappings() -> MappingIndex:
    return index()


def bytecodes(call: Callable[[], object]) -> int:
    """How many bytecodes a call executes; what C code does within one isn't counted."""
    executed = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal executed
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        executed += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return executed


@pytest.mark.parametrize(
    ("endpoint", "name"),
    [*(("/mutate", name) for name in PODS), *(("/guard", name) for name in GUARDED)],
)
def test_twice_the_bytes_take_twice_the_work(
    endpoint: str, name: str, mappings: MappingIndex
) -> None:
    pod = {**PODS, **GUARDED}[name]
    tiny, small, large = (review(pod(size)) for size in (TINY, SMALL, LARGE))
    # Python 3.13 counts a function's bytecodes from its second call on.
    bytecodes(lambda: outcome(tiny, mappings, endpoint))
    few = bytecodes(lambda: outcome(small, mappings, endpoint))
    many = bytecodes(lambda: outcome(large, mappings, endpoint))
    assert few <= MOST
    assert many <= few * 2.3 + START


def test_no_answer_is_longer_than_what_mappings_may_add(mappings: MappingIndex) -> None:
    functions = ",".join(f'"fpga.intel.com/f{n}":"1"' for n in range(64))
    container = (
        f'{{"name":"c","resources":{{"limits":{{{functions}}},"requests":{{{functions}}}}}}}'
    )
    largest = review(f'{{"spec":{{"containers":[{",".join([container] * 4)}]}}}}')
    assert outcome(largest, mappings)[0] == "patched"
    sizes = [outcome(review(pod(LARGE)), mappings)[1] for pod in PODS.values()]
    assert max(*sizes, outcome(largest, mappings)[1]) < 256 * 1024
