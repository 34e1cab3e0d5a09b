import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

import pytest

from services.process.blocking import BlockingCalls, Call, DaemonExecutor
from services.process.errors import DeviceHung, HardwareError
from tests.support import eventually, eventually_async

BEGUN = 0.5
"""A time-out in seconds by which the thread of a call has begun, also on a busy machine."""
HANGS = r"^it hangs: no answer within 0.5 s$"
REFUSED = r"^that was not tried, since it hangs: no answer within 0.5 s$"


class Hang:
    """A call that hangs until it is released."""

    def __init__(self) -> None:
        self.started, self._over = threading.Event(), threading.Event()
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        self.started.set()
        self._over.wait(60)
        return "late"

    def release(self) -> None:
        self._over.set()


@pytest.fixture
def hang() -> Iterator[Hang]:
    hanging = Hang()
    yield hanging
    hanging.release()


@pytest.fixture
def calls() -> Iterator[BlockingCalls]:
    """Calls of which no thread is left after the test."""
    made = BlockingCalls()
    yield made
    eventually(lambda: not made.busy)


async def run(
    calls: BlockingCalls, call: Callable[[], Any], *, key: str = "a", **options: Any
) -> Any:
    return await calls.run(key, call, **{"timeout": 60, "what": "it", **options})


def raise_(error: BaseException) -> NoReturn:
    raise error


async def test_a_call_runs_in_a_daemon_thread_of_its_key_which_ends(calls: BlockingCalls) -> None:
    thread = await run(calls, threading.current_thread, key="only", timeout=1e300)
    assert isinstance(thread, threading.Thread)
    assert (thread.name, thread.daemon) == ("only", True)
    await asyncio.to_thread(thread.join, 60)
    assert not thread.is_alive()
    assert (calls.busy, calls.abandoned) == (frozenset(), {})


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("mine"), DeviceHung("inner")])
async def test_the_error_of_a_call_is_raised_to_its_caller(
    calls: BlockingCalls, error: Exception
) -> None:
    with pytest.raises(type(error), match=f"^{error}$"):
        await run(calls, partial(raise_, error))
    assert await run(calls, lambda: 1) == 1
    assert calls.abandoned == {}


async def test_a_key_that_hangs_refuses_calls_at_once_until_it_answers(
    calls: BlockingCalls, hang: Hang
) -> None:
    made: list[int] = []
    with pytest.raises(DeviceHung, match=HANGS):
        await run(calls, hang, timeout=BEGUN)
    assert list(calls.abandoned) == ["a"]
    with pytest.raises(DeviceHung, match=REFUSED):
        await run(calls, lambda: made.append(1), what="that")
    with pytest.raises(DeviceHung, match=HANGS):  # the same sentence, to be logged once
        await run(calls, lambda: made.append(1), timeout=BEGUN)
    assert await run(calls, lambda: 2, key="b") == 2
    assert calls.busy >= {"a"}
    hang.release()
    await eventually_async(lambda: not calls.abandoned)
    assert await run(calls, lambda: 3) == 3
    assert made == []


async def test_a_slow_call_whose_caller_waits_is_no_hang(calls: BlockingCalls, hang: Hang) -> None:
    made: list[int] = []
    first = asyncio.create_task(run(calls, hang))
    await eventually_async(hang.started.is_set)
    with pytest.raises(DeviceHung, match=r"^that hangs: no answer"):
        await run(calls, lambda: made.append(1), timeout=0.01, what="that")
    assert calls.abandoned == {}
    hang.release()
    assert await first == "late"
    assert await run(calls, lambda: made) == []


async def test_a_hang_whose_caller_was_cancelled_is_one_once_another_waits_in_vain(
    calls: BlockingCalls, hang: Hang
) -> None:
    task = asyncio.create_task(run(calls, hang, timeout=0.05 + 60))
    await eventually_async(hang.started.is_set)
    task.cancel()
    await asyncio.wait([task])
    assert calls.abandoned == {}
    with pytest.raises(DeviceHung, match=r"^that (hangs|was not tried)"):
        await run(calls, lambda: None, timeout=0.01, what="that")
    assert list(calls.abandoned) == ["a"]
    with pytest.raises(DeviceHung, match="that was not tried"):
        await run(calls, lambda: None, what="that")
    hang.release()
    await eventually_async(lambda: not calls.abandoned)


