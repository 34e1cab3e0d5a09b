"""Lists as `kubectl get` asks for them: a `meta.k8s.io/v1` Table with the columns of a kind.

The columns are those of a definition (`additionalPrinterColumns`), or those in `resources`.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from simulator.apiserver.resources import AGE, Json, Resource

_METADATA_ONLY = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
_NAME = {"name": "Name", "type": "string", "format": "name", "jsonPath": ".metadata.name"}


def wants_table(accept: str) -> bool:
    """Whether an Accept header prefers a Table."""
    first = accept.partition(",")[0]
    return "as=Table" in first and "g=meta.k8s.io" in first


def table_of(resource: Resource, items: Iterable[Json], metadata: Json) -> Json:
    """Objects as a Table; each row has the object's metadata."""
    columns = [_NAME, *(resource.printed or (AGE,))]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {"format": "", "description": "", "priority": 0} | each for each in columns
        ],
        "rows": [
            {
                "cells": [_cell(item, each) for each in columns],
                "object": _METADATA_ONLY | {"metadata": item["metadata"]},
            }
            for item in items
        ],
    }


def _cell(item: Json, column: Json) -> object:
    value: Any = item
    for name in column["jsonPath"].replace("\\.", "\0").strip(".").split("."):
        value = value.get(name.replace("\0", ".")) if isinstance(value, dict) else None
    if value is None or column["type"] != "date":
        return value
    return _duration(datetime.now(UTC) - datetime.fromisoformat(value))


def _duration(span: timedelta) -> str:
    """A time in the largest unit of which it has two, about as kubectl shows ages."""
    seconds = max(0, int(span.total_seconds()))
    for unit, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * unit:
            return f"{seconds // unit}{letter}"
    return f"{seconds}s"
