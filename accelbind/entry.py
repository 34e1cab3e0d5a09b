"""Where a process starts: what `accelbind` and `python -m accelbind` call.

Importing the command line takes a moment; an interrupt within it is no traceback either. The plugin
goes a way of its own, since a node waits for it.
"""

import io
import os
import sys
from collections.abc import Sequence

INTERRUPTED = 130
"""As a shell says it: 128 and the number of SIGINT."""


def main() -> int:
    """Runs the command line and gives the exit code."""
    _open_streams()
    _spare_letters()
    try:
        if asks_for_plugin(sys.argv[1:]):
            from accelbind.plugin_process import main as run  # noqa: PLC0415 - see above
        else:
            from accelbind.cli import main as run  # noqa: PLC0415 - the same
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


def asks_for_plugin(arguments: Sequence[str]) -> bool:
    """Whether a command line is that of `accelbind plugin`.

    Args:
        arguments: What follows `accelbind`; no option before a command takes a value.
    """
    return next((each for each in arguments if not each.startswith("-")), "") == "plugin"
