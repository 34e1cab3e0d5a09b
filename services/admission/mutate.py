"""The webhook's decision about a pod: rewrite logical names to physical ones, or refuse the pod.

`plan` finds out what the names of a container resolve to. `patch` returns the operations:

1. Each logical name is removed, and its units are added to the physical name, or become claims.
2. Functions of mode region get the variables that tell the node what to program.
3. Names of accelerators also bring variables, further resources and a placement.
4. The annotation `accelbind.dev/requested` notes what was requested by logical name.

A mutated pod is unchanged by a second mutation: the validating webhook relies on that. Between the
two, others may set a logical name again: it counts as the larger of both, see `earlier`.
"""

from collections.abc import Mapping as ReadOnly
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import msgspec

from services import names
from services.admission import patch, sharing
from services.admission.accelerators import plan_accelerators
from services.admission.claims import claim_operations
from services.admission.domains import check_names
from services.admission.patch import Operation, placement_operations
from services.admission.plan import NOTHING_EARLIER, ContainerPlan, plan_container
from services.admission.pod_warnings import find_warnings
from services.admission.requested import (
    MAX_NOTED_UNITS,
    EarlierRequests,
    ResourceRequest,
    earlier_requests,
)
from services.mappings.accelerator import CLAIM_TEMPLATE, ENTRY
from services.mappings.index import MappingIndex, NamespaceMappings, NameTable
from services.mappings.model import Function
from services.pods.pod import ContainerRef, Pod
from services.pods.reasons import ReviewReason
from services.pods.refusals import Refusals, label, summary
from services.pods.requests import (
    ResourceCount,
    read_counts,
    refuse_pod_resources,
    requesting_containers,
)
from services.process.problem import Problem
from services.process.text import clip, plain

MAX_POD_UNITS: Final = MAX_NOTED_UNITS
"""How many units all containers of a pod together may request: the answer, and the work for it,
grow with them. Each name counts as one unit at least."""

MAX_ADDED: Final = 128 * 1024
"""Bytes of JSON that the mappings of a pod's names may bring as variables and placement: an answer
repeats them for each container."""

MAX_AUDIT: Final = 8000
"""Characters of an audit annotation: it is in every line of the audit log about the pod."""

REWRITTEN: Final = "rewritten"
"""The reason of a patched pod in the audit log."""

REASON: Final = "reason"
"""The audit annotation with the reasons."""
REWRITES: Final = "rewrites"
"""The audit annotation with each rewrite."""
AGAIN: Final = "-again"
"""The suffix of both for a pod that was mutated before; see `audit_note`."""


@dataclass(frozen=True)
class Policy:
    """The settings of the administrator.

    Raises:
        ValueError: no webhook would start with them; the message names the flag.
    """

    domains: tuple[str, ...] = (names.DOMAIN,)
    """The domains of FPGAs: both logical and physical names."""
    max_units: int = 64
    """How many units one container may request."""
    accelerator_domains: tuple[str, ...] = (names.ACCELERATOR_DOMAIN,)
    """The domains of names of accelerators: logical names only."""
    shared_namespace: str = ""
    """The namespace whose Accelerators all namespaces may use; empty if there is none."""
    guard: tuple[str, ...] = ()
    """Resources that pods of guarded namespaces get by names only; a `*` at the end is any rest."""

    def __post_init__(self) -> None:
        check_names(self.domains, self.accelerator_domains, self.guard)

    @cached_property
    def fpga_prefixes(self) -> tuple[str, ...]:
        """The prefixes of names of FPGAs."""
        return tuple(f"{domain}/" for domain in self.domains)

    @cached_property
    def accelerator_prefixes(self) -> tuple[str, ...]:
        """The prefixes of names of accelerators."""
        return tuple(f"{domain}/" for domain in self.accelerator_domains)

    @cached_property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes of all these names."""
        return self.fpga_prefixes + self.accelerator_prefixes

    @cached_property
    def guarded_prefixes(self) -> tuple[str, ...]:
        """The beginnings of guarded names; `is_guarded` decides."""
        return tuple(pattern.removesuffix("*") for pattern in self.guard)

    @cached_property
    def _guarded_rests(self) -> tuple[str, ...]:
        """The texts before the `*` of those that have one."""
        return tuple(pattern[:-1] for pattern in self.guard if pattern.endswith("*"))

    def is_guarded(self, resource: str) -> bool:
        """Return whether a resource is guarded."""
        return resource.startswith(self._guarded_rests) or resource in self.guard

    def is_logical(self, resource: str) -> bool:
        """Return whether a resource is a name that the webhook replaces, or refuses."""
        if resource.startswith(self.accelerator_prefixes):  # of whatever form
            return True
        is_ours = resource.startswith(self.fpga_prefixes) and resource != names.UNIT_RESOURCE
        return is_ours and not names.is_physical(resource.partition("/")[2])

    def shared(self, index: MappingIndex) -> NameTable:
        """Return the names that all namespaces may use."""
        return index.namespace(self.shared_namespace).accelerators


class Unchanged(msgspec.Struct, frozen=True):
    """The pod is admitted unchanged."""

    reason: ReviewReason
    warnings: tuple[str, ...] = ()


class Patched(msgspec.Struct, frozen=True):
    """The pod is admitted with a patch."""

    operations: list[Operation]
    """The JSON Patch, in order."""
    rewrites: tuple[ResourceRequest, ...]
    warnings: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    """The pod can't be admitted."""

    refusals: tuple[Problem, ...]
    """Each with its container as its subject; none for a problem of the whole pod."""

    @property
    def message(self) -> str:
        """All problems in one text; it follows ``denied the request: ``."""
        return summary(self.refusals)


