"""Where a process starts: what `accelbind` and `python -m accelbind` call.

Importing the command line takes a moment; an interrupt within it is no traceback either.
"""

import io
import os
import sys

INTERRUPTED = 130
"""As a shell says it: 128 and the number of SIGINT."""


def main() -> int:
    """Runs the command line and gives the exit code."""
    _open_streams()
    _spare_letters()
    try:
        from accelbind.cli import main as run  # noqa: PLC0415 - see above
    except KeyboardInterrupt:
        return INTERRUPTED
    return run()


def _open_streams() -> None:
    """Has closed ones lead nowhere: Python has none then, and files would get their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _spare_letters() -> None:
    """Has what a locale can't spell (an arrow, in Latin-1) become `?`: it is no mistake."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")
