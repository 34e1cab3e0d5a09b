"""The claims that names of accelerators stand for: a pod's entries, and which containers use them.

As the kubelet does with devices (see `sharing`), containers reuse claims within a pod: those of
plain init containers form a pool, from which every later container takes before it gets new ones. A
sidecar or app container keeps what it took.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import count, islice

from services.admission.patch import Operation, add
from services.admission.plan import ContainerPlan
from services.mappings.accelerator import CLAIM_TEMPLATE, MAX_CLAIMS
from services.pods.pod import Pod, PodSpec
from services.pods.reasons import ReviewReason
from services.pods.refusals import Refusals
from services.process.text import plain

_MAX_STEM = 50  # characters; a number follows, and Kubernetes allows 63


def claim_operations(
    pod: Pod, plans: Sequence[ContainerPlan], refusals: Refusals
) -> list[Operation]:
    """Return the JSON Patch for the claims of a pod; `plans` is in the kubelet's start order."""
    spec = pod.spec or PodSpec()
    new, added = plan_claims(spec, plans, refusals)
    operations: list[Operation] = []
    for plan, names in zip(plans, added, strict=True):
        has_claims = bool(plan.ref.container.resources and plan.ref.container.resources.claims)
        claims = [{"name": name} for name in names]
        operations += _append(f"{plan.ref.path}/resources/claims", claims, to_list=has_claims)
    entries = [
        {"name": name, "resourceClaimTemplateName": target.removeprefix(CLAIM_TEMPLATE)}
        for name, target in new.items()
    ]
    has_entries = bool(spec.resource_claims)
    return [*operations, *_append("/spec/resourceClaims", entries, to_list=has_entries)]


def plan_claims(
    spec: PodSpec, plans: Sequence[ContainerPlan], refusals: Refusals
) -> tuple[dict[str, str], list[list[str]]]:
    """Return the new claims of a pod with their templates, and which ones each container gets."""
    entries = {each.name: each.source for each in spec.resource_claims or ()}
    targets = {target for plan in plans for target, _, _ in _wanted(plan)}
    left = MAX_CLAIMS - sum(source in targets for source in entries.values())
    taken = {*entries, *_used_names(spec)}
    pool: dict[str, str] = {}
    new: dict[str, str] = {}
    added: list[list[str]] = []
    for plan in plans:
        own = dict(plan.ref.claims)
        before = len(own)
        for target, stem, units in _wanted(plan):
            free = (name for name, of in pool.items() if of == target and name not in own)
            reused = [*islice(free, units)]
            left -= units - len(reused)
            if left < 0:
                message = (
                    f"{plain(target)}: the pod's names stand for more than {MAX_CLAIMS} claims, "
                    "the limit for all its containers together"
                )
                refusals.add(ReviewReason.TOO_MANY_CLAIMS, plan.ref, message)
                return {}, [[] for _ in plans]
            unused = (name for n in count() if (name := f"{stem}-{n}") not in taken)
            made = [*islice(unused, units - len(reused))]
            taken.update(made)
            new |= dict.fromkeys(made, target)
            own |= dict.fromkeys([*reused, *made], target)
        if plan.ref.init and not plan.ref.sidecar:
            pool |= own
        else:
            pool = {name: of for name, of in pool.items() if name not in own}
        added.append([*islice(own, before, None)])
    return new, added


def _wanted(plan: ContainerPlan) -> Iterator[tuple[str, str, int]]:
    """Yield the template of each name of a container, how its claims are called, how many are new.

    None is new for a name of an earlier mutation.
    """
    for each in plan.earlier.accelerators:
        if each.resource.startswith(CLAIM_TEMPLATE):
            yield each.resource, "", 0
    for each in plan.accelerators.mapped if plan.accelerators else ():
        if each.resource.startswith(CLAIM_TEMPLATE):
            yield each.resource, _stem(each.key), each.units * each.mapping.resolution.count


def _stem(key: str) -> str:
    """Return how the names of claims of a logical name begin: they are DNS labels."""
    name = key.partition("/")[2].lower()
    return re.sub(r"[^a-z0-9]+", "-", name)[:_MAX_STEM].strip("-")


def _used_names(spec: PodSpec) -> Iterator[str]:
    for container in (*(spec.init_containers or ()), *(spec.containers or ())):
        for each in (container.resources.claims if container.resources else None) or ():
            yield each.name


def _append(path: str, values: Sequence[object], *, to_list: bool) -> list[Operation]:
    """Return the operations that append to a list, which may not be there."""
    if not to_list:
        return [add(path, values)] if values else []
    return [add(f"{path}/-", value) for value in values]
