"""SIGTERM and SIGINT as an event of the event loop."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator

import structlog

log = structlog.get_logger(component="lifecycle")


@contextlib.contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set; the loop must run in the main thread."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def stop_by(number: signal.Signals) -> None:
        if not stop.is_set():
            log.info("stopping", signal=number.name)
        stop.set()
        # A second SIGINT kills the process: KeyboardInterrupt would hit the callback that is
        # running, and uvloop's TLS swallows it. A second SIGTERM has no effect, since its senders
        # follow up with SIGKILL.
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_by, number)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
