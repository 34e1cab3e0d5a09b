"""How `accelbind fpga` makes calls that may hang: in time, and with progress."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from services.process.blocking import BlockingCalls

T = TypeVar("T")


def in_time(device: str, call: Callable[[], T], seconds: float) -> T:
    """The result of a call; if it takes too long, its thread is abandoned."""
    return BlockingCalls().run_sync(device, call, timeout=seconds, what=f"working on {device}")


@contextmanager
def progress(port: str, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Shows the stage of work and its duration, on a terminal and unless `quiet`."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    disabled = quiet or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=disabled) as bar:
        task = bar.add_task(port, total=None)  # drivers don't report how far they are
        yield lambda stage: bar.update(task, description=f"{port}: {stage}")
