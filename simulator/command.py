"""`accelbind` for simulated cards: the same command line, with the stand-in's ioctls injected.

    python -m simulator.command plugin --root DIR --mode region …
    python -m simulator.command fpga program dfl-port.0 FILE --root DIR

Cards below `--root` are programmed by the stand-in for their driver (`simulator.driver`), if one
runs there.
"""

import sys
from collections.abc import Sequence

from accelbind.cli import main as accelbind
from simulator.driver import SimulatedCalls


def main(arguments: Sequence[str] | None = None) -> int:
    return accelbind(arguments, driver_calls=SimulatedCalls())


if __name__ == "__main__":
    sys.exit(main())
