"""One admission, from the bytes of the request to those of the answer, without the network."""

import statistics
from collections.abc import Iterator
from functools import partial

from services.admission.mutate import Policy
from services.admission.pod_review import answer
from services.mappings.index import MappingIndex
from services.pods.reasons import ReviewOutcome
from tools.bench.measure import time_calls
from tools.bench.reviews import SIZES, index, review

Row = tuple[str, ...]
FEW, MANY = 10, ((1000, 1), (10_000, 1000), (10_000, 1000, 3))
HEADINGS = (
    "review",
    "bytes",
    "median µs",
    "1 000 mappings",
    "10 000 in 1 000 namespaces",
    "and of three kinds",
    "growth at most",
)
GROWTH_LIMIT = 1.1
"""No growth, with an allowance for noise."""
TURNS, ROUNDS = 11, 3
"""Few and many mappings take turns, so that other load on the machine affects both."""


def rows() -> Iterator[Row]:
    """One row per size: the median with ten mappings, and ratios within this run.

    The columns of mappings compare the time with that many to the time with ten; the last one with
    as many of one kind.
    """
    policy = Policy()
    few, more = index(FEW), [index(*each) for each in MANY]
    for size in SIZES:
        body = review(size)
        if answer(body, few, policy, validating=False).outcome is not ReviewOutcome.PATCHED:
            raise AssertionError(f"the {size} review is not answered with a patch")
        turns = [[_time(body, which, policy) for which in (few, *more)] for _ in range(TURNS)]
        base = statistics.median(turn[0] for turn in turns)
        grown = [
            statistics.median(turn[column] / turn[before] for turn in turns)
            for column, before in ((1, 0), (2, 0), (3, 2))
        ]
        yield (
            size,
            f"{len(body)}",
            f"{base * 1e6:.0f}",
            *(f"{ratio:.2f} x" for ratio in grown),
            f"{GROWTH_LIMIT} x",
        )


def _time(body: bytes, mappings: MappingIndex, policy: Policy) -> float:
    call = partial(answer, body, mappings, policy, validating=False)
    return time_calls(call, ROUNDS)
