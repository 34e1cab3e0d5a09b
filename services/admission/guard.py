"""The guard: pods of guarded namespaces have guarded resources only by names of accelerators.

It runs after all mutation, when `accelbind.dev/requested` says which names a pod requested. Claims
and their templates can be guarded as resources are.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec

from services.admission.mutate import MAX_POD_UNITS, Policy, Refused, plan_containers
from services.admission.patch import MAX_NAME, read_note
from services.admission.plan import ContainerPlan
from services.mappings.accelerator import MAX_CLAIMS, Effects
from services.mappings.index import NamespaceMappings, NameTable
from services.pods.pod import Container, ContainerRef, Pod, PodSpec, Resources, read_placement
from services.pods.reasons import ReviewReason
from services.pods.refusals import Refusals
from services.pods.requests import read_count, refuse_pod_resources, requesting_containers
from services.process.text import listing, plain

MAX_GUARDED: Final = 5 * MAX_POD_UNITS
"""Guarded resources of all containers together, those of no unit too: a name stands for at most
five, and reading a quantity may take 20 µs."""

_NAMES_SHOWN: Final = 4
_NAMES_SEARCHED: Final = 1000


def guard(
    pod: Pod, mappings: NamespaceMappings, policy: Policy, shared: NameTable | None = None
) -> Refused | None:
    """Return why a pod, after all mutation, may not have its guarded resources; None if it may.

    Raises:
        InvalidReview: the pod's node selector can't be read.
    """
    tables = [table for table in (mappings.accelerators, shared) if table is not None]
    spec = pod.spec or PodSpec()
    claims = Counter(
        each.source for each in spec.resource_claims or () if policy.is_guarded(each.source)
    )
    all_containers = [*(spec.init_containers or ()), *(spec.containers or ())] if claims else []
    using = {each.name for each in all_containers if each.resources and each.resources.claims}
    holding = [
        (ref, keys)
        for ref in requesting_containers(pod, policy.guarded_prefixes, also=using)
        if (keys := _guarded_resources(ref, policy))
    ]
    refusals = Refusals()
    refuse_pod_resources(pod, policy.guarded_prefixes, refusals)
    if not holding and not claims:
        return _refused(refusals)
    if sum([len(keys) for _, keys in holding]) > MAX_GUARDED:
        message = f"the pod has more than {MAX_GUARDED} guarded resources in all its containers"
        refusals.add(ReviewReason.TOO_MANY_UNITS, holding[0][0], message)
        return Refused(tuple(refusals.listed))
    # Anybody can write the annotation. Its names are evaluated as if each container requested them
    # now, so it gives a pod no more than requesting them.
    note = read_note(pod)
    # Each is taken once: of two containers of one name, which Kubernetes refuses only later.
    names = [
        _requesting(ref, note.pop(ref.container.name[:MAX_NAME], {}), policy) for ref, _ in holding
    ]
    plans = plan_containers(names, mappings, tables, policy, refusals, note={})
    if not refusals.listed:
        selector = read_placement(pod).node_selector
        for (ref, keys), plan in zip(holding, plans, strict=True):
            if refusals.full:
                break
            held = _check_amounts(ref, keys, plan, tables, refusals)
            _check_selector(plan, held, selector, refusals)
    if not refusals.listed:
        _check_claims(claims, [ref for ref, _ in holding], tables, refusals)
    return _refused(refusals)


def _check_claims(
    claims: Counter[str],
    holding: Sequence[ContainerRef],
    tables: Sequence[NameTable],
    refusals: Refusals,
) -> None:
    """Refuse claims of the pod that no container uses, which hold devices too, and too many.

    No container uses more than its names stand for. Which ones share a claim depends on what else
    was in the pod when they were mutated: each may have its own.
    """
    used = Counter({name: source for ref in holding for name, source in ref.claims}.values())
    for source in claims - used:
        message = (
            f"{plain(source)} is guarded: spec.resourceClaims has {claims[source]}, but the "
            f"containers use {used[source]} for names in annotation accelbind.dev/requested; "
            f"{_advice(source, tables)}"
        )
        refusals.add(ReviewReason.GUARDED_RESOURCE, None, message)
    if not refusals.listed and claims.total() > MAX_CLAIMS:
        message = f"its names stand for more than {MAX_CLAIMS} claims, the limit for a pod"
        refusals.add(ReviewReason.TOO_MANY_CLAIMS, None, message)


def _refused(refusals: Refusals) -> Refused | None:
    return Refused(tuple(refusals.listed)) if refusals.listed else None


def _guarded_resources(ref: ContainerRef, policy: Policy) -> list[str]:
    """Return the guarded resources and claims of a container; sorted by name."""
    resources = ref.container.resources or Resources()
    keys = {*(resources.limits or ()), *(resources.requests or ())}
    keys.update(source for _, source in ref.claims)
    return sorted(filter(policy.is_guarded, keys))


def _requesting(ref: ContainerRef, noted: dict[str, int], policy: Policy) -> ContainerRef:
    """Return a container that requests the noted names of accelerators, and nothing else."""
    limits = {
        key: msgspec.Raw(str(units).encode())
        for key, units in noted.items()
        if key.startswith(policy.accelerator_prefixes)
    }
    # With its variables: names that set one of them differently don't contradict each other.
    container = Container(ref.container.name, Resources(limits), ref.container.env)
    return ContainerRef(container, ref.path, ref.init, ref.sidecar)


def _check_amounts(
    ref: ContainerRef,
    keys: Sequence[str],
    plan: ContainerPlan,
    tables: Sequence[NameTable],
    refusals: Refusals,
) -> set[str]:
    """Refuse more of a guarded resource than the names stand for; return what there is."""
    held = set()
    for key in keys:
        if refusals.full:
            break
        count = read_count(ref, key, refusals)
        units = count.units if count is not None else 0
        allowed = plan.accelerators.amounts.get(key, 0) if plan.accelerators else 0
        if units > allowed:
            message = (
                f"{plain(key)} is guarded: the container has {units}, but the names in annotation "
                f"accelbind.dev/requested stand for {allowed}; {_advice(key, tables)}"
            )
            refusals.add(ReviewReason.GUARDED_RESOURCE, ref, message)
        elif units:
            held.add(key)
    return held


def _advice(key: str, tables: Sequence[NameTable]) -> str:
    """Return which names stand for a resource."""
    served = (
        plain(name)
        for place, table in enumerate(tables)
        # A refusal takes no longer in a namespace of 100,000 names.
        for name, mapping in islice(table.by_name.items(), _NAMES_SEARCHED)
        if mapping.resolution.resource == key
        and not any(name in own.by_name or name in own.rejected for own in tables[:place])
    )
    names = [*islice(served, _NAMES_SHOWN)]
    if names:
        return f"request {listing(names, last='or')} instead"
    if any(len(table) > _NAMES_SEARCHED for table in tables):
        return "request a name that stands for it instead"
    return "no Accelerator of the namespace stands for it"


def _check_selector(
    plan: ContainerPlan, held: set[str], selector: dict[str, str], refusals: Refusals
) -> None:
    """Refuse a pod without the node selectors of the names that its resources come from."""
    for request in plan.accelerators.mapped if plan.accelerators else ():
        effects = request.effects or Effects()
        if held.isdisjoint({request.resource, *(also.resource for also in effects.also)}):
            continue
        for label, value in effects.node_selector:
            if selector.get(label) != value:
                message = (
                    f"{plain(request.key)} needs nodes with {label}={value}, but the pod's node "
                    "selector lacks it: was it removed after accelbind's mutating webhook?"
                )
                refusals.add(ReviewReason.GUARDED_SELECTOR, plan.ref, message)
