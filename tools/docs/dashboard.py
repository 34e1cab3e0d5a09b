"""`docs/dashboards.md`: the dashboard's panels, and the questions that they answer."""

import json
from pathlib import Path
from typing import Any, Final

from tools.docs.texts import cell

BOARD: Final = (
    Path(__file__).parents[2] / "manifests" / "components" / "monitoring" / "dashboard.json"
)
PATH: Final = "docs/dashboards.md"

_HEAD: Final = """\
# The dashboard

The panels of `manifests/components/monitoring/dashboard.json`, which
`manifests/overlays/monitoring` puts where Grafana's sidecar finds it: what each of them answers,
and its queries. `$node` is the dashboard's choice of nodes. The metrics are those of the
[reference](reference.md#metrics).
"""


def page() -> str:
    """The whole page."""
    panels: list[dict[str, Any]] = json.loads(BOARD.read_text(encoding="utf-8"))["panels"]
    return "\n".join([_HEAD, *map(_section, panels)])


def _section(panel: dict[str, Any]) -> str:
    if panel["type"] == "row":
        return f"## {panel['title']}\n"
    asked = "\n".join(target["expr"] for target in panel["targets"])
    return f"### {cell(panel['title'])}\n\n{panel['description']}\n\n```promql\n{asked}\n```\n"
