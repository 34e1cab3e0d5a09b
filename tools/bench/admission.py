"""One admission, from the request's bytes to the answer's, without the network around it."""

import json
import time
from collections.abc import Iterator
from functools import partial

from services.admission.mutate import Policy
from services.admission.pod_review import answer
from services.admission.review import ReviewOutcome
from services.mappings.index import MappingIndex
from tools.bench.measure import time_calls
from tools.bench.reviews import SIZES, index, review

Row = tuple[str, ...]
FEW, MANY = 10, ((1000, 1), (10_000, 1000))
HEADINGS = (
    "review",
    "bytes",
    "median µs",
    "of json.loads",
    "1 000 mappings",
    "10 000 in 1 000 namespaces",
)


def rows() -> Iterator[Row]:
    """A row a size: the median with ten mappings, and ratios within this run.

    The yardstick is `json.loads` of the same bytes; the last two columns are the time with more
    mappings against that with ten: it must not grow.
    """
    policy = Policy()
    few, more = index(FEW), [index(*each) for each in MANY]
    for size in SIZES:
        body = review(size)
        if answer(body, few, policy, validating=False).outcome is not ReviewOutcome.PATCHED:
            raise AssertionError(f"the {size} review is not answered with a patch")
        base = _median(body, few, policy)
        yardstick = time_calls(partial(json.loads, body), clock=time.process_time)
        grown = [_median(body, which, policy) / base for which in more]
        yield (
            size,
            f"{len(body)}",
            f"{base * 1e6:.0f}",
            f"{base / yardstick:.2f} x",
            *(f"{ratio:.2f} x" for ratio in grown),
        )


def _median(body: bytes, mappings: MappingIndex, policy: Policy) -> float:
    call = partial(answer, body, mappings, policy, validating=False)
    return time_calls(call, clock=time.process_time)
