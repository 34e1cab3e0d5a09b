"""Where a process starts: what `accelbind` and `python -m accelbind` call.

Importing the command line takes a moment; an interrupt within it is no traceback either.
"""

INTERRUPTED = 130
"""As a shell says it: 128 and the number of SIGINT."""


def main() -> int:
    """Runs the command line and gives the exit code."""
    try:
        from accelbind.cli import main as run  # noqa: PLC0415 - see above
    except KeyboardInterrupt:
        return INTERRUPTED
    return run()
