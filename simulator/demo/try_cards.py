"""Creates a folder for each of the demo's nodes: its cards and its bitstreams.

    python -m simulator.demo.try_cards --dir DIR

For containers, where each process of the demo has its own. Nodes that exist stay as they are, since
plugins may be reading them.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from simulator.cards import lay_out
from simulator.demo import cluster
from simulator.demo.cluster import NodePlan
from simulator.demo.suite import install_bitstreams

STAGED = ".root"


def lay_out_node(home: Path, plan: NodePlan) -> bool:
    """Create a node's `root` and `bitstreams`; whether they were missing."""
    if (home / "root").exists():
        return False
    home.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(home / STAGED, ignore_errors=True)
    if plan.bitstreams:
        install_bitstreams(home, plan)
    lay_out(home / STAGED, plan.cards)
    (home / STAGED).rename(home / "root")
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Create what is missing, and print what exists."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.demo.try_cards",
        description="Create the folders of the demo's nodes.",
    )
    parser.add_argument("--dir", type=Path, required=True, help="gets a folder for each node")
    asked = parser.parse_args(arguments)
    for plan in cluster.NODES:
        new = lay_out_node(asked.dir / plan.name, plan)
        sys.stdout.write(
            f"{plan.name}: {len(plan.cards)} x {plan.driver}, mode {plan.mode},"
            f" {len(plan.bitstreams)} bitstreams{'' if new else ' (as they were)'}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
