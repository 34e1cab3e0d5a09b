"""Where a process starts: the command `accelbind`, and `python -m accelbind`."""

import io
import os
import sys

from accelbind.exits import Exit


def main() -> int:
    """Run the command line and return the exit code."""
    _open_missing_descriptors()
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")  # prints `?` for what a locale can't encode
    try:
        # Importing takes a moment, and an interrupt within it should be no traceback either.
        from accelbind.cli import main as run  # noqa: PLC0415
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return run()


def _open_missing_descriptors() -> None:
    """Open closed standard streams, so that no file or socket gets their number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)


def _nowhere() -> io.TextIOWrapper:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - open until the exit
