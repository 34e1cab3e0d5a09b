"""Which nodes a DaemonSet's pods run on: node selector, node affinity, taints and tolerations.

Takes objects as the API server shows them, and follows the scheduler's rules
(kubernetes.io/docs/concepts/scheduling-eviction).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

Json: TypeAlias = Mapping[str, Any]

_KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
_CONDITION: Final = "node.kubernetes.io/"
_ALWAYS_TOLERATED: Final = frozenset(
    {
        f"{_CONDITION}not-ready:NoExecute",
        f"{_CONDITION}unreachable:NoExecute",
        f"{_CONDITION}disk-pressure:NoSchedule",
        f"{_CONDITION}memory-pressure:NoSchedule",
        f"{_CONDITION}pid-pressure:NoSchedule",
        f"{_CONDITION}unschedulable:NoSchedule",
    }
)
"""Taints that the DaemonSet controller adds tolerations for."""


def is_selected(pod_spec: Json, node: Json) -> bool:
    """Return whether a pod's node selector and required node affinity match a node."""
    labels = _labels(node)
    wanted = pod_spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_matches_term(term, node) for term in required.get("nodeSelectorTerms") or ())


def untolerated_taints(pod_spec: Json, node: Json) -> list[str]:
    """Return the taints, as `key=value:effect`, that keep a DaemonSet's pod from a node."""
    tolerations = pod_spec.get("tolerations") or ()
    return [
        _shown(taint)
        for taint in (node.get("spec") or {}).get("taints") or ()
        if taint.get("effect") in _KEEPS_AWAY
        and f"{taint.get('key')}:{taint.get('effect')}" not in _ALWAYS_TOLERATED
        and not any(_tolerates(each, taint) for each in tolerations)
    ]


def _shown(taint: Json) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") not in (None, "", taint.get("key")):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    same_value = (toleration.get("value") or "") == (taint.get("value") or "")
    return operator == "Equal" and bool(toleration.get("key")) and same_value


def _labels(node: Json) -> dict[str, str]:
    return dict((node.get("metadata") or {}).get("labels") or {})


def _matches_term(term: Json, node: Json) -> bool:
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    names = {"metadata.name": str((node.get("metadata") or {}).get("name", ""))}
    return all(_matches(each, _labels(node)) for each in expressions) and all(
        _matches(each, names) for each in fields
    )


def _matches(expression: Json, values: Mapping[str, str]) -> bool:
    wanted: Sequence[str] = expression.get("values") or ()
    operator: object = expression.get("operator")
    found = values.get(str(expression.get("key")))
    match operator:
        case "In":
            return found in wanted
        case "NotIn":
            return found not in wanted
        case "Exists" | "DoesNotExist":
            return (found is not None) == (operator == "Exists")
        case "Gt" | "Lt":
            try:
                value, (limit,) = int(found or ""), map(int, wanted)
            except ValueError:
                return False
            return value > limit if operator == "Gt" else value < limit
    return False