Decision: TypeAlias = Unchanged | Patched | Refused


def mutate(
    pod: Pod, mappings: NamespaceMappings, policy: Policy, shared: NameTable | None = None
) -> Decision:
    """Return what to do to a pod; `shared` has the names that all namespaces may use.

    Raises:
        InvalidReview: env of a container that requests our resources, or the pod's placement,
            can't be read.
    """
    requesting = requesting_containers(pod, policy.prefixes)
    refusals = Refusals()
    refuse_pod_resources(pod, policy.prefixes, refusals)
    if not requesting:
        listed = tuple(refusals.listed)
        return Refused(listed) if listed else Unchanged(ReviewReason.NOTHING_ASKED)
    note: dict[str, dict[str, int]] = {}
    if pod.is_noted and _request_names(requesting, policy):
        note = patch.read_note(pod)
        requesting = requesting_containers(pod, policy.prefixes, also=note)
    tables = [table for table in (mappings.accelerators, shared) if table is not None]
    plans = plan_containers(requesting, mappings, tables, policy, refusals, note=note)
    # Only devices of init containers are given to other containers as well.
    if not refusals.listed and requesting[0].init:
        _refuse_sharing(plans, mappings, refusals)
    rewrites = tuple([each for plan in plans for each in plan.rewritten])
    placed = placement_operations(pod, rewrites, refusals)
    of_claims = [each for each in rewrites if each.resource.startswith(CLAIM_TEMPLATE)]
    if of_claims:
        placed += claim_operations(pod, plans, refusals)
    if refusals.listed:
        return Refused(tuple(refusals.listed))
    warnings = find_warnings(pod, plans, mappings)
    if not rewrites:
        return Unchanged(ReviewReason.ALREADY_PHYSICAL, warnings)
    return Patched(patch.operations(pod, plans, placed), rewrites, warnings)


def audit_note(pod: Pod, decision: Decision, *, validating: bool) -> dict[str, str] | None:
    """Return the annotations for the audit log, without a prefix; None if there are none."""
    # A pod is mutated again if a later webhook changes it. An API server keeps the first value of
    # an annotation, drops others and logs an error (k8s.io/apiserver, `AddAuditAnnotation`). So the
    # second mutation has keys of its own. The validation needs none: the API server prefixes each
    # key with the webhook's name.
    again = AGAIN if pod.is_noted and not validating else ""
    if isinstance(decision, Refused):
        codes = dict.fromkeys(refusal.code for refusal in decision.refusals)
        return {REASON + again: ",".join(codes)}
    if isinstance(decision, Patched):
        rewrites = "; ".join(
            [
                f"{plain(each.ref.container.name)}: {each.key}={each.total} as {each.resource}"
                for each in decision.rewrites
            ]
        )
        return {REASON + again: REWRITTEN, REWRITES + again: clip(rewrites, MAX_AUDIT)}
    if decision.reason is ReviewReason.NOTHING_ASKED:
        return None
    return {REASON + again: decision.reason.value}


