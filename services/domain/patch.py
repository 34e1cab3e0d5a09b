"""The JSON Patch for a pod: the least that must change, and never a whole map or list.

Every write is an ``add``, which sets a member of an object whether it is there or not, or adds a
list's last element; so what other webhooks wrote beside it stays. RFC 6902.
"""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from services.domain.env_rules import new_variables
from services.domain.plan import Plan
from services.domain.pod import REQUESTED_ANNOTATION, Pod

Operation: TypeAlias = dict[str, object]
"""One operation: ``op``, ``path``, and for ``add`` a ``value``."""

_REQUESTED = msgspec.json.Decoder(dict[str, dict[str, int]])
_NOTE = msgspec.json.Encoder(order="sorted")


def escaped(member: str) -> str:
    """Return the name of an object's member as JSON pointers spell it; RFC 6901."""
    return member.replace("~", "~0").replace("/", "~1")


_NOTE_PATH = f"/metadata/annotations/{escaped(REQUESTED_ANNOTATION)}"


def container_operations(plan: Plan) -> list[Operation]:
    """Return what turns a container that asks by logical name into what is planned for it."""
    operations: list[Operation] = []
    path = plan.place.path
    limits, requests = f"{path}/resources/limits/", f"{path}/resources/requests/"
    in_requests = {ask.resource: ask.in_requests for ask in plan.mapped}
    for ask in plan.direct:
        if ask.in_requests and ask.resource in in_requests:
            in_requests[ask.resource] = True
    for ask in plan.mapped:
        member = escaped(ask.key)
        operations.append({"op": "remove", "path": limits + member})
        if ask.in_requests:
            operations.append({"op": "remove", "path": requests + member})
            in_requests[ask.resource] = True
    for resource, requested in in_requests.items():
        member, units = escaped(resource), str(plan.units[resource])
        operations.append({"op": "add", "path": limits + member, "value": units})
        if requested:
            operations.append({"op": "add", "path": requests + member, "value": units})
    _add_variables(plan, operations)
    return operations


def annotation_operation(pod: Pod, plans: Iterable[Plan]) -> Operation:
    """Return what notes in the pod's metadata what was asked for by logical name.

    Args:
        pod: as it came.
        plans: of the containers that ask by logical name.
    """
    annotations = pod.metadata.annotations if pod.metadata else None
    noted = _noted(annotations.requested if annotations else None)
    for plan in plans:
        container = noted.setdefault(plan.place.container.name, {})
        container.update(_asked(plan, container))
    text = _NOTE.encode(noted).decode()
    if pod.metadata is None:
        return _add("/metadata", {"annotations": {REQUESTED_ANNOTATION: text}})
    if annotations is None:
        return _add("/metadata/annotations", {REQUESTED_ANNOTATION: text})
    return _add(_NOTE_PATH, text)


def _add(path: str, value: object) -> Operation:
    return {"op": "add", "path": path, "value": value}


def _add_variables(plan: Plan, operations: list[Operation]) -> None:
    functions = plan.new_functions()
    if not functions:
        return
    variables = new_variables(functions, plan.written)
    path = f"{plan.place.path}/env"
    if plan.env_is_empty:
        operations.append(_add(path, variables))
        return
    path += "/-"
    operations += [{"op": "add", "path": path, "value": variable} for variable in variables]


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
    physical = {ask.key: ask.units for ask in plan.direct}
    asked = {}
    for ask in plan.mapped:
        before = noted.get(ask.key, 0)
        covered = 0 < before <= physical.get(ask.resource, 0)
        asked[ask.key] = ask.units + (before if covered else 0)
    return asked
