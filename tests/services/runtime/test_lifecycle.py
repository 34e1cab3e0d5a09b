import asyncio
import os
import signal

import pytest

from services.runtime.lifecycle import stop_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_event_and_handlers_are_gone_afterwards(number: signal.Signals) -> None:
    before = signal.getsignal(number)

    async def scenario() -> bool:
        with stop_signals() as stop:
            assert not stop.is_set()
            os.kill(os.getpid(), number)
            await asyncio.wait_for(stop.wait(), 60)
            return stop.is_set()

    assert asyncio.run(scenario())
    assert signal.getsignal(signal.SIGTERM) in {before, signal.SIG_DFL}


def test_a_second_sigterm_changes_nothing() -> None:
    async def scenario() -> bool:
        with stop_signals() as stop:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.wait_for(stop.wait(), 60)
            return stop.is_set()

    assert asyncio.run(scenario())


def test_a_second_sigint_interrupts_at_once() -> None:
    async def scenario() -> None:
        with stop_signals() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.wait_for(stop.wait(), 60)
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.wait_for(asyncio.Event().wait(), 60)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(scenario())