# Many calls


def answer(text: str) -> Callable[[], str]:
    return lambda: text


def no_thread(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


async def each(
    calls: BlockingCalls,
    wanted: Mapping[str, Callable[[], str]],
    timeout: float = BEGUN,  # noqa: ASYNC109 - that of a call
) -> dict[str, str]:
    """What each call came to."""
    made = [Call(key, key, call) for key, call in wanted.items()]
    found = await calls.run_each(made, timeout=timeout)
    return {key: str(result) for key, result in zip(wanted, found, strict=True)}


async def test_of_many_calls_some_hang_and_all_others_are_made(calls: BlockingCalls) -> None:
    hangs = {f"h{number}": Hang() for number in range(3)}
    wanted: dict[str, Callable[[], str]] = {}
    for key, hang in hangs.items():
        wanted |= {key: hang, f"good{key}": answer(key)}
    hung = {key: f"{key} hangs: no answer within 0.5 s" for key in hangs}
    outcomes = {key: hung.get(key, key.removeprefix("good")) for key in wanted}
    seconds = []
    for _ in range(2):
        began = time.monotonic()
        assert await each(calls, wanted) == outcomes
        seconds.append(time.monotonic() - began)
        assert calls.abandoned.keys() == hangs.keys()
    assert seconds[0] < len(hangs) * BEGUN, "they are waited for together"
    assert seconds[1] < BEGUN, "a call that hangs on is not waited for"
    assert [hang.count for hang in hangs.values()] == [1] * 3, "a hanging call was made again"
    for hang in hangs.values():
        hang.release()
    await eventually_async(lambda: not calls.busy)
    assert await each(calls, wanted) == outcomes | dict.fromkeys(hangs, "late")


async def test_a_call_of_many_that_fails_otherwise_is_an_error(calls: BlockingCalls) -> None:
    with pytest.raises(ValueError, match="no"):
        await each(calls, {"a": partial(raise_, ValueError("no")), "b": answer("B")})


async def test_calls_are_made_in_turn_while_none_is_slow(calls: BlockingCalls) -> None:
    at_once = await each(calls, dict.fromkeys("abcdef", lambda: str(len(calls.busy))), timeout=60)
    assert max(map(int, at_once.values())) <= 2, "the thread before may be about to end"


async def test_calls_for_which_no_thread_is_left_are_refused() -> None:
    calls, hang = BlockingCalls(max_threads=2), Hang()
    outcomes = await each(calls, dict.fromkeys("abc", hang))
    assert outcomes["c"] == "c was not tried: 2 other calls run already"
    assert (await each(calls, {"x": answer("X")}))["x"].startswith("x was not tried: ")
    hang.release()
    await eventually_async(lambda: not calls.busy)
    assert await each(calls, {"x": answer("X")}) == {"x": "X"}


async def test_a_system_without_any_thread_is_an_error(
    calls: BlockingCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(HardwareError, match=r"^no thread for it: can't start"):
        await run(calls, answer("A"))
    assert (await each(calls, {"a": answer("A")}))["a"].startswith("no thread for a: can't start")


# The event loop's executor


async def test_an_event_loop_looks_up_names_in_threads_that_keep_nobody() -> None:
    loop = asyncio.get_running_loop()
    executor = DaemonExecutor()
    daemon = await loop.run_in_executor(executor, lambda: threading.current_thread().daemon)
    assert daemon
    with pytest.raises(socket.gaierror):
        await loop.run_in_executor(executor, lambda: socket.getaddrinfo("", None))
    release = threading.Event()
    hanging = loop.run_in_executor(executor, lambda: release.wait(30))
    executor.shutdown()
    assert not hanging.done()
    release.set()
    assert await hanging
