"""Which nodes a DaemonSet's pods run on, by the scheduler's rules."""

from typing import Any

import pytest

from accelbind.doctor.node_fit import is_selected, untolerated_taints

Json = dict[str, Any]

NODE: Json = {
    "metadata": {"name": "n1", "labels": {"accelbind.dev/plugin": "true", "cards": "2"}},
    "spec": {},
}


def affinity(*terms: Json) -> Json:
    required = {"nodeSelectorTerms": list(terms)}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


def expression(operator: str, *values: str, key: str = "cards", part: str = "Expressions") -> Json:
    return {f"match{part}": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "selected"),
    [
        ({}, True),
        ({"nodeSelector": {"accelbind.dev/plugin": "true"}}, True),
        ({"nodeSelector": {"accelbind.dev/plugin": "true", "other": "x"}}, False),
        ({"nodeSelector": {"accelbind.dev/plugin": "false"}}, False),
        ({"affinity": {}}, True),
        ({"affinity": {"nodeAffinity": {}}}, True),
        (affinity(), False),
        (affinity({}), False),
        (affinity(expression("In", "1", "2")), True),
        (affinity(expression("In", "1")), False),
        (affinity(expression("In", "1"), expression("Exists")), True),
        (affinity(expression("NotIn", "1")), True),
        (affinity(expression("NotIn", "2")), False),
        (affinity(expression("NotIn", "2", key="missing")), True),
        (affinity(expression("Exists", key="missing")), False),
        (affinity(expression("DoesNotExist", key="missing")), True),
        (affinity(expression("DoesNotExist")), False),
        (affinity(expression("Gt", "1")), True),
        (affinity(expression("Gt", "2")), False),
        (affinity(expression("Lt", "3")), True),
        (affinity(expression("Lt", "2")), False),
        (affinity(expression("Gt", "1", key="missing")), False),
        (affinity(expression("Gt", "1", "2")), False),
        (affinity(expression("Unknown", "2")), False),
        (affinity(expression("In", "n1", key="metadata.name", part="Fields")), True),
        (affinity(expression("In", "n2", key="metadata.name", part="Fields")), False),
        ({"nodeSelector": {"cards": "2"}} | affinity(expression("In", "1")), False),
    ],
)
def test_selector_and_affinity_both_have_to_match(spec: Json, *, selected: bool) -> None:
    assert is_selected(spec, NODE) is selected


def test_a_node_without_labels_is_selected_only_by_who_asks_for_none() -> None:
    assert is_selected({}, {})
    assert not is_selected({"nodeSelector": {"a": "b"}}, {})


TAINT: Json = {"key": "team", "value": "a", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("tolerations", "taint", "kept_away"),
    [
        ([], TAINT, ["team=a:NoSchedule"]),
        ([], {"key": "team", "effect": "NoExecute"}, ["team:NoExecute"]),
        ([], {"key": "team", "effect": "PreferNoSchedule"}, []),
        ([{"operator": "Exists"}], TAINT, []),
        ([{"operator": "Exists", "effect": "NoSchedule"}], TAINT, []),
        ([{"operator": "Exists", "effect": "NoExecute"}], TAINT, ["team=a:NoSchedule"]),
        ([{"key": "team", "operator": "Exists"}], TAINT, []),
        ([{"key": "other", "operator": "Exists"}], TAINT, ["team=a:NoSchedule"]),
        ([{"key": "team", "value": "a"}], TAINT, []),
        ([{"key": "team", "operator": "Equal", "value": "b"}], TAINT, ["team=a:NoSchedule"]),
        ([{"value": "a"}], TAINT, ["team=a:NoSchedule"]),
        ([{"key": "team", "operator": "Lt", "value": "a"}], TAINT, ["team=a:NoSchedule"]),
        ([], {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, []),
        ([], {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}, []),
        (
            [],
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoExecute"},
            ["node.kubernetes.io/unschedulable:NoExecute"],
        ),
        (
            [{"key": "accelbind.dev/fpga", "operator": "Exists", "effect": "NoSchedule"}],
            {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
            ["node-role.kubernetes.io/control-plane:NoSchedule"],
        ),
    ],
)
def test_taints_that_nothing_tolerates_keep_a_pod_away(
    tolerations: list[Json], taint: Json, kept_away: list[str]
) -> None:
    node = NODE | {"spec": {"taints": [taint]}}
    assert untolerated_taints({"tolerations": tolerations}, node) == kept_away


def test_a_node_without_taints_keeps_nobody_away() -> None:
    assert untolerated_taints({}, {}) == untolerated_taints({"tolerations": []}, NODE) == []
