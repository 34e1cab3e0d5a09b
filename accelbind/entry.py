"""Where a process starts: what `accelbind` and `python -m accelbind` call.

Importing the command line takes a moment; an interrupt within it is no traceback either. The plugin
goes a way of its own, since a node waits for it.
"""

import sys
from collections.abc import Sequence

INTERRUPTED = 130
"""As a shell says it: 128 and the number of SIGINT."""


def main() -> int:
    """Runs the command line and gives the exit code."""
    try:
        if asks_for_plugin(sys.argv[1:]):
            from accelbind.plugin_process import main as run  # noqa: PLC0415 - see above
        else:
            from accelbind.cli import main as run  # noqa: PLC0415 - the same
    except KeyboardInterrupt:
        return INTERRUPTED
    return run()


def asks_for_plugin(arguments: Sequence[str]) -> bool:
    """Whether a command line is that of `accelbind plugin`.

    Args:
        arguments: What follows `accelbind`; no option before a command takes a value.
    """
    return next((each for each in arguments if not each.startswith("-")), "") == "plugin"
