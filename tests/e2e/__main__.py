"""`python -m tests.e2e`, which `make e2e` runs: the suite against a cluster (`settings.HELP`)."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e import settings
from tests.e2e.interrupting import end_on_signals
from tests.e2e.simulator import simulated
from tests.support import REPOSITORY

PARTS = (
    "definitions",
    "admission",
    "running",
    "dra",
    "names",
    "allocation",
    "generic",
    "modes",
    "types",
    "webhook",
    "kubelet",
    "doctor",
    "fleet",
)


def run(more: Sequence[str]) -> int:
    settings.read()
    files = [str(Path(__file__).parent / "suite" / f"{part}.py") for part in PARTS]
    usual = ["--timeout=0", "-p", "no:cacheprovider", "--tb=short", "-v"]
    usual += ["-o", "filterwarnings=default"]  # a stranger's cluster is no place for gates
    os.environ.pop("REQUIRE_ALL", None)  # what a cluster lacks is skipped, with the reason
    end_on_signals()
    return int(pytest.main([*usual, *more, *files]))


def main(arguments: Sequence[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        print(settings.HELP)  # noqa: T201 - what is asked for
        return 0
    more = [*arguments, *shlex.split(os.environ.get("PYTEST_ARGS", ""))]
    os.chdir(REPOSITORY)
    try:
        if os.environ.get("SIMULATOR") == "1":
            with simulated() as simulator:
                os.environ.update(simulator.environment())
                return run(more)
        return run(more)
    except settings.WrongSetting as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
