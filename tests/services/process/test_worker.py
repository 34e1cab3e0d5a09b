import asyncio
import socket
import threading
import weakref
from collections.abc import Callable

import pytest

from services.process.errors import HardwareError
from services.process.worker import DaemonExecutor, Worker
from tests.support import eventually_async

pytestmark = pytest.mark.anyio


def fail() -> None:
    raise ValueError("no")


async def test_a_call_is_made_in_the_thread_and_its_result_comes_back() -> None:
    worker = Worker("w")
    name = await worker.run(lambda: threading.current_thread().name, seconds=5, what="it")
    assert name == "w"
    worker.close()


async def test_what_a_call_raises_comes_back() -> None:
    worker = Worker("w")
    with pytest.raises(ValueError, match="no"):
        await worker.run(fail, seconds=5, what="it")
    assert await worker.run(lambda: 1, seconds=5, what="it") == 1
    worker.close()


async def test_a_thread_that_the_system_refuses_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    worker = Worker("w")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        with pytest.raises(HardwareError, match="no thread for w: can't start new thread"):
            await worker.run(lambda: 1, seconds=5, what="it")
    assert await worker.run(lambda: 1, seconds=5, what="it") == 1
    worker.close()


class Large:
    """What a call gives, such as a bitstream."""


async def test_nothing_is_held_of_a_call_that_is_done() -> None:
    worker = Worker("w")
    found = await worker.run(Large, seconds=5, what="it")
    alive = weakref.ref(found)
    del found
    await eventually_async(lambda: alive() is None, what="the end of what a call gave")
    worker.close()


async def test_a_time_out_inside_a_call_is_the_calls_own() -> None:
    def slow() -> None:
        raise TimeoutError("inside")

    worker = Worker("w")
    with pytest.raises(TimeoutError, match="inside"):
        await worker.run(slow, seconds=5, what="it")
    worker.close()


async def test_a_call_that_hangs_is_given_up_and_others_are_refused_until_it_returns() -> None:
    release = threading.Event()
    made: list[int] = []
    worker = Worker("w")
    with pytest.raises(HardwareError, match=r"^it hangs: no answer within 0.05 s$"):
        await worker.run(lambda: release.wait(60), seconds=0.05, what="it")
    for _ in range(100):
        with pytest.raises(HardwareError, match=r"^that was not tried, since it hangs: no answer"):
            await worker.run(lambda: made.append(1), seconds=60, what="that")
    with pytest.raises(HardwareError, match=r"^it hangs: no answer within 0.05 s$"):
        await worker.run(lambda: made.append(1), seconds=0.05, what="it")  # to be logged once
    assert worker.waiting == 0
    release.set()
    await made_again(worker, lambda: made.append(2))
    assert made == [2], "a call that nobody waited for any more was made"
    worker.close()


async def made_again(worker: Worker, call: Callable[[], None]) -> None:
    """Until the thread is back, calls are refused."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await worker.run(call, seconds=60, what="it")
            except HardwareError:
                await asyncio.sleep(0.01)  # polled until the deadline above


async def test_a_caller_that_gives_up_leaves_nothing_in_the_queue() -> None:
    release, began = threading.Event(), threading.Event()
    made: list[int] = []
    worker = Worker("w")

    def slow() -> None:
        began.set()
        release.wait(60)

    first = asyncio.create_task(worker.run(slow, seconds=60, what="it"))
    await asyncio.to_thread(began.wait, 60)
    with pytest.raises(HardwareError, match="that hangs: no answer"):
        await worker.run(lambda: made.append(1), seconds=0.01, what="that")
    assert worker.waiting == 0
    waiting = [
        asyncio.create_task(worker.run(lambda: made.append(2), seconds=60, what="it"))
        for _ in range(50)
    ]
    await eventually_async(lambda: worker.waiting == 50, what="calls that are queued")
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert worker.waiting == 0
    # The call in hand is slow, and its caller waits for it: that is no hang.
    second = asyncio.create_task(worker.run(lambda: made.append(3), seconds=60, what="it"))
    await eventually_async(lambda: worker.waiting == 1, what="a call that is queued")
    release.set()
    await asyncio.gather(first, second)
    assert made == [3]
    worker.close()


async def test_a_hang_whose_caller_was_cancelled_is_one_once_another_waits_in_vain() -> None:
    release, began = threading.Event(), threading.Event()
    worker = Worker("w")

    def hang() -> None:
        began.set()
        release.wait(60)

    task = asyncio.create_task(worker.run(hang, seconds=60, what="it"))
    await asyncio.to_thread(began.wait, 60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    with pytest.raises(HardwareError, match="that hangs: no answer"):
        await worker.run(lambda: None, seconds=0.01, what="that")
    with pytest.raises(HardwareError, match="that was not tried"):
        await worker.run(lambda: None, seconds=60, what="that")
    release.set()
    await made_again(worker, lambda: None)
    worker.close()


async def test_the_thread_does_not_keep_the_process() -> None:
    worker = Worker("only-daemon")
    await worker.run(lambda: None, seconds=5, what="it")
    threads = [each for each in threading.enumerate() if each.name == "only-daemon"]
    assert [each.daemon for each in threads] == [True]
    worker.close()
    await asyncio.to_thread(threads[0].join, 5)
    assert not threads[0].is_alive()


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
