"""How `accelbind fpga` makes calls that may hang: in time, with progress and exit codes."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from accelbind.cli import CodedError
from accelbind.exits import Exit
from services.process.blocking import BlockingCalls
from services.process.errors import DeviceBusy, DeviceGone, DeviceHung, HardwareError

T = TypeVar("T")

EXIT_CODES: Final[tuple[tuple[type[HardwareError], int], ...]] = (
    (DeviceBusy, Exit.BUSY),
    (DeviceGone, Exit.GONE),
    (DeviceHung, Exit.HUNG),
)
"""Scripts wait for a busy device, and give up on a hung one."""


@contextmanager
def exit_codes() -> Iterator[None]:
    """Gives errors of `EXIT_CODES` their exit code."""
    try:
        yield
    except HardwareError as error:
        code = next((code for kind, code in EXIT_CODES if isinstance(error, kind)), None)
        if code is None:
            raise
        raise CodedError(str(error), code) from error


def in_time(device: str, call: Callable[[], T], seconds: float) -> T:
    """The result of a call; if it takes too long, its thread is abandoned.

    Raises:
        DeviceHung: It took too long.
    """
    return BlockingCalls().run_sync(device, call, timeout=seconds, what=f"working on {device}")


@contextmanager
def progress(port: str, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Shows the stage of work and its duration, on a terminal and unless `quiet`."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - on a terminal only
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - the same

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(port, total=None)  # drivers don't report how far they are
        yield lambda stage: bar.update(task, description=f"{port}: {stage}")
