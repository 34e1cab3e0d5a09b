"""Targets of make, as the documents have people type them, under this Python."""

import os
import subprocess
import sys
from collections.abc import Mapping

from tests.support import REPOSITORY, clean_environment, require

OF_OUR_OWN_RUN = ("MAKE", "MFLAGS", "PYTEST_", "SOAK", "SECONDS", "SEED", "SIMULATOR", "BENCHES")
"""What a `make` that runs the tests hands down to them, and what isn't for those that they run."""


def make_command(*words: str) -> list[str]:
    """The command line of `make …` with this Python, instead of one that it sets up."""
    quietly = ("--no-print-directory", "-C", str(REPOSITORY))
    return [require("make"), *quietly, "-o", "setup", f"PYTHON_IN_VENV={sys.executable}", *words]


def make(*words: str, env: Mapping[str, str]) -> str:
    """Run `make …` as `make_command` has it, to its good end; what it said on stdout."""
    ours = clean_environment().items()
    without = {name: value for name, value in ours if not name.startswith(OF_OUR_OWN_RUN)}
    done = subprocess.run(
        make_command(*words),
        env=without | dict(env),
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def in_the_environment_of_make(**env: str) -> dict[str, str]:
    """For a process of `Processes`, whose environment can only be added to: what we emptied."""
    return dict.fromkeys((each for each in os.environ if each.startswith(OF_OUR_OWN_RUN)), "") | env
