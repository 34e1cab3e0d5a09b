"""What the webhook does to a pod: logical names become physical ones, or the pod is refused.

`decide` returns what to do to a pod, with the note for the audit log. It rests on `mutate`, a pure
function of the pod, the mappings of its namespace and the policy. For each container that asks for
a resource of our domains, `plan` finds out what its names stand for and whether it may have that.
`sharing` looks at the containers together, and `patch` returns the operations:

1. Each logical name is taken away, and its units are added to the physical name.
2. For functions of mode region come the variables that tell the node what to program.
3. The annotation `accelbind.dev/requested` notes what was asked for by logical name.

A pod that went through it comes out unchanged the next time: the validating webhook rests on that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

import msgspec

from services import names
from services.admission import patch, sharing
from services.admission.patch import Operation
from services.admission.plan import ContainerPlan, plan_container
from services.mappings.index import NamespaceMappings
from services.mappings.model import Mapping, Mode
from services.pods.functions import Function
from services.pods.pod import Place, Pod
from services.pods.refusals import Refusal, RefusalReason, Refusals, label, summary
from services.pods.requests import asking_places
from services.process.text import clip, plain

POD_FACTOR = 64
"""All containers of a pod together may ask for so many times the units that one may."""

MAX_WARNINGS = 4
"""How many warnings a pod gets at most."""

MAX_WARNING = 120
"""How many characters a warning has at most: Kubernetes asks for that."""

MAX_AUDIT: Final = 8000
"""Characters of one audit annotation: they go into every line of the audit log about the pod."""

REWRITTEN: Final = "rewritten"
"""What the audit log has for a reason where a pod is patched."""

REASON: Final = "reason"
"""The annotation that has the reasons."""
REWRITES: Final = "rewrites"
"""The one that has each rewrite."""
AGAIN: Final = "-again"
"""What these two end in where the pod has been mutated before; see `reason_key`."""


@dataclass(frozen=True)
class Policy:
    """What the cluster's administrator decides.

    Attributes:
        domains: the domains whose resources are ours.
        max_units: how many units of them one container may ask for, and a pod `POD_FACTOR` times
            as many: what a pod asks for decides how much is written into it.
    """

    domains: tuple[str, ...] = (names.DOMAIN,)
    max_units: int = 64

    @cached_property
    def prefixes(self) -> tuple[str, ...]:
        """How the names of their resources begin."""
        return tuple(f"{domain}/" for domain in self.domains)


class Rewrite(msgspec.Struct, frozen=True):
    """One logical name of one container and what it became.

    Attributes:
        container: the container's name.
        init: whether that is an init container.
        logical: the name that was asked for, with domain.
        resource: the physical name in its place, with domain.
        count: how many units were asked for under the logical name.
        mapping: what the name stands for.
    """

    container: str
    init: bool
    logical: str
    resource: str
    count: int
    mapping: Mapping


class UnchangedReason(StrEnum):
    """Why a pod stays as it is; the values are metric labels."""

    NOTHING_ASKED = "nothing-asked"
    """It asks for none of our resources."""
    MIRROR_POD = "mirror-pod"
    """It mirrors a static pod, which no webhook may change."""
    ALREADY_PHYSICAL = "already-physical"
    """It asks by physical names that its namespace maps."""


class Unchanged(msgspec.Struct, frozen=True):
    """The pod is fine as it is."""

    reason: UnchangedReason
    warnings: tuple[str, ...] = ()


class Patched(msgspec.Struct, frozen=True):
    """The pod is fine once the patch is applied to it.

    Attributes:
        operations: the JSON Patch, in order.
        rewrites: what becomes of logical names.
        warnings: what is odd about the pod all the same.
    """

    operations: list[Operation]
    rewrites: tuple[Rewrite, ...]
    warnings: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    """The pod can't be admitted."""

    refusals: tuple[Refusal, ...]

    @property
    def message(self) -> str:
        """All of it in one text that reads well after ``denied the request: ``."""
        return summary(self.refusals)


