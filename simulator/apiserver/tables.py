"""Lists as `kubectl get` asks for them: a `meta.k8s.io/v1` Table with the columns of a kind.

As `k8s.io/kubernetes/pkg/printers/internalversion`, and for custom resources the columns of their
definition; ours have them without one. Cells that need more than an object has are left out.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from simulator.apiserver.resources import AGE, Json, Resource

_METADATA_ONLY = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
_STEPS = (
    (120, 1, "s", 0, ""),
    (600, 60, "m", 1, "s"),
    (3 * 3600, 60, "m", 0, ""),
    (8 * 3600, 3600, "h", 60, "m"),
    (2 * 86400, 3600, "h", 0, ""),
    (8 * 86400, 86400, "d", 3600, "h"),
    (float("inf"), 86400, "d", 0, ""),
)
"""Up to how many seconds: a unit and its letter, and a smaller one for the rest, if any."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    cell: Callable[[Json], object]
    is_wide: bool = False
    """Whether only `-o wide` shows it."""
    type: str = "string"


def wants_table(accept: str) -> bool:
    """Whether an Accept header prefers a Table."""
    first = accept.partition(",")[0]
    return "as=Table" in first and "g=meta.k8s.io" in first


def table_of(resource: Resource, items: Iterable[Json], metadata: Json) -> Json:
    """Objects as a Table; each row has the object's metadata."""
    columns = _columns(resource)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {
                "name": each.name,
                "type": each.type,
                "format": "name" if each.name == "Name" else "",
                "description": "",
                "priority": int(each.is_wide),
            }
            for each in columns
        ],
        "rows": [
            {
                "cells": [each.cell(item) for each in columns],
                "object": _METADATA_ONLY | {"metadata": item["metadata"]},
            }
            for item in items
        ],
    }


def _columns(resource: Resource) -> list[Column]:
    own = _OF_KINDS.get(resource.kind)
    if own is None:
        own = [_printed(each) for each in resource.printed or (AGE,)]
    return [Column("Name", lambda item: item["metadata"]["name"]), *own]


def _printed(column: Json) -> Column:
    """A column of a definition, as `additionalPrinterColumns` has it."""
    path, is_date = column["jsonPath"], column["type"] == "date"

    def cell(item: Json) -> object:
        value = _value_at(item, path)
        return _since(value) if is_date else value

    is_wide = bool(column.get("priority"))
    return Column(column["name"], cell, is_wide=is_wide, type=column["type"])


def _value_at(item: Json, path: str) -> Any:  # noqa: ANN401 - JSON of any kind
    value: Any = item
    for name in path.replace("\\.", "\0").strip(".").split("."):
        value = value.get(name.replace("\0", ".")) if isinstance(value, dict) else None
    return value


def _age(item: Json) -> str:
    return _since(item["metadata"].get("creationTimestamp"))


def _since(moment: str | None) -> str:
    return duration(datetime.now(UTC) - datetime.fromisoformat(moment)) if moment else "<unknown>"


def duration(span: timedelta) -> str:
    """A time as kubectl shows ages (`k8s.io/apimachinery/pkg/util/duration`)."""
    seconds = max(0, int(span.total_seconds()))
    step = next(each for each in _STEPS if seconds < each[0])
    _, unit, letter, smaller, part = step
    rest = seconds % unit // smaller if smaller else 0
    return f"{seconds // unit}{letter}" + (f"{rest}{part}" if rest else "")


# The columns of kinds -----------------------------------------------------------------


def _ready(pod: Json) -> str:
    statuses = pod["status"].get("containerStatuses") or ()
    return f"{sum(bool(one.get('ready')) for one in statuses)}/{len(pod['spec']['containers'])}"


def _pod_status(pod: Json) -> str:
    """The phase, or why a container waits, or that the pod is being deleted."""
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    waiting = (
        one.get("state", {}).get("waiting", {}).get("reason")
        for one in pod["status"].get("containerStatuses") or ()
    )
    return next(filter(None, waiting), "") or str(pod["status"].get("phase", "Unknown"))


def _restarts(pod: Json) -> int:
    return sum(one.get("restartCount", 0) for one in pod["status"].get("containerStatuses") or ())


def _node_status(node: Json) -> str:
    ready = any(
        one["type"] == "Ready" and one["status"] == "True"
        for one in node.get("status", {}).get("conditions") or ()
    )
    cordoned = ",SchedulingDisabled" if node.get("spec", {}).get("unschedulable") else ""
    return ("Ready" if ready else "NotReady") + cordoned


def _subject(event: Json) -> str:
    about = event["involvedObject"]
    return f"{about['kind'].lower()}/{about['name']}"


def _claim_state(claim: Json) -> str:
    status = claim.get("status") or {}
    if not status.get("allocation"):
        return "pending"
    return "allocated,reserved" if status.get("reservedFor") else "allocated"


def _at(path: str, default: object = "<none>") -> Callable[[Json], object]:
    """The cell of a field."""

    def cell(item: Json) -> object:
        value = _value_at(item, path)
        return default if value is None else value

    return cell


def _length(path: str) -> Callable[[Json], object]:
    return lambda item: len(_value_at(item, path) or ())


_BY_AGE = Column("Age", _age)
_OF_WEBHOOKS = [Column("Webhooks", _length(".webhooks"), type="integer"), _BY_AGE]
_NUMBERS = {
    "Desired": "desiredNumberScheduled",
    "Current": "currentNumberScheduled",
    "Ready": "numberReady",
    "Up-to-date": "updatedNumberScheduled",
    "Available": "numberAvailable",
}
_OF_KINDS: dict[str, list[Column]] = {
    "Pod": [
        Column("Ready", _ready),
        Column("Status", _pod_status),
        Column("Restarts", _restarts, type="integer"),
        _BY_AGE,
        Column("Node", _at(".spec.nodeName"), is_wide=True),
    ],
    "Node": [
        Column("Status", _node_status),
        _BY_AGE,
        Column("Version", _at(".status.nodeInfo.kubeletVersion")),
    ],
    "Namespace": [Column("Status", _at(".status.phase")), _BY_AGE],
    "Event": [
        Column("Last Seen", lambda event: _since(event.get("lastTimestamp"))),
        Column("Type", _at(".type")),
        Column("Reason", _at(".reason")),
        Column("Object", _subject),
        Column("Message", _at(".message")),
    ],
    "Secret": [Column("Type", _at(".type")), Column("Data", _length(".data")), _BY_AGE],
    "DaemonSet": [
        *(
            Column(name, _at(f".status.{field}", 0), type="integer")
            for name, field in _NUMBERS.items()
        ),
        _BY_AGE,
    ],
    "CustomResourceDefinition": [Column("Created At", _at(".metadata.creationTimestamp"))],
    "MutatingWebhookConfiguration": _OF_WEBHOOKS,
    "ValidatingWebhookConfiguration": _OF_WEBHOOKS,
    "ResourceSlice": [
        Column("Node", _at(".spec.nodeName")),
        Column("Driver", _at(".spec.driver")),
        Column("Pool", _at(".spec.pool.name")),
        _BY_AGE,
    ],
    "ResourceClaim": [Column("State", _claim_state), _BY_AGE],
}
