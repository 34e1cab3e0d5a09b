import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from services.process.errors import HardwareError
from services.process.readers import Readers, _Lane, _Work
from tests.services.devices.hardware.blocking import threads
from tests.support import eventually

NAME = "these readers"


@pytest.fixture
def opened() -> Iterator[threading.Event]:
    """What jobs hang on; opened at the end, so that no test leaves a thread."""
    event = threading.Event()
    yield event
    event.set()
    eventually(lambda: threads(NAME) == 0)


def hangs(event: threading.Event, result: str = "late") -> Callable[[], str]:
    def job() -> str:
        event.wait()
        return result

    return job


def answers(result: str) -> Callable[[], str]:
    return lambda: result


def test_jobs_are_done_in_their_order_in_one_thread_that_ends_with_them() -> None:
    seen: list[tuple[str, int]] = []

    def note(name: str) -> str:
        seen.append((name, threading.get_ident()))
        return name.upper()

    readers = Readers(NAME)
    assert readers.run({name: partial(note, name) for name in "abc"}) == {
        "a": "A",
        "b": "B",
        "c": "C",
    }
    assert [name for name, _ in seen] == ["a", "b", "c"]
    assert len({thread for _, thread in seen}) == 1
    assert threading.get_ident() not in {thread for _, thread in seen}
    eventually(lambda: threads(NAME) == 0)
    assert readers.stuck == ()


def test_no_job_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", _no_thread)
    assert Readers(NAME).run({}) == {}


def test_a_job_that_hangs_takes_nothing_from_the_others(opened: threading.Event) -> None:
    readers = Readers(NAME, patience=0.3)
    jobs = {"a": answers("A"), "b": hangs(opened), "c": answers("C"), "d": answers("D")}
    assert readers.run(jobs) == {"a": "A", "c": "C", "d": "D"}
    assert readers.stuck == ("b",)
    eventually(lambda: threads(NAME) == 1)


def test_a_job_that_hangs_is_not_begun_again_until_it_has_returned(
    opened: threading.Event,
) -> None:
    begun = []

    def job() -> str:
        begun.append("b")
        return hangs(opened, "B")()

    readers = Readers(NAME, patience=0.3)
    assert readers.run({"b": job}) == {}
    for _ in range(5):
        assert readers.run({"b": job}) == {}
        assert (len(begun), threads(NAME)) == (1, 1)
    opened.set()
    eventually(lambda: readers.stuck == ())
    eventually(lambda: threads(NAME) == 0)
    assert readers.run({"b": job}) == {"b": "B"}
    assert len(begun) == 2


def test_what_comes_late_is_dropped_even_if_it_is_an_error(opened: threading.Event) -> None:
    def fails_late() -> str:
        opened.wait()
        raise ValueError("late")

    readers = Readers(NAME, patience=0.3)
    found = readers.run({"a": hangs(opened), "b": fails_late})
    opened.set()
    eventually(lambda: readers.stuck == ())
    assert found == {}
    assert readers.run({"c": answers("C")}) == {"c": "C"}


def test_where_all_hang_there_is_a_thread_for_each(opened: threading.Event) -> None:
    readers = Readers(NAME, patience=0.3)
    jobs = {f"{number:02}": hangs(opened) for number in range(40)}
    assert readers.run(jobs) == {}
    assert sorted(readers.stuck) == sorted(jobs)
    assert threads(NAME) == 40
    assert readers.run({**jobs, "x": answers("X")}) == {"x": "X"}
    eventually(lambda: threads(NAME) == 40)


def test_there_are_no_more_threads_than_there_may_be(opened: threading.Event) -> None:
    begun: list[int] = []

    def job(number: int) -> str:
        begun.append(number)
        return hangs(opened)()

    readers = Readers(NAME, patience=0.3, most=3)
    jobs = {f"{number}": partial(job, number) for number in range(9)}
    assert readers.run(jobs) == {}
    assert len(readers.stuck) == len(begun) == threads(NAME) == 3
    assert readers.run({"x": answers("X")}) == {}
    opened.set()
    eventually(lambda: readers.stuck == ())
    assert readers.run({"x": answers("X")}) == {"x": "X"}


def test_an_error_of_a_job_is_raised_when_the_others_are_done() -> None:
    done = []

    def fail() -> str:
        raise ValueError("a mistake")

    def do() -> str:
        done.append("c")
        return "C"

    readers = Readers(NAME)
    with pytest.raises(ValueError, match="a mistake"):
        readers.run({"a": fail, "c": do})
    assert done == ["c"]
    assert readers.stuck == ()
    eventually(lambda: threads(NAME) == 0)


def _no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_system_without_a_thread_left_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", _no_thread)
    with pytest.raises(HardwareError, match=r"^no thread to read these readers in: can't st"):
        Readers(NAME).run({"a": answers("A")})


def test_fewer_threads_than_wanted_do_the_work_too(
    monkeypatch: pytest.MonkeyPatch, opened: threading.Event
) -> None:
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def few(thread: threading.Thread) -> None:
        if len(started) == 2:
            _no_thread(thread)
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", few)
    readers = Readers(NAME, patience=0.3)
    found = readers.run({"a": hangs(opened), "b": answers("B"), "c": answers("C")})
    assert found == {"b": "B", "c": "C"}
    assert len(started) == 2


# When a job is late


def lane_of(jobs: int) -> _Lane[str]:
    """A thread with so many jobs before it, that has begun with the first."""
    todo = deque((f"{number}", answers("")) for number in range(jobs))
    lane = _Lane(_Work(todo, {}, threading.Lock()))
    lane._work.begin()
    assert lane._take() is not None
    return lane


def end(lane: _Lane[str]) -> bool:
    return lane._end(str(lane._key))


@pytest.mark.parametrize("looks_before", [0, 1, 3])
def test_a_job_is_left_behind_at_the_fifth_look_that_finds_it_in_hand(looks_before: int) -> None:
    lane = lane_of(2)
    for _ in range(looks_before):
        lane.look()
    assert end(lane)
    assert lane._take() is not None
    for _ in range(4):
        lane.look()
    assert lane._work.stuck == {}
    lane.look()
    assert list(lane._work.stuck) == ["1"]
    assert lane._work.idle.is_set()
    lane.look()
    assert not end(lane)
    assert lane._work.stuck == {}


def test_however_long_all_jobs_take_none_that_moves_on_is_late() -> None:
    lane = lane_of(30)
    for _ in range(29):
        for _ in range(4):
            lane.look()
        assert end(lane)
        assert lane._take() is not None
    assert lane._work.stuck == {}


def test_a_job_that_has_ended_is_not_late_before_the_next_is_begun() -> None:
    lane = lane_of(1)
    for _ in range(4):
        lane.look()
    assert end(lane)
    lane.look()
    assert lane._work.stuck == {}
    assert not lane._work.idle.is_set()
