"""`accelbind plugin` for simulated cards: the same command, with the stand-in's ioctls injected.

    python -m simulator.run_plugin --root DIR --mode region …

The flags are those of `accelbind plugin`. Cards below `--root` are programmed by the stand-in for
their driver (`simulator.driver`), if one runs there.
"""

import sys
from collections.abc import Sequence

from accelbind.cli import main as accelbind
from simulator.driver import SimulatedCalls


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a node with simulated cards; the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    return accelbind(["plugin", *given], driver_calls=SimulatedCalls())


if __name__ == "__main__":
    sys.exit(main())
