"""The JSON Patch for a pod: the least that must change, and never a whole map or list.

Every write is an ``add``, which sets a member of an object whether it is there or not, or adds a
list's last element; so what other webhooks wrote beside it stays. RFC 6902.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from services.admission.plan import ContainerPlan
from services.pods.functions import new_variables
from services.pods.pod import REQUESTED_ANNOTATION, Pod

Operation: TypeAlias = dict[str, object]
"""One operation: ``op``, ``path``, and for ``add`` a ``value``."""

_REQUESTED = msgspec.json.Decoder(dict[str, dict[str, int]])
_NOTE = msgspec.json.Encoder(order="sorted")


def operations(pod: Pod, plans: Sequence[ContainerPlan]) -> list[Operation]:
    """Return the JSON Patch that turns a pod into what is planned for it.

    Args:
        pod: as it came.
        plans: of the containers that ask by logical name, at least one.
    """
    found: list[Operation] = []
    for plan in plans:
        found += _resource_operations(plan)
        found += _env_operations(plan)
    found.append(_annotation_operation(pod, plans))
    return found


def escaped(member: str) -> str:
    """Return the name of an object's member as JSON pointers spell it; RFC 6901."""
    return member.replace("~", "~0").replace("/", "~1")


_NOTE_PATH = f"/metadata/annotations/{escaped(REQUESTED_ANNOTATION)}"


def _resource_operations(plan: ContainerPlan) -> list[Operation]:
    found: list[Operation] = []
    limits = f"{plan.place.path}/resources/limits/"
    requests = f"{plan.place.path}/resources/requests/"
    for each in plan.mapped:
        member = escaped(each.key)
        found.append({"op": "remove", "path": limits + member})
        if each.in_requests:
            found.append({"op": "remove", "path": requests + member})
    for resource in dict.fromkeys([each.resource for each in plan.mapped]):
        of_resource = [each for each in plan.mapped + plan.direct if each.resource == resource]
        units, member = str(plan.units[resource]), escaped(resource)
        found.append(_add(limits + member, units))
        if any(each.in_requests for each in of_resource):
            found.append(_add(requests + member, units))
    return found


def _annotation_operation(pod: Pod, plans: Sequence[ContainerPlan]) -> Operation:
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


def _env_operations(plan: ContainerPlan) -> list[Operation]:
    functions = [function for each in plan.mapped for function in each.functions()]
    variables = new_variables(functions, plan.written)
    path = f"{plan.place.path}/env"
    if not plan.env_is_empty:
        return [_add(f"{path}/-", each) for each in variables]
    return [_add(path, variables)] if variables else []


def _noted(text: str | None) -> dict[str, dict[str, int]]:
    """Return what an earlier pass noted; what isn't in its form is not ours to keep."""
    if text is None:
        return {}
    try:
        return _REQUESTED.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}


def _asked(plan: ContainerPlan, noted: dict[str, int]) -> dict[str, int]:
    """Return the units that were asked for by each logical name, an earlier pass included.

    What an earlier pass noted counts only as far as physical units are there for it: the note may
    come from a pod that somebody copied and wrote anew.
    """
    if not noted:
        return {ask.key: ask.units for ask in plan.mapped}
    physical = {ask.key: ask.units for ask in plan.direct}
    asked = {}
    for ask in plan.mapped:
        before = noted.get(ask.key, 0)
        covered = 0 < before <= physical.get(ask.resource, 0)
        asked[ask.key] = ask.units + (before if covered else 0)
    return asked
