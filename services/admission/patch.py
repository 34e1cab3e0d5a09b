"""The JSON Patch (RFC 6902) for a pod: it changes as little as possible, never a whole map or list.

So the changes of other webhooks stay.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from services.admission.earlier import OWN
from services.admission.plan import ContainerPlan
from services.mappings.accelerator import CLAIM_TEMPLATE
from services.pods.functions import new_variables
from services.pods.pod import REQUESTED_ANNOTATION, Pod
from services.process.json import UNREADABLE

Operation: TypeAlias = dict[str, object]
"""One operation: ``op``, ``path``, and for ``add`` a ``value``."""

Note: TypeAlias = dict[str, dict[str, int]]
"""What was requested by logical name: container, name, units."""

_MAX_NOTE = 128 * 1024  # characters of ASCII; ours have less, even with the longest domain
_MAX_NOTED = 512  # names of all containers; ours have half as many, as a pod's units
_MAX_OWN = 256  # variables of all containers
MAX_NAME = 63  # characters of a container's name, which Kubernetes checks after this webhook
_REQUESTED = msgspec.json.Decoder(Note)
_NOTE = msgspec.json.Encoder(order="sorted")


def operations(
    pod: Pod, plans: Sequence[ContainerPlan], placed: Sequence[Operation]
) -> list[Operation]:
    """Return the JSON Patch for the plans of containers, some of which request logical names.

    `placed` are the operations for the pod's placement and claims.
    """
    changes: list[Operation] = []
    for plan in plans:
        if plan.rewritten:
            changes += _resource_operations(plan)
            changes += _accelerator_operations(plan)
            changes += _env_operations(plan)
    changes += placed
    changes.append(_annotation_operation(pod, plans))
    return changes


def escaped(member: str) -> str:
    """Return the name of an object's member, escaped for JSON pointers (RFC 6901)."""
    return member.replace("~", "~0").replace("/", "~1")


_NOTE_PATH = f"/metadata/annotations/{escaped(REQUESTED_ANNOTATION)}"


def _resource_operations(plan: ContainerPlan) -> list[Operation]:
    changes: list[Operation] = []
    limits = f"{plan.ref.path}/resources/limits/"
    requests = f"{plan.ref.path}/resources/requests/"
    for each in plan.rewritten:
        member = escaped(each.key)
        if each.count.in_limits:
            changes.append({"op": "remove", "path": limits + member})
        if each.count.in_requests:
            changes.append({"op": "remove", "path": requests + member})
    for resource in dict.fromkeys([each.resource for each in plan.mapped]):
        in_requests = [each.count.in_requests for each in plan.mapped if each.resource == resource]
        in_requests += [each.in_requests for each in plan.direct if each.key == resource]
        units, member = str(plan.units[resource]), escaped(resource)
        changes.append(add(limits + member, units))
        if any(in_requests):
            changes.append(add(requests + member, units))
    return changes


def _accelerator_operations(plan: ContainerPlan) -> list[Operation]:
    """Return the operations that set the resources behind names of accelerators, in both maps."""
    if plan.accelerators is None:
        return []
    amounts = {
        key: str(amount)
        for key, amount in plan.accelerators.amounts.items()
        if not key.startswith(CLAIM_TEMPLATE)
    }
    if not amounts:
        return []
    resources = plan.ref.container.resources
    has_requests = resources is not None and resources.requests is not None
    changes = [] if has_requests else [add(f"{plan.ref.path}/resources/requests", amounts)]
    for part in ("limits", "requests") if has_requests else ("limits",):
        path = f"{plan.ref.path}/resources/{part}"
        changes += [add(f"{path}/{escaped(key)}", amount) for key, amount in amounts.items()]
    return changes


def _annotation_operation(pod: Pod, plans: Sequence[ContainerPlan]) -> Operation:
    """Return the operation that notes in an annotation what was requested by logical name."""
    text = _note(pod, plans)
    if pod.metadata is None:
        return add("/metadata", {"annotations": {REQUESTED_ANNOTATION: text}})
    if pod.metadata.annotations is None:
        return add("/metadata/annotations", {REQUESTED_ANNOTATION: text})
    return add(_NOTE_PATH, text)


def _note(pod: Pod, plans: Sequence[ContainerPlan]) -> str:
    """Return a note that can be read: with what others noted only if that leaves it readable."""
    others = read_note(pod)
    ours: Note = {}
    left = _MAX_OWN
    for plan in plans:
        requested = plan.earlier.units | {each.key: each.total for each in plan.rewritten}
        own = plan.accelerators.own if plan.accelerators else plan.earlier.own
        shown = sorted(own)[:left]
        left -= len(shown)
        requested |= {f"{OWN}{name}": 1 for name in shown}
        name = plan.ref.container.name[:MAX_NAME]
        if requested:
            ours.setdefault(name, {}).update(requested)  # several containers may have one name
        if plan.rewritten:  # names of ours that count no more go
            others[name] = plan.earlier.others
    text = _encode({name: others.get(name, {}) | ours.get(name, {}) for name in (*others, *ours)})
    return text if decode_note(text) else _encode(ours)


def add(path: str, value: object) -> Operation:
    """Return the operation that sets a member of an object, or appends to a list."""
    # Unlike `replace`, it needs no member that exists.
    return {"op": "add", "path": path, "value": value}


def _env_operations(plan: ContainerPlan) -> list[Operation]:
    functions = [function for each in plan.mapped for function in each.functions()]
    variables = new_variables(functions, plan.written)
    variables += plan.accelerators.variables if plan.accelerators else []
    path = f"{plan.ref.path}/env"
    if not plan.env_is_empty:
        return [add(f"{path}/-", each) for each in variables]
    return [add(path, variables)] if variables else []


def read_note(pod: Pod) -> Note:
    """Return the note of an earlier mutation: container, logical name, units."""
    annotations = pod.metadata.annotations if pod.metadata else None
    text = annotations.requested if annotations else None
    return decode_note(text) if text else {}


def _encode(note: Note) -> str:
    return _NOTE.encode(note).decode()


def decode_note(text: str) -> Note:
    """Return a note; an empty one if it isn't ours."""
    # Anybody can write a note. Each name of it is work, and may be part of the answer.
    if len(text) > _MAX_NOTE or not text.isascii():
        return {}
    try:
        noted = _REQUESTED.decode(text)
    except UNREADABLE:
        return {}
    return noted if sum(map(len, noted.values())) <= _MAX_NOTED else {}
