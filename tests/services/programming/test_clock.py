import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.process.errors import InvalidBitstream
from services.programming.clock import (
    IOPLL_KINDS,
    IopllKind,
    UserClock,
    fpll_setting,
    iopll_setting,
    measured_clock,
    read_frequency,
    requested_clock,
)

STRATIX, AGILEX = IOPLL_KINDS[0], IOPLL_KINDS[1]


@pytest.mark.parametrize(
    ("high", "low", "asked"),
    [
        (312, 156, UserClock(156, 312)),
        (400, None, UserClock(200, 400)),
        (None, 200, UserClock(200, 400)),
        (400, 0, UserClock(200, 400)),
        (0, 0, None),
        (None, None, None),
    ],
)
def test_what_a_bitstream_asks_for(
    high: float | None, low: float | None, asked: UserClock | None
) -> None:
    assert requested_clock(high, low) == asked


@pytest.mark.parametrize(
    ("status", "measured"),
    [
        (0x3000000000003CE3, UserClock(155.87, 311.74)),  # an N3000 as it comes
        (0x3000000100009C40, UserClock(200.0, 400.0)),  # a Xeon with an FPGA
        (0x3000000000000000, None),
        (0, None),
    ],
)
def test_what_a_counter_has_measured(status: int, measured: UserClock | None) -> None:
    assert measured_clock(status) == measured


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("156250 312500", UserClock(156.25, 312.5)),
        ("156250", None),
        ("1 2 3", None),
        ("fast 312500", None),
        ("\u0661 \u0662", None),
        ("", None),
    ],
)
def test_what_a_driver_says_it_makes(text: str, read: UserClock | None) -> None:
    assert read_frequency(text) == read


def test_clocks_agree_as_far_as_they_are_exact() -> None:
    asked = UserClock(156, 312)
    assert asked.agrees(UserClock(155.87, 311.74))
    assert not asked.agrees(UserClock(150, 300))
    assert not asked.agrees(UserClock(200, 400))
    assert str(asked) == "312/156 MHz"


@pytest.mark.parametrize(
    ("revision", "low", "words"),
    [
        # What the OPAE SDK has for the same frequencies.
        (0, 10, (10000, 0x808, 0x10000, 0x5050, 0x2828, 0xC0, 4, 2)),
        (0, 100, (100000, 0x808, 0x10000, 0x808, 0x404, 0xC0, 4, 2)),
        (0, 133, (133000, 0x24342, 0x505, 0x505, 0x20302, 0x180, 6, 2)),
        (0, 150, (150000, 0x20807, 0x10000, 0x505, 0x20302, 0xC0, 4, 0)),
        (0, 312, (312000, 0x2727, 0x20302, 0x20302, 0x20302, 0x180, 4, 2)),
        (0, 400, (400000, 0x808, 0x10000, 0x202, 0x202, 0xC0, 4, 2)),
        (1, 25, (25000, 0x707, 0x10000, 0x1C1C, 0xE0E, 0xC0, 4, 0)),
        (1, 400, (400000, 0x404, 0x10000, 0x101, 0x10000, 0xC0, 4, 0)),
        (1, 800, (800000, 0x404, 0x10000, 0x10000, 0x10000, 0xC0, 4, 0)),
    ],
)
def test_the_setting_of_a_pll(revision: int, low: int, words: tuple[int, ...]) -> None:
    assert struct.unpack("<8I", iopll_setting(IOPLL_KINDS[revision], low)) == words


@pytest.mark.parametrize("kind", [STRATIX, AGILEX])
@pytest.mark.parametrize("low", [0, 9, 801, -1])
def test_a_clock_that_no_pll_makes_is_the_bitstreams_fault(kind: IopllKind, low: float) -> None:
    with pytest.raises(InvalidBitstream, match="this card makes 10 to"):
        iopll_setting(kind, low)


def divided(word: int) -> int:
    """By how much a counter divides."""
    high, low = word >> 8 & 0xFF, word & 0xFF
    assert bool(word >> 17 & 1) is bool((high + low) % 2)
    return 1 if word >> 16 & 1 else high + low


@given(st.sampled_from([STRATIX, AGILEX]), st.floats(10, 800))
def test_every_setting_is_within_what_the_pll_can_and_close_to_what_is_asked(
    kind: IopllKind, low: float
) -> None:
    low = min(low, kind.most)
    made, *words, _, _, _ = struct.unpack("<8I", iopll_setting(kind, low))
    m, n, slow, fast = map(divided, words)
    least, most = kind.oscillator
    assert least <= 100 * m / n <= most
    assert made == round(1000 * 100 * m / n / slow)
    assert abs(made / 1000 - low) <= 0.01 * low
    assert 100 * m / n / fast <= kind.most + 1
    assert slow == (2 * fast if 2 * low <= kind.most else fast)


def test_the_loop_filter_follows_the_multiplier() -> None:
    filters = {
        divided(words[1]): words[5:]
        for low in range(10, 600)
        for words in [struct.unpack("<8I", iopll_setting(STRATIX, low))]
    }
    found = {m: filters[m] for m in sorted(filters) if m in (15, 16, 31, 64, 65, 123, 127)}
    assert found[16] == (0xC0, 4, 2)
    assert found[31] == (0x100, 4, 0)
    assert found[65] == (0x180, 4, 2)
    assert found[127] == (0x180, 6, 2)
    assert {each for m, each in filters.items() if 44 <= m < 65} == {(0x140, 4, 2)}
    assert {each for m, each in filters.items() if m < 16} == {(0xC0, 4, 0)}


FIXED = {0x12A: 0xE4, 0x12C: 8, 0x133: 0x0A, 0x134: 0x10, 0x135: 3, 0x142: 4}


@pytest.mark.parametrize(
    ("high", "fast", "slow", "m", "k"),
    [
        # What the OPAE SDK has for the same frequencies.
        (25, 0x3C, 0x78, 30, 1),
        (99, 0x10, 0x20, 31, 0xAE147AE1),
        (100, 0x0F, 0x1E, 30, 1),
        (156, 0x0A, 0x14, 31, 0x33333333),
        (312, 5, 10, 31, 0x33333333),
        (400, 4, 8, 32, 1),
        (600, 3, 6, 36, 1),
        (601, 0xFF, 5, 30, 0x0CCCCCCC),
        (1200, 0xFF, 3, 36, 1),
    ],
)
def test_the_setting_of_an_arria_10(high: int, fast: int, slow: int, m: int, k: int) -> None:
    setting = {each.address: each.value for each in fpll_setting(high)}
    fraction = {0x12D + n: k >> 8 * n & 0xFF for n in range(4)}
    both = 0x10 if high > 600 else 0x30
    assert setting == FIXED | fraction | {0x10F: fast, 0x110: slow, 0x111: both, 0x12B: m}


@pytest.mark.parametrize("high", [0, 24.9, 1201])
def test_a_clock_that_an_arria_10_does_not_make_is_the_bitstreams_fault(high: float) -> None:
    with pytest.raises(InvalidBitstream, match="this card makes 25 to 1200 MHz"):
        fpll_setting(high)


@given(st.floats(25, 1200))
def test_an_arria_10_makes_what_is_asked_for(high: float) -> None:
    setting = {each.address: each.value for each in fpll_setting(high)}
    k = sum(setting[0x12D + n] << 8 * n for n in range(4))
    low = 100 * (setting[0x12B] + k / 2**32) / 2 / setting[0x110]
    assert abs(2 * low - high) < 0.001
    assert 30 <= setting[0x12B] < 61
    assert all(0 <= each.value <= 0xFF >= each.mask for each in fpll_setting(high))
