"""Targets of make, as the documents have people type them, under this Python."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support import REPOSITORY, clean_environment, require

OF_OUR_OWN_RUN = ("MAKE", "MFLAGS", "PYTEST_", "SOAK", "SECONDS", "SEED", "SIMULATOR", "BENCHES")
"""What a `make` that runs the tests hands down to them, and what isn't for those that they run."""


def make_command(*words: str | Path, folder: Path = REPOSITORY, python: str = "") -> list[str]:
    """The command line of `make …` with a Python that is there, instead of one that it sets up.

    `python` is run in the place of this Python.
    """
    chosen = f"PYTHON_IN_VENV={python or sys.executable}"
    quietly = ("--no-print-directory", "-C", str(folder))
    return [require("make"), *quietly, "-o", "setup", chosen, *map(str, words)]


def make_environment() -> dict[str, str]:
    """Our environment without what a `make` around us has put into it."""
    return {
        name: value
        for name, value in clean_environment().items()
        if not name.startswith(OF_OUR_OWN_RUN)
    }


def make(
    *words: str | Path,
    folder: Path = REPOSITORY,
    python: str = "",
    env: Mapping[str, str] | None = None,
) -> str:
    """Run `make …` as `make_command` has it, to its good end; what it said on stdout."""
    done = subprocess.run(
        make_command(*words, folder=folder, python=python),
        env=make_environment() | dict(env or {}),
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def in_the_environment_of_make(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """For a process of `Processes`, whose environment can only be added to: what we emptied."""
    ours = dict.fromkeys((name for name in os.environ if name.startswith(OF_OUR_OWN_RUN)), "")
    return ours | dict(env or {})
