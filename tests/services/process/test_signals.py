import asyncio
import os
import signal
import subprocess
import sys

from services.process.signals import stop_signals


def test_a_signal_sets_the_event_and_handlers_are_gone_afterwards() -> None:
    number = signal.SIGTERM
    before = signal.getsignal(number)

    async def scenario() -> bool:
        with stop_signals() as stop:
            assert not stop.is_set()
            os.kill(os.getpid(), number)
            await asyncio.wait_for(stop.wait(), 60)
            return stop.is_set()

    assert asyncio.run(scenario())
    assert signal.getsignal(signal.SIGTERM) in {before, signal.SIG_DFL}


TWICE = """
import asyncio, os, signal
import uvloop
from services.process.signals import stop_signals

def swallow():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass  # where Python would raise KeyboardInterrupt
    except BaseException:
        print("swallowed")

async def main():
    with stop_signals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        await stop.wait()
        asyncio.get_running_loop().call_soon(swallow)
        await asyncio.Event().wait()

uvloop.run(main())
"""


def test_a_second_sigint_ends_the_process_whatever_runs_just_then() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", TWICE],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -signal.SIGINT, ended.stderr
    assert "swallowed" not in ended.stdout
