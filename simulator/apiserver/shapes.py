"""Which fields of core objects are left out when empty, and how lists of objects are merged.

A real server knows this from its Go types.
"""

from typing import Any

from simulator.apiserver.wire import Json

_MAPS = frozenset(
    {
        "allocatable",
        "annotations",
        "capacity",
        "data",
        "labels",
        "limits",
        "matchLabels",
        "nodeSelector",
        "requests",
    }
)
_MERGE_KEYS = ("name", "type", "uid", "mountPath", "containerPort", "ip")


def without_empty(item: Json) -> Json:
    """The object without nulls, empty lists and empty maps, which Go leaves out."""
    return {
        name: _inner(value)
        for name, value in item.items()
        if value is not None
        and not (value == [] and name != "containers")
        and not (value == {} and name in _MAPS)
    }


def _inner(value: Any) -> Any:  # noqa: ANN401 - JSON
    match value:
        case dict():
            return without_empty(value)
        case list():
            return [_inner(one) for one in value]
        case _:
            return value


def merge_key(items: list[Any]) -> str | None:
    """The field that tells the items of a list apart; None for a list that is replaced whole."""
    objects = [item for item in items if isinstance(item, dict) and item.get("$patch") != "replace"]
    if len(objects) < len(items) - 1 or not objects:
        return None
    return next((key for key in _MERGE_KEYS if all(key in item for item in objects)), None)
