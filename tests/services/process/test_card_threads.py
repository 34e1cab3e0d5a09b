import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from services.process.card_threads import CardThreads
from services.process.errors import DeviceHung, HardwareError
from tests.support import eventually, eventually_async


class Hang:
    """A call that hangs until it is let go."""

    def __init__(self) -> None:
        self.begun, self._over = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        self._over.wait(60)
        return "late"

    def let_go(self) -> None:
        self._over.set()


@pytest.fixture
def hang() -> Iterator[Hang]:
    hanging = Hang()
    yield hanging
    hanging.let_go()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def threads(card: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"card {card}"]


def do(cards: CardThreads, card: str, call: object, seconds: float = 30) -> object:
    assert callable(call)
    return cards.run(card, call, seconds=seconds, what="programming")


def test_a_call_gives_what_it_gives_and_leaves_no_thread_behind() -> None:
    cards = CardThreads()
    assert do(cards, "a", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        do(cards, "a", lambda: 1 / 0)
    eventually(lambda: not threads("a"))
    assert cards.stuck == {}


def test_the_time_out_of_a_call_itself_is_its_own() -> None:
    def timed_out() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        do(CardThreads(), "a", timed_out)


def test_a_card_that_hangs_is_marked_refuses_at_once_and_delays_no_other(hang: Hang) -> None:
    cards = CardThreads()
    with pytest.raises(DeviceHung, match=r"programming hangs: card a gave no answer within 0.1 s"):
        do(cards, "a", hang, 0.1)
    assert list(cards.stuck) == ["a"]
    with pytest.raises(DeviceHung, match="card a still hangs in a call given up"):
        do(cards, "a", lambda: 1)
    assert do(cards, "b", lambda: 2) == 2
    assert len(threads("a")) == 1
    hang.let_go()
    eventually(lambda: not cards.stuck)
    assert do(cards, "a", lambda: 3) == 3


def test_calls_on_one_card_follow_each_other(hang: Hang) -> None:
    cards = CardThreads()
    done: list[object] = []
    first = threading.Thread(target=lambda: do(cards, "a", lambda: done.append(hang())))
    first.start()
    assert hang.begun.wait(60)
    second = threading.Thread(target=lambda: do(cards, "a", lambda: done.append("after")))
    second.start()
    hang.let_go()
    first.join(60)
    second.join(60)
    assert done == ["late", "after"]


def test_who_waits_for_a_call_that_hangs_gives_up_and_marks_the_card(hang: Hang) -> None:
    cards = CardThreads()
    waiting = threading.Thread(target=lambda: do(cards, "a", hang))
    waiting.start()
    assert hang.begun.wait(60)
    with pytest.raises(DeviceHung, match=r"gave no answer|still hangs"):
        do(cards, "a", lambda: 1, 0.2)
    assert list(cards.stuck) == ["a"]
    hang.let_go()
    waiting.join(60)


def test_a_call_that_nobody_waits_for_any_more_is_not_made(hang: Hang) -> None:
    cards, made = CardThreads(), threading.Event()
    waiting = threading.Thread(target=lambda: do(cards, "a", hang))
    waiting.start()
    assert hang.begun.wait(60)
    with pytest.raises(DeviceHung):
        do(cards, "a", made.set, 0.1)
    hang.let_go()
    waiting.join(60)
    eventually(lambda: not threads("a"))
    assert not made.is_set()


def test_without_threads_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = CardThreads()

    def none(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        with pytest.raises(HardwareError, match="no thread to work on card a in"):
            do(cards, "a", lambda: 1)
    assert do(cards, "a", lambda: 1) == 1


@pytest.mark.anyio
async def test_an_event_loop_waits_for_no_card(hang: Hang) -> None:
    cards = CardThreads()
    with pytest.raises(DeviceHung, match="gave no answer"):
        await cards.run_async("a", hang, seconds=0.1, what="programming")
    assert await cards.run_async("b", lambda: 2, seconds=30, what="programming") == 2
    with pytest.raises(ZeroDivisionError):
        await cards.run_async("b", lambda: 1 / 0, seconds=30, what="programming")
    assert list(cards.stuck) == ["a"]
    hang.let_go()
    await eventually_async(lambda: not cards.stuck)


@pytest.mark.anyio
async def test_a_caller_that_is_cancelled_leaves_the_card_in_order(hang: Hang) -> None:
    cards = CardThreads()
    task = asyncio.create_task(cards.run_async("a", hang, seconds=30, what="programming"))
    await eventually_async(hang.begun.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    hang.let_go()
    assert await cards.run_async("a", lambda: 1, seconds=30, what="programming") == 1


@pytest.mark.anyio
async def test_a_hang_whose_caller_was_cancelled_is_one_for_the_next(hang: Hang) -> None:
    cards = CardThreads()
    task = asyncio.create_task(cards.run_async("a", hang, seconds=30, what="programming"))
    await eventually_async(hang.begun.is_set)
    task.cancel()
    await asyncio.wait([task])
    assert not cards.stuck
    with pytest.raises(DeviceHung, match="card a still hangs"):
        await cards.run_async("a", lambda: 1, seconds=0, what="programming")
    assert list(cards.stuck) == ["a"]
    hang.let_go()
    await eventually_async(lambda: not cards.stuck)


class Image:
    """What a call holds, such as a bitstream of 100 MB."""

    def weigh(self) -> int:
        return 1


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["late", "cancelled"])
async def test_a_caller_that_gives_up_leaves_nothing_in_the_queue(hang: Hang, how: str) -> None:
    cards = CardThreads()
    first = asyncio.create_task(cards.run_async("a", hang, seconds=60, what="programming"))
    await eventually_async(hang.begun.is_set)
    alive = await given_up(cards, how)
    await eventually_async(lambda: is_gone(alive), what="the end of what a call held")
    hang.let_go()
    assert await first == "late"


def is_gone(alive: weakref.ref[Image]) -> bool:
    gc.collect()  # an error holds the frames that it went through
    return alive() is None


async def given_up(cards: CardThreads, how: str) -> weakref.ref[Image]:
    """Waits for a call behind another one in vain; what that call held."""
    image = Image()
    seconds = 1 if how == "late" else 60
    waiting = cards.run_async("a", image.weigh, seconds=seconds, what="programming")
    if how == "late":
        with pytest.raises(DeviceHung):
            await waiting
        return weakref.ref(image)
    task = asyncio.create_task(waiting)
    await asyncio.wait([task], timeout=0.01)  # the call is queued in the task's first step
    task.cancel()
    await asyncio.wait([task])
    return weakref.ref(image)
