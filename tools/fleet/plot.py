"""Requests per second over the time of each scene, as SVG."""

from collections.abc import Sequence

from tools.fleet.scenes import Report

WIDTH, HEIGHT, GAP = 720, 90, 34
MARGIN = 60


def plot(reports: Sequence[Report]) -> str:
    """A curve per scene, each with its own scale."""
    height = (HEIGHT + GAP) * len(reports) + GAP
    frame = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 2 * MARGIN} {height}"'
        ' font-family="sans-serif" font-size="12" role="img">'
    )
    parts = [
        frame,
        "<title>Requests per second of a fleet</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for number, report in enumerate(reports):
        parts += _curve(report, GAP + number * (HEIGHT + GAP))
    return "\n".join([*parts, "</svg>", ""])


def _curve(report: Report, top: int) -> list[str]:
    values = report.by_second or [0]
    most, last = max(*values, 1), max(len(values) - 1, 1)
    points = " ".join(
        f"{MARGIN + WIDTH * second / last:.1f},{top + HEIGHT * (1 - value / most):.1f}"
        for second, value in enumerate(values)
    )
    bottom = top + HEIGHT
    return [
        f'<text x="{MARGIN}" y="{top - 6}">{report.name}: {report.seconds} s</text>',
        f'<text x="{MARGIN - 6}" y="{top + 10}" text-anchor="end">{most}</text>',
        f'<text x="{MARGIN - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<line x1="{MARGIN}" y1="{bottom}" x2="{MARGIN + WIDTH}" y2="{bottom}" stroke="#888"/>',
        f'<polyline points="{points}" fill="none" stroke="#0550ae" stroke-width="1.2"/>',
    ]