def plan_containers(
    requesting: Sequence[ContainerRef],
    mappings: NamespaceMappings,
    tables: Sequence[NameTable],
    policy: Policy,
    refusals: Refusals,
    *,
    note: ReadOnly[str, dict[str, int]],
) -> list[ContainerPlan]:
    """Plan each container, until there are enough problems: then there are fewer plans.

    `tables` are the names of accelerators: of the namespace, then the shared ones. `note` is that
    of an earlier mutation.

    Raises:
        InvalidReview: a container's env can't be read.
    """
    plans = []
    unused = dict(note)
    left, added = MAX_POD_UNITS, 0
    for ref in requesting:
        # Taken once: this webhook also sees pods whose containers all have one name.
        noted = unused.pop(ref.container.name[: patch.MAX_NAME], None) if unused else None
        earlier = _earlier(ref, noted, mappings, tables, policy) if noted else NOTHING_EARLIER
        before = earlier.units
        # Enough to exceed the limit: for each logical name, a physical one may take no place in it.
        most = 2 * left + len(before) + 1
        counts = read_counts(ref, policy.prefixes, refusals, most=most, before=before)
        units = _units(counts, earlier, mappings, policy)
        _refuse_units(ref, sum(units), policy, refusals)
        # A name without units takes as much room in the patch. One above the limit of a container
        # is refused for that already.
        left -= sum([max(1, min(each, policy.max_units)) for each in units])
        if left < 0:
            message = (
                f"the pod requests more than {MAX_POD_UNITS} accelerators, the limit for all its "
                "containers together; each name counts as one at least"
            )
            refusals.add(ReviewReason.TOO_MANY_UNITS, ref, message)
            break
        general = [each for each in counts if each.key.startswith(policy.accelerator_prefixes)]
        fpga = [each for each in counts if each not in general] if general else counts
        accelerators = None
        if general:
            accelerators = plan_accelerators(
                *(ref, general, tables, policy.prefixes, refusals),
                others=mappings,
                earlier=earlier,
            )
        if accelerators or earlier.accelerators:
            mapped = accelerators.mapped if accelerators else ()
            effects = {each.key: each.effects for each in (*earlier.accelerators, *mapped)}
            added += sum([each.size for each in effects.values() if each])
        if added > MAX_ADDED:
            message = (
                "variables, node selectors and tolerations of the mappings that the pod requests "
                f"have more than {MAX_ADDED} bytes together, with {ENTRY} more for each: use "
                "fewer containers or names, or shorten the mappings"
            )
            refusals.add(ReviewReason.TOO_MUCH_ADDED, ref, message)
            break
        plans.append(
            plan_container(
                *(ref, fpga, mappings, refusals),
                tables=tables,
                accelerators=accelerators,
                earlier=earlier,
            )
        )
        if refusals.full:
            break
    return plans


def _request_names(requesting: Sequence[ContainerRef], policy: Policy) -> bool:
    """Return whether a container requests anything by a logical name."""
    return any(
        policy.is_logical(key)
        for ref in requesting
        if (resources := ref.container.resources)
        for part in (resources.limits, resources.requests)
        for key in part or ()
    )


def _earlier(
    ref: ContainerRef,
    noted: ReadOnly[str, int],
    mappings: NamespaceMappings,
    tables: Sequence[NameTable],
    policy: Policy,
) -> EarlierRequests:
    return earlier_requests(
        *(ref, noted, mappings, tables),
        fpga_prefixes=policy.fpga_prefixes,
        accelerator_prefixes=policy.accelerator_prefixes,
    )


def _units(
    counts: Sequence[ResourceCount],
    earlier: EarlierRequests,
    mappings: NamespaceMappings,
    policy: Policy,
) -> list[int]:
    """Return the units of each name that a container requests, or requested before.

    They are the same when the webhook is called again. A physical name counts without the units of
    logical names, and not at all if nothing else is left of it.
    """
    units = earlier.units | {each.key: each.total for each in counts}
    behind = {each.resource for each in earlier.fpga}
    for each in earlier.fpga:
        units[each.resource] = units.get(each.resource, each.units) - each.units
    for count in counts:
        domain, _, name = count.key.partition("/")
        mapping = mappings.by_name.get(name)
        if mapping and count.key.startswith(policy.fpga_prefixes):
            behind.add(f"{domain}/{mapping.resolution.resource}")
    return [each for key, each in units.items() if each or key not in behind]


def _refuse_units(ref: ContainerRef, units: int, policy: Policy, refusals: Refusals) -> None:
    if units > policy.max_units:
        message = (
            f"{units} accelerators are requested, but the limit is {policy.max_units} per "
            "container (--max-units of the webhook)"
        )
        refusals.add(ReviewReason.TOO_MANY_UNITS, ref, message)


def _refuse_sharing(
    plans: Sequence[ContainerPlan], mappings: NamespaceMappings, refusals: Refusals
) -> None:
    """Refuse containers that may share a device and need different functions in it."""
    uses = [sharing.RegionUse(plan.ref, plan.units, plan.wanted()) for plan in plans]
    for conflict in sharing.conflicts(uses):
        later = _function_name(conflict.later_wants, mappings)
        earlier = _function_name(conflict.earlier_wants, mappings)
        message = (
            f"needs {later} in a device of {conflict.resource}, but the kubelet may give it the "
            f"device of {label(conflict.earlier)}, which needs {earlier}: request the same "
            "function in both"
        )
        refusals.add(ReviewReason.SHARED_DEVICE, conflict.later, message)
        if refusals.full:
            break


def _function_name(function: Function, mappings: NamespaceMappings) -> str:
    """Return a logical name of a function; at this point every function has one."""
    return plain(mappings.functions[function].name)
