import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from services.process.signals import stop_signals


@pytest.mark.parametrize(
    ("run", "number"), [(asyncio.run, signal.SIGTERM), (uvloop.run, signal.SIGINT)]
)
def test_a_signal_sets_the_event_and_handlers_are_gone_afterwards(
    run: Callable[..., Any], number: signal.Signals
) -> None:
    before = signal.getsignal(number)

    async def scenario() -> None:
        with stop_signals() as stop:
            assert not stop.is_set()
            os.kill(os.getpid(), number)
            await asyncio.wait_for(stop.wait(), 60)
            second = signal.getsignal(signal.SIGINT)
            assert second is signal.SIG_DFL, "would raise KeyboardInterrupt in any callback"

    run(scenario())
    assert signal.getsignal(number) in {before, signal.SIG_DFL}
