"""The claims that names of accelerators stand for: a pod's entries, and which containers use them.

As the kubelet does with devices (see `sharing`), containers reuse claims within a pod: those of
plain init containers form a pool, from which every later container takes before it gets new ones. A
sidecar or app container keeps what it took. Claims that are in the pod already, from an earlier
mutation or by hand, go to no second container that runs at the same time.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import count, islice
from math import inf

from services.admission.patch import Operation, add
from services.admission.plan import ContainerPlan
from services.mappings.accelerator import CLAIM_TEMPLATE, MAX_CLAIMS
from services.pods.pod import Container, ContainerRef, Pod, PodSpec
from services.pods.reasons import ReviewReason
from services.pods.refusals import Refusals
from services.process.text import plain

_MAX_STEM = 50  # characters; a number follows, and Kubernetes allows 63


def claim_operations(
    pod: Pod, plans: Sequence[ContainerPlan], refusals: Refusals
) -> list[Operation]:
    """Return the JSON Patch for the claims of a pod; `plans` is in the kubelet's start order."""
    spec = pod.spec or PodSpec()
    new, added = _plan_claims(spec, plans, refusals)
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


def _plan_claims(
    spec: PodSpec, plans: Sequence[ContainerPlan], refusals: Refusals
) -> tuple[dict[str, str], list[list[str]]]:
    """Return the new claims of a pod with their templates, and which ones each container gets."""
    entries = {each.name: each.source for each in spec.resource_claims or ()}
    targets = {target for plan in plans for target, _, _ in _wanted(plan)}
    left = MAX_CLAIMS - sum(source in targets for source in entries.values())
    uses = _Uses(spec)
    taken = {*entries, *uses.kept_from, *uses.last_init}
    pool: dict[str, str] = {}
    new: dict[str, str] = {}
    added: list[list[str]] = []
    for plan in plans:
        own = dict(plan.ref.claims)
        before = len(own)
        for target, stem, units in _wanted(plan):
            free = (
                name
                for name, of in pool.items()
                if of == target and name not in own and uses.allow(plan.ref, name)
            )
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
        if _keeps(plan.ref):
            uses.kept_from |= dict.fromkeys([*islice(own, before, None)], _position(plan.ref))
        else:
            pool |= own
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


class _Uses:
    """When the claims of a pod are in use, by the positions of init containers."""

    def __init__(self, spec: PodSpec) -> None:
        self.kept_from: dict[str, float] = {}
        """Where the first sidecar or app container starts that has it."""
        self.last_init: dict[str, int] = {}
        """The last plain init container that has it."""
        for n, container in enumerate(spec.init_containers or ()):
            for name in _used_names(container):
                if container.restart_policy == "Always":
                    self.kept_from.setdefault(name, n)
                else:
                    self.last_init[name] = n
        for container in spec.containers or ():
            for name in _used_names(container):
                self.kept_from.setdefault(name, inf)

    def allow(self, ref: ContainerRef, name: str) -> bool:
        """Return whether no container that has the claim runs beside this one."""
        if _keeps(ref):
            return name not in self.kept_from and self.last_init.get(name, -1) < _position(ref)
        return self.kept_from.get(name, inf) >= _position(ref)


def _keeps(ref: ContainerRef) -> bool:
    """Return whether a container runs on while later ones do."""
    return ref.sidecar or not ref.init


def _position(ref: ContainerRef) -> float:
    """Return the position of an init container; app containers start after all of them."""
    return int(ref.path.rpartition("/")[2]) if ref.init else inf


def _used_names(container: Container) -> Iterator[str]:
    for each in (container.resources.claims if container.resources else None) or ():
        yield each.name


def _append(path: str, values: Sequence[object], *, to_list: bool) -> list[Operation]:
    """Return the operations that append to a list, which may not be there."""
    if not to_list:
        return [add(path, values)] if values else []
    return [add(f"{path}/-", value) for value in values]
