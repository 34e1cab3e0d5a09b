"""`make bench`: the measurements of docs/performance.md.

`python -m tools.bench serving webhook` runs only these two of `BENCHES`.
"""

import os
import sys
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from tools.bench import admission, hostile, plugin, scan, serving, webhook
from tools.bench.measure import machine

BENCHES = {
    "admission": ("Admission: bytes to bytes, without TLS and HTTP", admission),
    "hostile": ("Hostile pods of 1 MiB: bytes to bytes", hostile),
    "serving": ("Serving: admissions over TLS, against fixed bytes", serving),
    "webhook": ("Webhook: the process, and mappings of an API server", webhook),
    "plugin": ("Plugin: the process, against a kubelet", plugin),
    "scan": ("Scan: sysfs to cards and devices", scan),
}
"""Name → title, and module with `HEADINGS` and `rows`."""


def main(chosen: Sequence[str] = ()) -> None:
    """Run the chosen benches, or all, and print one table per bench."""
    if unknown := set(chosen) - set(BENCHES):
        raise SystemExit(
            f"no bench is called {', '.join(unknown)}: choose from {', '.join(BENCHES)}"
        )
    console = Console(width=120, highlight=False)
    console.print(f"accelbind benchmarks · {machine()}")
    for name in chosen or BENCHES:
        title, bench = BENCHES[name]
        console.print(f"load before the next table: {os.getloadavg()[0]:.1f}")
        console.print(_table(title, bench.HEADINGS, bench.rows()))


def _table(title: str, headings: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == headings[0] else "right")
    for row in rows:
        table.add_row(*row)
    return table


if __name__ == "__main__":
    main(sys.argv[1:])
