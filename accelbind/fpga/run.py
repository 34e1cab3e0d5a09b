"""How `accelbind fpga` does what may hang: in time, shown on a terminal, with exit codes."""

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
"""Beside those of all commands: a script waits for a busy device, and gives up on a hung one."""


@contextmanager
def exit_codes() -> Iterator[None]:
    """Gives an error the code of its trouble, if it is one that scripts tell apart."""
    try:
        yield
    except HardwareError as error:
        code = next((code for kind, code in EXIT_CODES if isinstance(error, kind)), None)
        if code is None:
            raise
        raise CodedError(str(error), code) from error


def in_time(device: str, call: Callable[[], T], seconds: float) -> T:
    """What a call gives, unless it takes too long: then its thread is left behind.

    Raises:
        DeviceHung: It took too long.
    """
    return BlockingCalls().run_sync(device, call, timeout=seconds, what=f"working on {device}")


@contextmanager
def shown(port: str, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Shows on a terminal what is being done, and for how long; nothing anywhere else.

    Args:
        port: What is worked on.
        quiet: Whether to show nothing on a terminal either.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - on a terminal only
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - the same

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        # The drivers don't tell how far they are: the bar moves, and the clock runs.
        task = progress.add_task(port, total=None)
        yield lambda stage: progress.update(task, description=f"{port}: {stage}")
