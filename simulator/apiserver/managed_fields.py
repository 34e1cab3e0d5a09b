"""Who owns which field: `metadata.managedFields`, as creations, updates and patches leave it.

A set of owned fields is kept as the nested dict that `fieldsV1` is: `f:name` for a field,
`k:{…}` for a list item told apart by keys, `v:…` for a member of a list of names, and `.` for the
object or item itself. What a writer changed or added becomes its own and ceases to be anyone
else's. Server-side apply is not modelled. Rules: kubernetes-sigs/structured-merge-diff.
"""

import json
from typing import Any

from simulator.apiserver import wire
from simulator.apiserver.fields import ListOf, MapOf, Shape, descend, item_key
from simulator.apiserver.wire import Json

_SYSTEM_FIELDS = frozenset(
    {
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
    }
)
_ABSENT = object()


def changed(shape: Shape, before: Json, after: Json) -> Json:
    """The fields of `after` that `before` does not have, or has otherwise."""
    fields: Json = {}
    for name, value in after.items():
        inner, old = descend(shape, name), before.get(name, _ABSENT)
        if name == "metadata":
            former = _without_system_fields(old) if isinstance(old, dict) else {}
            _compare(inner, former, _without_system_fields(value), fields, "f:metadata")
        elif name not in ("apiVersion", "kind"):
            _compare(inner, old, value, fields, f"f:{name}")
    return fields


def removed(shape: Shape, before: Json, after: Json) -> Json:
    """The fields that `before` has and `after` has not."""
    return _missing_of(changed(shape, after, before), changed(shape, before, after))


def record(
    shape: Shape,
    before: Json | None,
    after: Json,
    *,
    manager: str,
    time: str,
    subresource: str = "",
    base: Json | None = None,
) -> list[Json]:
    """The managedFields of `after`.

    Args:
        shape: shape of the object, for its list keys.
        before: the stored object, or None on a creation.
        after: the object as it will be stored.
        manager: who writes (`fieldManager`, or what the User-Agent starts with).
        time: now, RFC 3339.
        subresource: `status`, or empty.
        base: what an empty object of the kind already holds (those fields are nobody's).
    """
    old = before if before is not None else (base or {})
    entries: list[Json] = list((before or {}).get("metadata", {}).get("managedFields") or [])
    mine = changed(shape, old, after)
    gone = removed(shape, old, after)
    if not mine and not gone and before is not None:
        return entries
    kept = []
    own: Json | None = None
    for entry in entries:
        fields = entry.get("fieldsV1", {})
        if _is_by(entry, manager, subresource, after):
            own = _union(_missing_of(fields, gone), mine)
        elif rest := _missing_of(_missing_of(fields, mine), gone):
            kept.append(entry | {"fieldsV1": rest})
    own = mine if own is None else own
    if own:
        kept.append(_entry(after, manager, time, subresource, own))
    return sorted(kept, key=lambda entry: (entry["operation"], entry["time"], entry["manager"]))


def _entry(after: Json, manager: str, time: str, subresource: str, own: Json) -> Json:
    entry: Json = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": after.get("apiVersion", ""),
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": _in_order(own),
    }
    return entry | {"subresource": subresource} if subresource else entry


def _is_by(entry: Json, manager: str, subresource: str, after: Json) -> bool:
    return (
        entry.get("manager") == manager
        and entry.get("operation") == "Update"
        and entry.get("apiVersion") == after.get("apiVersion")
        and entry.get("subresource", "") == subresource
    )


def _without_system_fields(metadata: Json) -> Json:
    return {name: value for name, value in metadata.items() if name not in _SYSTEM_FIELDS}


def _compare(shape: Shape, old: object, new: Any, into: Json, key: str) -> None:  # noqa: ANN401 - JSON
    """Puts under `key` of `into` what of `new` differs from `old`."""
    if old is not _ABSENT and old == new:
        return
    found: Json = {}
    if isinstance(new, dict) and new and not _is_atomic(shape):
        for name, value in new.items():
            former = old.get(name, _ABSENT) if isinstance(old, dict) else _ABSENT
            _compare(descend(shape, name), former, value, found, f"f:{name}")
    elif isinstance(new, list) and new and (keyed := _by_key(shape, new)) is not None:
        former_items = _by_key(shape, old) if isinstance(old, list) else None
        for label, item in keyed.items():
            assert isinstance(shape, ListOf)  # noqa: S101 - for mypy: _by_key saw to it
            _compare(shape.item, (former_items or {}).get(label, _ABSENT), item, found, label)
    else:
        into[key] = {}
        return
    if old is _ABSENT:
        found["."] = {}
    if found:
        into[key] = found


def _is_atomic(shape: Shape) -> bool:
    return isinstance(shape, MapOf) and shape.atomic


def _by_key(shape: Shape, items: list[Any]) -> dict[str, Any] | None:
    """The items under their `k:{…}` labels; None for a list that is one value."""
    if not isinstance(shape, ListOf) or not shape.keys:
        return None
    labelled = {}
    for item in items:
        values = item_key(shape, item)
        if values is None:
            return None
        named = dict(sorted(zip(shape.keys, values, strict=True)))
        labelled[f"k:{wire.encode(named).decode()}"] = item
    return labelled


def _missing_of(fields: Json, others: Json) -> Json:
    """`fields` without the leaves that stand in `others`."""
    left: Json = {}
    for name, inner in fields.items():
        if name not in others:
            left[name] = inner
        elif inner and (rest := _missing_of(inner, others[name])):
            left[name] = rest
    return left


def _union(one: Json, other: Json) -> Json:
    joined = dict(one)
    for name, inner in other.items():
        joined[name] = _union(joined[name], inner) if name in joined else inner
    return joined


def _in_order(fields: Json) -> Json:
    return {name: _in_order(fields[name]) for name in sorted(fields, key=_rank)}


def _rank(label: str) -> tuple[Any, ...]:
    if not label.startswith("k:"):
        return (0 if label == "." else 1, label)
    values = json.loads(label[2:]).values()
    return (2, *[(isinstance(value, str), value) for value in values])
