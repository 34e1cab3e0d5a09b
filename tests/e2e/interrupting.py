"""Signals: the first one ends a run, and none breaks off its cleaning up, which has deadlines."""

import os
import signal
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_on_signals() -> None:
    """Have the first signal raise KeyboardInterrupt, as Ctrl-C does, and later ones do nothing."""
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def let_nobody_interrupt() -> None:
    """Have signals do nothing, but say so."""
    for number in SIGNALS:
        signal.signal(number, _tell)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    let_nobody_interrupt()
    raise KeyboardInterrupt


def _tell(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"cleaning up: this ends by itself\n")  # pytest may be replacing sys.stderr now
