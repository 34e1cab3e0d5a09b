"""The JSON Patch (RFC 6902) for a pod: it changes as little as possible, never a whole map or list.

So the changes of other webhooks stay. Of a pod's node selector, tolerations and runtime class, what
the pod has already stays too, and a value that contradicts it is refused.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from services.admission.plan import ContainerPlan
from services.admission.requested import OWN, ResourceRequest
from services.mappings.accelerator import CLAIM_TEMPLATE, Effects, Toleration
from services.pods.functions import new_variables
from services.pods.pod import REQUESTED_ANNOTATION, ContainerRef, Placement, Pod, read_placement
from services.pods.reasons import ReviewReason
from services.pods.refusals import Refusals
from services.process.json import UNREADABLE
from services.process.text import plain, quote

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


def placement_operations(
    pod: Pod, requests: Iterable[ResourceRequest], refusals: Refusals
) -> list[Operation]:
    """Return the JSON Patch for the placement that names of accelerators ask for.

    Raises:
        InvalidReview: the pod's node selector, tolerations or runtime class can't be read.
    """
    asking = [(each.ref, each.key, each.effects) for each in requests if each.effects]
    if not asking:
        return []
    before = read_placement(pod)
    selector = _selector(before, asking, refusals)
    runtime_class = _runtime_class(before, asking, refusals)
    operations = [*_selector_operations(before, selector), *_tolerations(before, asking)]
    if runtime_class != before.runtime_class:
        operations.append(add("/spec/runtimeClassName", runtime_class))
    return operations


Asking = list[tuple[ContainerRef, str, Effects]]
"""Each container, the name that it requests, and what that name brings."""


def _selector(before: Placement, asking: Asking, refusals: Refusals) -> dict[str, str]:
    """Return the pod's node selector with those of the mappings."""
    # Affinity isn't judged: a pod that contradicts itself with that stays pending.
    merged = dict(before.node_selector)
    source = dict.fromkeys(merged, "the pod")
    for ref, requested, effects in asking:
        for key, value in effects.node_selector:
            if merged.setdefault(key, value) != value:
                message = (
                    f"{plain(requested)} needs nodes with {key}={value}, but {source[key]} has "
                    f"the node selector {key}={plain(merged[key])}"
                )
                refusals.add(ReviewReason.MAPPINGS_CONFLICT, ref, message)
            source.setdefault(key, plain(requested))
    return merged


def _selector_operations(before: Placement, after: dict[str, str]) -> Iterator[Operation]:
    added = {key: value for key, value in after.items() if key not in before.node_selector}
    if added and not before.node_selector:  # missing, null or empty
        yield add("/spec/nodeSelector", added)
        return
    for key, value in added.items():
        yield add(f"/spec/nodeSelector/{escaped(key)}", value)


def _tolerations(before: Placement, asking: Asking) -> Iterator[Operation]:
    """Append what is not tolerated yet."""
    known = {*before.tolerations}
    wanted = dict.fromkeys(each for _, _, effects in asking for each in effects.tolerations)
    objects = [_toleration(each) for each in wanted if each not in known]
    if objects and not before.tolerations:
        yield add("/spec/tolerations", objects)
        return
    for obj in objects:
        yield add("/spec/tolerations/-", obj)


def _toleration(each: Toleration) -> dict[str, str]:
    value = {"value": each.value} if each.value else {}
    return {"key": each.key, "operator": each.operator, **value, "effect": each.effect}


def _runtime_class(before: Placement, asking: Asking, refusals: Refusals) -> str:
    """Return the runtime class of the pod or of its mappings."""
    wanted, source = before.runtime_class, "the pod"
    for ref, requested, effects in asking:
        name = effects.runtime_class
        if not name:
            continue
        if not wanted:
            wanted, source = name, plain(requested)
        elif wanted != name:
            message = (
                f"{plain(requested)} needs runtime class {quote(name)}, but {source} has "
                f"{quote(wanted)}"
            )
            refusals.add(ReviewReason.MAPPINGS_CONFLICT, ref, message)
    return wanted
