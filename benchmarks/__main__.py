"""`make bench`: everything the README's figures come from, in one run.

`python -m benchmarks serving sync` runs some of them, by the names in `BENCHES`; `serving` also
draws `docs/pictures/admission-cost.svg`, or what `--plot` names.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import admission, plot, plugin, scan, serving, sync, webhook
from benchmarks.measure import machine

BENCHES = {
    "admission": ("Admission: bytes to bytes, without TLS and HTTP", admission),
    "serving": ("Serving: admissions over TLS, against fixed bytes", serving),
    "sync": ("Mappings: an API server's, in one namespace and in many", sync),
    "webhook": ("Webhook: the process, following an API server", webhook),
    "plugin": ("Plugin: the process, against a kubelet", plugin),
    "scan": ("Scan: sysfs to cards; tree: cards to resources", scan),
}
"""By name: a title, and a module with `HEADINGS` and `rows`."""


def main(chosen: Sequence[str] = (), *, data: Path | None = None) -> None:
    """Runs benches and prints a table each.

    Args:
        chosen: names of some; all if empty.
        data: where to keep the figures of `serving`, with a plot of them beside; None: nowhere.
    """
    if unknown := set(chosen) - set(BENCHES):
        raise SystemExit(f"no bench is called {', '.join(unknown)}: choose of {', '.join(BENCHES)}")
    console = Console(width=120, highlight=False)
    console.print(f"accelbind benchmarks · {machine()}")
    for name in chosen or BENCHES:
        title, bench = BENCHES[name]
        load = os.getloadavg()[0]
        console.print(f"load {load:.1f} before the next")
        costs: list[serving.Cost] = []
        rows = bench.rows(costs.append) if bench is serving else bench.rows()
        console.print(_table(title, bench.HEADINGS, rows))
        if costs and data is not None:
            drawn = plot.write(data, costs, machine=machine(), load=load)
            console.print(f"plot: {drawn}")


def _table(title: str, headings: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == headings[0] else "right")
    for row in rows:
        table.add_row(*row)
    return table


def _command_line(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("bench", nargs="*", help=f"of {', '.join(BENCHES)} (default: all)")
    parser.add_argument(
        "--plot",
        type=Path,
        default=plot.DATA.with_suffix(".svg"),
        metavar="FILE.svg",
        help="where serving's plot goes, beside a JSON file of its figures (default: %(default)s)",
    )
    parser.add_argument("--no-plot", action="store_true", help="print tables only")
    chosen = parser.parse_args(arguments)
    main(chosen.bench, data=None if chosen.no_plot else chosen.plot.with_suffix(".json"))


if __name__ == "__main__":
    _command_line(sys.argv[1:])