class PodDecision(msgspec.Struct, frozen=True):
    """What is to be done to a pod, and what the audit log gets of it.

    Attributes:
        result: what `mutate` found.
        audit: for the audit log, without a prefix; None if there is nothing to note.
    """

    result: Unchanged | Patched | Refused
    audit: dict[str, str] | None = None


def decide(
    pod: Pod, mappings: NamespaceMappings, policy: Policy, *, validating: bool = False
) -> PodDecision:
    """Decide about a pod.

    Args:
        pod: as it came.
        mappings: those of its namespace.
        policy: the administrator's.
        validating: whether this is the last check.

    Raises:
        InvalidReview: the env of a container that asks for our resources can't be read.
    """
    result = mutate(pod, mappings, policy)
    if isinstance(result, Unchanged):
        if result.reason is UnchangedReason.NOTHING_ASKED:
            return PodDecision(result)
        return PodDecision(result, {reason_key(pod, validating=validating): result.reason.value})
    if isinstance(result, Refused):
        codes = dict.fromkeys(refusal.reason.value for refusal in result.refusals)
        return PodDecision(result, {reason_key(pod, validating=validating): ",".join(codes)})
    if validating:
        return PodDecision(result)  # whoever asked refuses it
    rewrites = clip("; ".join([_describe(rewrite) for rewrite in result.rewrites]), MAX_AUDIT)
    if pod.is_noted:
        return PodDecision(result, {REASON + AGAIN: REWRITTEN, REWRITES + AGAIN: rewrites})
    return PodDecision(result, {REASON: REWRITTEN, REWRITES: rewrites})


def mutate(pod: Pod, mappings: NamespaceMappings, policy: Policy) -> Unchanged | Patched | Refused:
    """Work out what to do to a pod.

    Args:
        pod: as it came.
        mappings: those of its namespace.
        policy: the administrator's.

    Raises:
        InvalidReview: the env of a container that asks for our resources can't be read.
    """
    if pod.is_mirror:
        return Unchanged(UnchangedReason.MIRROR_POD)
    asking = asking_places(pod, policy.prefixes)
    if not asking:
        return Unchanged(UnchangedReason.NOTHING_ASKED)
    refusals = Refusals()
    plans = _plans(asking, mappings, policy, refusals)
    if not refusals.found and asking[0].init:
        _refuse_sharing(plans, mappings, refusals)
    if refusals.found:
        return Refused(tuple(refusals.found))
    warnings = _warnings(plans, mappings)
    changed = [plan for plan in plans if plan.mapped]
    if not changed:
        return Unchanged(UnchangedReason.ALREADY_PHYSICAL, warnings)
    return Patched(patch.operations(pod, changed), _rewrites(changed), warnings)


def reason_key(pod: Pod, *, validating: bool) -> str:
    """Return the annotation for the reasons of a decision.

    A pod is judged two or three times: mutated, once more if a webhook after ours changes it, and
    validated. An API server keeps the first value of an annotation, drops others and complains in
    its log (k8s.io/apiserver, `AddAuditAnnotation`), so the second time has a name of its own. The
    last needs none: it is another webhook's, whose name stands before the annotation's.
    """
    return REASON + AGAIN if pod.is_noted and not validating else REASON


def _describe(rewrite: Rewrite) -> str:
    container = plain(rewrite.container)
    return f"{container}: {rewrite.logical}={rewrite.count} as {rewrite.resource}"


def _plans(
    asking: Sequence[Place], mappings: NamespaceMappings, policy: Policy, refusals: Refusals
) -> list[ContainerPlan]:
    """ContainerPlan each container, until enough is wrong with the pod."""
    plans = []
    left = policy.max_units * POD_FACTOR
    for place in asking:
        if refusals.full:
            break
        plan = plan_container(
            place, mappings, prefixes=policy.prefixes, max_units=policy.max_units, refusals=refusals
        )
        plans.append(plan)
        left -= min(sum(plan.units.values()), policy.max_units)  # more is refused already
        if left < 0:
            message = (
                f"brings the pod over {policy.max_units * POD_FACTOR} accelerators, which is the "
                f"limit for all containers together ({POD_FACTOR} times --max-units of the webhook)"
            )
            refusals.add(RefusalReason.TOO_MANY_UNITS, place, message)
            break
    return plans


