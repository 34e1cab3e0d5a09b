"""Lists as `kubectl get` asks for them: a `meta.k8s.io/v1` Table with the columns of a kind.

Pods, nodes and Events have most of the columns of `k8s.io/kubernetes/pkg/printers/internalversion`,
custom resources those of their definition (ours have them without one), other kinds name and age.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from simulator.apiserver.resources import AGE, Json, Resource

_METADATA_ONLY = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}


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
    """A time in the largest unit of which it has two, about as kubectl shows ages."""
    seconds = max(0, int(span.total_seconds()))
    for unit, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * unit:
            return f"{seconds // unit}{letter}"
    return f"{seconds}s"


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


_BY_AGE = Column("Age", _age)
_OF_KINDS: dict[str, list[Column]] = {
    "Pod": [
        Column("Ready", _ready),
        Column("Status", _pod_status),
        Column("Restarts", _restarts, type="integer"),
        _BY_AGE,
        Column("Node", lambda pod: pod["spec"].get("nodeName", "<none>"), is_wide=True),
    ],
    "Node": [Column("Status", _node_status), _BY_AGE],
    "Event": [
        Column("Last Seen", lambda event: _since(event.get("lastTimestamp"))),
        Column("Type", lambda event: event.get("type")),
        Column("Reason", lambda event: event.get("reason")),
        Column("Object", _subject),
        Column("Message", lambda event: event.get("message")),
    ],
}
