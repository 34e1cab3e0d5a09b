"""Bent bitstreams against the parser; `make soak` gives it a million of them."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from services.bitstreams.parse import parse
from services.process.errors import InvalidBitstream
from simulator.bitstreams import aocx_of, make_gbs
from tests.fuzz import bitstreams
from tests.fuzz.bitstreams import bomb, judge, make_input
from tests.fuzz.report import MAX_FAILURES, Report
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


def test_an_input_can_be_had_again() -> None:
    assert make_input(7, 42) == make_input(7, 42)
    assert make_input(7, 42) != make_input(8, 42)


def test_a_parser_that_lies_or_breaks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_gbs(bitstreams.INTERFACE, bitstreams.AFU, b"raw")
    assert judge(data) == "gbs"
    longer = parse(data + b"!")
    monkeypatch.setattr(bitstreams, "parse", lambda _: longer)
    with pytest.raises(AssertionError):
        judge(data)
    monkeypatch.setattr(bitstreams, "parse", lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        judge(data)


def test_a_bomb_is_refused_without_being_unpacked_as_a_whole() -> None:
    with pytest.raises(InvalidBitstream, match="unpacks to more than"):
        parse(aocx_of(bitstreams.PROGRAM, bomb()))