def _rewrites(plans: Sequence[ContainerPlan]) -> tuple[Rewrite, ...]:
    return tuple(
        [
            Rewrite(container.name, plan.place.init, ask.key, ask.resource, ask.units, ask.mapping)
            for plan in plans
            for container in (plan.place.container,)
            for ask in plan.mapped
            if ask.mapping is not None
        ]
    )


def _refuse_sharing(
    plans: Sequence[ContainerPlan], mappings: NamespaceMappings, refusals: Refusals
) -> None:
    """Refuse containers that may get one device and want different functions in it."""
    uses = [sharing.Use(plan.place, plan.units, plan.wanted()) for plan in plans]
    for conflict in sharing.conflicts(uses):
        later = _function_name(conflict.later_wants, mappings)
        earlier = _function_name(conflict.earlier_wants, mappings)
        message = (
            f"wants {later} in a device of {conflict.resource}, but the kubelet gives "
            f"it one that {label(conflict.earlier)} has had, which wants {earlier}: "
            "ask for the same function in both"
        )
        refusals.add(RefusalReason.SHARED_DEVICE, conflict.later, message)


def _function_name(function: Function, mappings: NamespaceMappings) -> str:
    """Return the logical name of a function, for people; every function has one by now."""
    interface_id, afu_id = function
    candidates = mappings.by_resource[f"region-{interface_id}"]
    return next(plain(found.name) for found in candidates if found.afu_id == afu_id)


def _warnings(plans: Sequence[ContainerPlan], mappings: NamespaceMappings) -> tuple[str, ...]:
    """Return what is odd about a pod that is fine."""
    warnings: list[str] = []
    seen: dict[frozenset[Mode], Place] = {}
    for plan in plans:
        if plan.modes is not None and plan.modes not in seen:
            for modes, other in seen.items():
                if not modes & plan.modes:
                    warnings.append(_mixed(other, modes, plan.place, plan.modes))
            seen[plan.modes] = plan.place
        for key, mapping in [(ask.key, ask.mapping) for ask in plan.mapped if ask.mapping]:
            warnings += _of_name(key, mapping, mappings)
    return tuple(dict.fromkeys(warnings))[:MAX_WARNINGS] if warnings else ()


def _of_name(key: str, mapping: Mapping, mappings: NamespaceMappings) -> list[str]:
    """Return what is odd about a name that a pod may use."""
    warnings = []
    rejected = mappings.rejected.get(mapping.name)
    if rejected is not None:
        warnings.append(clip(f"{plain(key)}: {rejected}", MAX_WARNING))
    twin = None if mapping.deprecated else mappings.twin_of(mapping)
    other = f"{key.partition('/')[0]}/{plain(twin.name)}" if twin is not None else ""
    if mapping.deprecated is not None:
        advice = plain(mapping.deprecated) or (f"use {other}" if other else "")
        warnings.append(clip(f"{plain(key)} is deprecated{advice and ': '}{advice}", MAX_WARNING))
    elif other:
        warnings.append(clip(f"{plain(key)} is a duplicate: {other} is the same", MAX_WARNING))
    return warnings


def _mixed(
    one: Place, one_modes: frozenset[Mode], other: Place, other_modes: frozenset[Mode]
) -> str:
    first = f"{plain(one.container.name, 20)} ({'/'.join(sorted(one_modes))})"
    second = f"{plain(other.container.name, 20)} ({'/'.join(sorted(other_modes))})"
    return f"containers {first} and {second}: a node runs one mode only"
