"""When to stop: signals as an event of the loop."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator

import structlog

log = structlog.get_logger(room="lifecycle")


@contextlib.contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set; the loop must run in the main thread.

    A second SIGINT kills the process at once, as the kernel does it: an exception would hit
    whatever callback runs just then, and uvloop's TLS swallows it. A second SIGTERM changes
    nothing, since whoever sends those ends with SIGKILL.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def stop_by(number: signal.Signals) -> None:
        if not stop.is_set():
            log.info("stopping", signal=number.name)
        stop.set()
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
