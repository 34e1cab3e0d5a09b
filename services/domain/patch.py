"""The JSON Patch for a pod: the least that must change, and never a whole map or list.

Every write is an ``add``, which sets a member of an object whether it is there or not, or adds a
list's last element; so what other webhooks wrote beside it stays. RFC 6902.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from services.domain.env_rules import new_variables
from services.domain.plan import Plan, target
from services.domain.pod import REQUESTED_ANNOTATION, Pod

Operation: TypeAlias = dict[str, object]
"""One operation: ``op``, ``path``, and for ``add`` a ``value``."""

_REQUESTED = msgspec.json.Decoder(dict[str, dict[str, int]])


def pointer(path: str, *members: str) -> str:
    """Return the JSON pointer to a member below `path`; RFC 6901."""
    for member in members:
        path += "/" + member.replace("~", "~0").replace("/", "~1")
    return path


def container_operations(plan: Plan) -> Iterator[Operation]:
    """Yield what turns a container as it came into what is planned for it."""
    if not plan.mapped:
        return
    limits = pointer(plan.place.path, "resources", "limits")
    requests = pointer(plan.place.path, "resources", "requests")
    units = plan.units()
    for ask, _ in plan.mapped:
        yield _remove(limits, ask.key)
        if ask.in_requests:
            yield _remove(requests, ask.key)
    requested = {ask.key for ask in plan.direct if ask.in_requests}
    requested |= {target(ask, mapping) for ask, mapping in plan.mapped if ask.in_requests}
    for key in dict.fromkeys(target(ask, mapping) for ask, mapping in plan.mapped):
        yield _add(pointer(limits, key), str(units[key]))
        if key in requested:
            yield _add(pointer(requests, key), str(units[key]))
    yield from _env_operations(plan)


def annotation_operation(pod: Pod, plans: Iterable[Plan]) -> Operation:
    """Return what notes in the pod's metadata what was asked for by logical name."""
    annotations = pod.metadata.annotations if pod.metadata else None
    noted = _noted(annotations.requested if annotations else None)
    for plan in plans:
        if plan.mapped:
            container = noted.setdefault(plan.place.container.name, {})
            container.update(_asked(plan, container))
    text = msgspec.json.encode(noted, order="sorted").decode()
    if pod.metadata is None:
        return _add("/metadata", {"annotations": {REQUESTED_ANNOTATION: text}})
    if annotations is None:
        return _add("/metadata/annotations", {REQUESTED_ANNOTATION: text})
    return _add(pointer("/metadata/annotations", REQUESTED_ANNOTATION), text)


def _add(path: str, value: object) -> Operation:
    return {"op": "add", "path": path, "value": value}


def _remove(path: str, member: str) -> Operation:
    return {"op": "remove", "path": pointer(path, member)}


def _env_operations(plan: Plan) -> Iterator[Operation]:
    variables = new_variables(plan.new_functions(), plan.written)
    if not variables:
        return
    path = pointer(plan.place.path, "env")
    if plan.env_is_empty:
        yield _add(path, variables)
        return
    for variable in variables:
        yield _add(f"{path}/-", variable)


def _noted(text: str | None) -> dict[str, dict[str, int]]:
    """Return what an earlier pass noted; what isn't in its form is not ours to keep."""
    if text is None:
        return {}
    try:
        return _REQUESTED.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}


def _asked(plan: Plan, noted: dict[str, int]) -> dict[str, int]:
    """Return the units that were asked for by each logical name, an earlier pass included.

    What an earlier pass noted counts only as far as physical units are there for it: the note may
    come from a pod that somebody copied and wrote anew.
    """
    physical = {ask.key: ask.count for ask in plan.direct}
    asked = {}
    for ask, mapping in plan.mapped:
        before = noted.get(ask.key, 0)
        covered = 0 <= before <= physical.get(target(ask, mapping), 0)
        asked[ask.key] = ask.count + (before if covered else 0)
    return asked
