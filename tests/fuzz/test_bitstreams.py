"""Bent bitstreams against the parser; `make soak` gives it a million of them."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from services.bitstreams.parse import parse
from services.process.errors import InvalidBitstream
from simulator.bitstreams import aocx_of
from tests.fuzz import bitstreams
from tests.fuzz.bitstreams import MAX_FAILURES, Report, bomb
from tests.support import REPOSITORY, soak, soaking

FULL = 1_000_000
SHORT = 1_000
MOST_MIB = 64
A_DAY = 24 * 3600.0
"""For a million, which takes a quarter of an hour or an hour: unless SECONDS=… asks for less."""


@pytest.mark.long
@pytest.mark.timeout(0)
def test_no_bent_bitstream_crashes_the_parser_or_makes_it_large(
    figure: Callable[[str], None],
) -> None:
    length = soak(short=30, full=A_DAY)
    inputs = FULL if soaking() else SHORT
    arguments = [length.seed, inputs, length.seconds]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.bitstreams", *map(str, arguments)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    report = json.loads(done.stdout)
    figure(str(Report(**report)))
    assert report["failures"] == []
    assert report["inputs"] > MAX_FAILURES
    assert report["inputs"] == inputs or report["seconds"] >= length.seconds
    assert report["memory_mib"] <= MOST_MIB


def test_a_bomb_is_refused_without_being_unpacked_as_a_whole() -> None:
    with pytest.raises(InvalidBitstream, match="unpacks to more than"):
        parse(aocx_of(bitstreams.PROGRAM, bomb()))
