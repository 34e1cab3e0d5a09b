"""Where a process starts: the command `accelbind`, and `python -m accelbind`."""

import contextlib
import io
import os
import sys

INTERRUPTED = 130
"""As shells report it: 128 and the number of SIGINT."""


def main() -> int:
    """Runs the command line and returns the exit code."""
    _open_missing_descriptors()
    with contextlib.ExitStack() as stack:
        if sys.stdout is None:
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(_nowhere())))
        if sys.stderr is None:
            stack.enter_context(contextlib.redirect_stderr(stack.enter_context(_nowhere())))
        _replace_unknown_letters()
        try:
            # Importing takes a moment, and an interrupt within it should be no traceback either.
            from accelbind.cli import main as run  # noqa: PLC0415
        except KeyboardInterrupt:
            return INTERRUPTED
        return run()


def _open_missing_descriptors() -> None:
    """Opens closed standard streams, so that no file or socket gets their number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)


def _nowhere() -> io.TextIOWrapper:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - closed by the stack


def _replace_unknown_letters() -> None:
    """Prints `?` for what a locale can't encode, such as an arrow in Latin-1."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")
