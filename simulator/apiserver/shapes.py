"""What the stand-in knows of the form of core objects, instead of the Go types of a real server.

Known by name: which fields are lists or objects, which are left out when they are empty, and by
which key the items of a list are told apart in a strategic merge patch.
"""

from typing import Any

from simulator.apiserver import status
from simulator.apiserver.wire import Json

_LISTS = frozenset(
    {
        "conditions",
        "containers",
        "env",
        "ephemeralContainers",
        "imagePullSecrets",
        "initContainers",
        "ownerReferences",
        "ports",
        "taints",
        "tolerations",
        "volumeMounts",
        "volumes",
        "webhooks",
    }
)
"""Lists of objects."""
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
_OBJECTS = _MAPS | {
    "clientConfig",
    "involvedObject",
    "livenessProbe",
    "metadata",
    "readinessProbe",
    "resources",
    "securityContext",
    "spec",
    "startupProbe",
    "status",
    "valueFrom",
}
_MERGE_KEYS = ("name", "type", "uid", "mountPath", "containerPort", "ip")


def check_shape(item: Json, kind: str, path: str = "") -> None:
    """Refuses lists where objects belong and the like, as decoding into Go types does.

    Raises:
        StatusError: 400.
    """
    for name, value in item.items():
        where = f"{path}.{name}".lstrip(".")
        if name in _LISTS and value is not None:
            for entry in _of_type(value, list, kind, where):
                check_shape(_of_type(entry, dict, kind, where), kind, where)
        elif name in _OBJECTS and value is not None and not (path and name == "status"):
            check_shape(_of_type(value, dict, kind, where), kind, where)


def _of_type(value: object, wanted: type, kind: str, where: str) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, wanted):
        return value
    found = type(value).__name__
    raise status.bad_request(
        f'{kind} in version "v1" cannot be handled as a {kind}: json: cannot unmarshal {found}'
        f" into {where} of another type"
    )


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
