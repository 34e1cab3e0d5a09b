"""Where a process starts: the command `accelbind`, and `python -m accelbind`."""

import io
import sys


def main() -> int:
    """Run the command line and return the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # A locale that can't encode a character gets `?`, not a traceback.
        sys.stdout.reconfigure(errors="replace")
    try:
        # Importing takes a moment, and an interrupt within it should be no traceback either.
        from accelbind.cli import main as run  # noqa: PLC0415
    except KeyboardInterrupt:
        return 130  # as `Exit.INTERRUPTED`, which may not be imported yet
    return run()


if __name__ == "__main__":
    sys.exit(main())
