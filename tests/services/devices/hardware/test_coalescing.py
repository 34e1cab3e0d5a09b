import asyncio
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.devices.hardware.coalescing import Coalescer
from tests.support import eventually_async


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 0
        self.timers: list[Alarm] = []

    def later(self, seconds: float, act: Callable[[], None]) -> "Alarm":
        alarm = Alarm(self.now + int(seconds), act)
        self.timers.append(alarm)
        return alarm

    def pass_to(self, moment: int) -> None:
        while due := [alarm for alarm in self.timers if alarm.at <= moment]:
            first = min(due, key=lambda alarm: alarm.at)
            self.timers.remove(first)
            self.now = first.at
            if not first.cancelled:
                first.act()
        self.now = moment


class Alarm:
    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self.at = at
        self.act = act
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def acts_at(signals: list[int], *, window: int = 20, until: int = 10_000) -> list[int]:
    """When there were acts, for signals at these moments."""
    clock = Clock()
    acts: list[int] = []
    coalescer = Coalescer(lambda: acts.append(clock.now), window=window, later=clock.later)
    for moment in sorted(signals):
        clock.pass_to(moment)
        coalescer.signal()
    clock.pass_to(until)
    assert clock.timers == []
    return acts


@pytest.mark.parametrize(
    ("signals", "acts"),
    [
        ([], []),
        ([5], [5]),
        ([5, 6, 7, 24], [5, 25]),
        ([0, 100, 200], [0, 100, 200]),
        ([0, 20], [0, 20]),
        ([0, 1, 21, 41], [0, 20, 40, 60]),
        (list(range(100)), [0, 20, 40, 60, 80, 100]),
    ],
)
def test_the_first_signal_acts_at_once_and_a_burst_once_a_window(
    signals: list[int], acts: list[int]
) -> None:
    assert acts_at(signals) == acts


@given(st.lists(st.integers(0, 300)))
def test_no_signal_is_lost_and_no_window_sees_two_acts(signals: list[int]) -> None:
    acts = acts_at(signals)
    assert all(any(moment <= act <= moment + 20 for act in acts) for moment in signals)
    assert all(after - before >= 20 for before, after in itertools.pairwise(acts))
    assert len(acts) <= len(signals)


def test_what_waits_is_dropped_at_the_end() -> None:
    clock = Clock()
    acts: list[int] = []
    coalescer = Coalescer(lambda: acts.append(clock.now), window=20, later=clock.later)
    coalescer.close()
    coalescer.signal()
    coalescer.signal()
    coalescer.close()
    assert [alarm.cancelled for alarm in clock.timers] == [True]
    clock.pass_to(100)
    assert acts == [0]
    coalescer.signal()
    clock.pass_to(200)
    assert acts == [0, 100]


def test_signals_after_the_end_act_at_once_again() -> None:
    clock = Clock()
    acts: list[int] = []
    coalescer = Coalescer(lambda: acts.append(clock.now), window=20, later=clock.later)
    for _ in range(2):
        coalescer.signal()
        coalescer.close()
    assert acts == [0, 0]


@pytest.mark.anyio
async def test_it_runs_on_the_loops_own_timers() -> None:
    acts: list[float] = []
    loop = asyncio.get_running_loop()
    coalescer = Coalescer(lambda: acts.append(loop.time()), window=0.02)
    for _ in range(5):
        coalescer.signal()
    assert len(acts) == 1
    await eventually_async(lambda: len(acts) == 2)
    assert acts[1] - acts[0] >= 0.019
