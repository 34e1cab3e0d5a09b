"""`docs/dashboards.md`: the panels of the dashboard and their queries."""

import json
from pathlib import Path
from typing import Any, Final

from tools.docs.texts import cell

BOARD: Final = (
    Path(__file__).parents[2] / "manifests" / "components" / "monitoring" / "dashboard.json"
)
PATH: Final = "docs/dashboards.md"

_HEAD: Final = """\
<!-- Generated from manifests/components/monitoring/dashboard.json by `make docs`. -->

# Dashboard

The component `monitoring` installs this dashboard as a ConfigMap for Grafana's sidecar. This
page lists the question and the queries of each panel. `$node` is the selection of nodes. The
[reference](reference.md#metrics) explains the metrics.
"""


def page() -> str:
    """Return the whole page."""
    panels: list[dict[str, Any]] = json.loads(BOARD.read_text(encoding="utf-8"))["panels"]
    return "\n".join([_HEAD, *map(_section, panels)])


def _section(panel: dict[str, Any]) -> str:
    if panel["type"] == "row":
        return f"## {panel['title']}\n"
    asked = "\n".join(target["expr"] for target in panel["targets"])
    return f"### {cell(panel['title'])}\n\n{panel['description']}\n\n```promql\n{asked}\n```\n"
