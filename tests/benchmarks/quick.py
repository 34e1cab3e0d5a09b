"""The benches with so little of everything that they take seconds: to see that they run.

    python tests/benchmarks/quick.py -m benchmarks NAME…

stands in for a Python: `make bench` runs with it, in the folder in which it is started.
"""

import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

Reduced = tuple[ModuleType, str, Any]


def reduced() -> list[Reduced]:
    """Which number of which module is how small."""
    from benchmarks import (  # noqa: PLC0415 - those of the folder in which this is started
        admission,
        measure,
        plugin,
        scan,
        serving,
        sync,
    )

    return [
        (measure, "ROUND_SECONDS", 1e-5),
        (measure, "ROUNDS", 3),
        (admission, "MANY", 20),
        (scan, "COUNTS", (1, 3)),
        (serving, "MANY", ((20, 2),)),
        *((serving, name, 2) for name in ("ROUNDS", "LATE_ROUNDS", "CONNECTIONS", "DIFFERENT")),
        (serving, "REQUESTS", 3),
        (serving, "STRANGERS", 2),
        (sync, "NUMBER", 2000),
        (sync, "CHANGES", 10),
        *((plugin, name, 2) for name in ("CARDS", "EVENTS")),
        *((plugin, name, 1) for name in ("STARTS", "RESTARTS")),
        (plugin, "CALLS", 10),
        (plugin, "IDLE_SECONDS", 0.2),
    ]


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    _script, _flag, module, *arguments = sys.argv
    for room, name, value in reduced():
        setattr(room, name, value)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
