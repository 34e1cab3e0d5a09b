"""The page of the dashboard has each panel, and the dashboard asks for metrics that there are."""

import json
import re
from typing import Any

import pytest

from tests.support import REPOSITORY
from tools.docs import dashboard, metrics

BOARD = REPOSITORY / "manifests" / "components" / "monitoring" / "dashboard.json"
PANELS = [each for each in json.loads(BOARD.read_text())["panels"] if each["type"] != "row"]
SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_panel_is_shown_with_its_question_and_its_queries(panel: dict[str, Any]) -> None:
    page = (REPOSITORY / dashboard.PATH).read_text()
    section = page.partition(f"### {panel['title']}\n")[2].partition("###")[0]
    assert panel["description"]
    assert panel["description"] in section
    assert panel["targets"]
    assert [one["expr"] for one in panel["targets"] if one["expr"] not in section] == []


def test_every_metric_of_a_query_is_one_of_the_code() -> None:
    known = {
        f"{each.name}{suffix}"
        for make in metrics.PROCESSES.values()
        for each in metrics.shown(make())
        for suffix in SUFFIXES[each.kind]
    }
    queries = [one["expr"] for panel in PANELS for one in panel["targets"]]
    asked = set(re.findall(r"accelbind_\w+", " ".join(queries)))
    assert len(asked) > 10
    assert asked - known == set()
