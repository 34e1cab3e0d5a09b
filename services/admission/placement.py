"""Where a pod may run: node selector, tolerations and runtime class that its mappings ask for.

What the pod has already stays, and a value that contradicts it is refused.
"""

from collections.abc import Iterable, Iterator

from services.admission.patch import Operation, add, escaped
from services.admission.requested import ResourceRequest
from services.mappings.accelerator import Effects, Toleration
from services.pods.pod import ContainerRef, Placement, Pod, read_placement
from services.pods.reasons import ReviewReason
from services.pods.refusals import Refusals
from services.process.text import plain, quote


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
