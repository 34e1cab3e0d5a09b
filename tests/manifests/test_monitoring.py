"""Alerts and the dashboard ask for metrics that the processes have, and say what to do."""

import json
import re
from collections.abc import Iterator

from tests.manifests.rendering import MANIFESTS, Json, of_kind, rendered
from tools.docs import metrics

FOLDER = MANIFESTS / "components" / "monitoring"
OTHERS = {
    "up",
    "apiserver_admission_webhook_rejection_count",
    "apiserver_admission_webhook_fail_open_count",
}
"""Prometheus' own and the API server's (kubernetes.io/docs/reference/instrumentation/metrics)."""
OF_TARGETS = {"job", "instance", "pod", "namespace", "node", "container", "endpoint", "service"}
"""Labels that the Prometheus operator gives to targets: they win over those of a process."""
SUFFIXES = {"counter": ("",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
NAME = r"\b(?:accelbind|apiserver)_[a-z_]+|\bup\b"
SELECTED = re.compile(rf"({NAME})(?:\{{([^}}]*)\}})?")


def rules() -> list[Json]:
    found = of_kind(rendered("overlays/monitoring"), "PrometheusRule")
    return [each for rule in found for group in rule["spec"]["groups"] for each in group["rules"]]


def dashboard() -> Json:
    (item,) = of_kind(rendered("overlays/monitoring"), "ConfigMap")
    assert item["metadata"]["labels"]["grafana_dashboard"] == "1"
    found: Json = json.loads(item["data"]["accelbind.json"])
    return found


def panels() -> Iterator[tuple[str, str]]:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    yield from panels()
    for variable in dashboard()["templating"]["list"]:
        if "definition" in variable:
            yield variable["name"], variable["definition"]


def shown() -> Iterator[metrics.Shown]:
    """The metrics of all processes."""
    for make in metrics.PROCESSES.values():
        yield from metrics.shown(make())


def test_every_metric_that_is_asked_for_is_one_that_a_process_shows() -> None:
    known = {f"{each.name}{suffix}" for each in shown() for suffix in SUFFIXES[each.kind]} | OTHERS
    asked = {
        name: title
        for title, expression in expressions()
        for name, _ in SELECTED.findall(expression)
    }
    assert len(asked) > 20
    assert {name: asked[name] for name in asked if name not in known} == {}


def test_every_label_that_is_asked_for_is_one_of_the_code_or_of_scraping() -> None:
    ours = {label for each in shown() for label in each.labels}
    assert {"reason", "outcome", "resource"} <= ours
    assert ours & OF_TARGETS == set(), "a label of a process would be lost"
    for title, expression in expressions():
        used = {
            label
            for name, selector in SELECTED.findall(expression)
            if name not in OTHERS
            for label in re.findall(r"([a-z_]+)\s*=~?", re.sub(r'"[^"]*"', "", selector))
        }
        grouped = re.findall(r"by \(([^)]*)\)", expression)
        if "apiserver_" not in expression:
            used |= {label.strip() for each in grouped for label in each.split(",")}
        assert used <= ours | OF_TARGETS | {"le"}, title


def test_panels_of_what_happens_show_0_where_nothing_has_happened() -> None:
    happening = re.compile(r"\b(rate|increase)\(|_holder\b")
    found = [(title, each) for title, each in panels() if happening.search(each)]
    assert len(found) > 8
    assert [title for title, each in found if "vector(0)" not in each] == []


def test_every_alert_says_what_is_the_case_and_has_a_runbook_of_its_own() -> None:
    text = (FOLDER / "runbooks.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    names = [rule["alert"] for rule in rules()]
    assert sorted(sections) == sorted(names)
    for rule in rules():
        address, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert MANIFESTS.parent / address == FOLDER / "runbooks.md"
        assert anchor == rule["alert"].lower()
        assert "\n1. " in sections[rule["alert"]], "it says what to do"


def test_alerts_quote_only_labels_that_their_expression_keeps() -> None:
    for rule in rules():
        quoted = set(re.findall(r"\$labels\.([a-z_]+)", " ".join(rule["annotations"].values())))
        kept = re.findall(r"by \(([^)]*)\)", rule["expr"])
        if kept:
            labels = {label.strip() for each in kept for label in each.split(",")}
            assert quoted <= labels, rule["alert"]
        elif re.match(r"(absent|max|min)\(", rule["expr"]):
            assert not quoted, rule["alert"]
