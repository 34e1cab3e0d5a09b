"""`make test-kernel`: accelbind on Linux's own drivers, in kernels that run as processes."""

import os
import sys
from pathlib import Path

import pytest

from tests.kernel.build import UnavailableError, kernel


def main() -> int:
    """Build the kernel if need be, and run the scenarios."""
    try:
        kernel()
    except UnavailableError as error:
        word = "FAILED" if os.environ.get("REQUIRE_ALL") == "1" else "SKIPPED"
        print(f"{word}: {error}")  # noqa: T201 - a program's output
        return int(word == "FAILED")
    chosen = sys.argv[1:] or ["-n", "2", "--dist", "loadfile"]
    folder = Path(__file__).parent
    return pytest.main(["-o", "python_files=*_scenarios.py", str(folder), *chosen])


if __name__ == "__main__":
    sys.exit(main())
