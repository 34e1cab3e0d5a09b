"""Bent bitstreams against the parser; `make soak` gives it a million of them."""

import time
import tracemalloc
from collections import Counter
from collections.abc import Callable

import pytest

from services.bitstreams.parse import parse
from services.process.errors import InvalidBitstream
from tests.fuzz.bitstreams import bomb, judge, make_input
from tests.support import soak, soaking

INPUTS = 1_000_000 if soaking() else 500
SHOWN = 10
A_DAY = 24 * 3600.0
"""For a million, which takes a quarter of an hour or an hour: unless SECONDS=… asks for less."""


@pytest.mark.long
@pytest.mark.timeout(0)
def test_no_bent_bitstream_crashes_the_parser(figure: Callable[[str], None]) -> None:
    length = soak(short=30, full=A_DAY)
    outcomes, failures, begin = Counter[str](), list[str](), time.monotonic()
    for number in range(INPUTS):
        if time.monotonic() - begin > length.seconds or len(failures) == SHOWN:
            break
        try:
            outcomes[judge(make_input(length.seed, number))] += 1
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            failures.append(f"make_input({length.seed}, {number}): {error!r:.500}")
    inputs, seconds = sum(outcomes.values()), time.monotonic() - begin
    figure(f"seed {length.seed}: {inputs} inputs in {seconds:.0f} s ({dict(outcomes)})")
    assert failures == []
    assert soaking() or set(outcomes) == {"gbs", "aocx", "refused"}


def test_a_bomb_is_refused_without_being_unpacked_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = 2**25
    monkeypatch.setattr("services.bitstreams.aocx.MAX_FILE", limit)
    data = bomb(limit)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBitstream, match="unpacks to more than"):
            parse(data)
        assert tracemalloc.get_traced_memory()[1] < limit / 4
    finally:
        tracemalloc.stop()
