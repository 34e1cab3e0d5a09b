"""`make bench`: everything the README's figures come from, in one run."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from benchmarks import admission, scan, serving, sync
from benchmarks.measure import machine

BENCHES = {
    "Admission: bytes to bytes, without TLS and HTTP": (admission.HEADINGS, admission.rows),
    "Serving: admissions over TLS, against fixed bytes": (serving.HEADINGS, serving.rows),
    "Mappings: an API server's, in one namespace and in many": (sync.HEADINGS, sync.rows),
    "Scan: sysfs to cards; tree: cards to resources": (scan.HEADINGS, scan.rows),
}


def main() -> None:
    """Runs all benches and prints a table each."""
    console = Console(width=100, highlight=False)
    console.print(f"accelbind benchmarks · {machine()}")
    for title, (headings, rows) in BENCHES.items():
        console.print(_table(title, headings, rows()))


def _table(title: str, headings: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == headings[0] else "right")
    for row in rows:
        table.add_row(*row)
    return table


if __name__ == "__main__":
    main()
