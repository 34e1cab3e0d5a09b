"""Problems of a cluster's mappings that a review of one pod or mapping doesn't find.

`accelbind check mappings` shows them.
"""

import collections.abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from services import names
from services.admission.accelerators import logical_target
from services.admission.mutate import Policy
from services.mappings.accelerator import CLAIM_TEMPLATE, DEVICE_CLASS
from services.mappings.index import MappingIndex, NameTable, clash, repeated
from services.mappings.kinds import TABLE, Family
from services.mappings.model import Mapping, Resolution, label
from services.mappings.suggestions import nearest
from services.pods.manifests import FoundPod
from services.pods.requests import parse_count, requesting_containers
from services.process.errors import InvalidQuantity
from services.process.problem import Problem
from services.process.text import listing, plain

ClaimProblem: TypeAlias = Callable[[str, str], str]
"""Returns why pods of a namespace get no claims of a name's target; empty if they get them."""

_USUAL = Policy()
_SHOWN = 4  # names that a message lists


class Code(StrEnum):
    """The kinds of findings, in the order in which they are shown."""

    INVALID = "invalid"
    """A mapping that can't be used."""
    CLASH = "clash"
    """An AcceleratorFunction and an FpgaRegion of one name; neither can be used."""
    LOGICAL = "logical"
    """A mapping to a name that is logical itself."""
    UNMAPPED = "unmapped"
    """A pod or workload requests a name that its namespace doesn't map."""
    SCHEMA = "schema"
    """A mapping of a folder that an API server refuses, or of which it drops a field. Only the
    command line looks for these."""
    NEVER_ADVERTISED = "never-advertised"
    """A mapping to a resource that no node has advertised."""
    DANGLING = "dangling"
    """A mapping to a resource that nodes have advertised, but have none of now."""
    CLAIMS = "claims"
    """A mapping to a ResourceClaimTemplate or DeviceClass whose claims no pod gets."""
    DUPLICATE = "duplicate"
    """Several names of a namespace for the same thing."""
    DEPRECATED = "deprecated"
    """A pod or workload requests a deprecated name."""
    DAEMONSET = "daemonset"
    """A DaemonSet requests a name whose mapping places pods: its controller reads the template."""
    MISSPELT = "misspelt"
    """A pod or workload requests a name of another domain that looks like a mapping; the webhook
    ignores it. Only the command line looks for these."""


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """A resource of our domains that a pod or workload requests."""

    namespace: str
    """Of the pod."""
    user: str
    """The object that requests it, such as ``Deployment train``."""
    key: str
    """The full name, as in limits."""


def resource_uses(
    found: FoundPod, prefixes: tuple[str, ...], *, namespace: str
) -> list[ResourceUse]:
    """Return the resources that a pod, or a template of pods, requests; `prefixes` are our domains.

    A pod that names no namespace is of `namespace`.
    """
    keys: set[str] = set()
    for ref in requesting_containers(found.pod, prefixes):
        resources = ref.container.resources
        for quantities in (resources.limits, resources.requests) if resources else ():
            keys.update(key for key in quantities or () if key.startswith(prefixes))
    return [ResourceUse(found.namespace or namespace, found.label, key) for key in sorted(keys)]


def add_advertised(
    totals: dict[str, int], node: object, prefixes: tuple[str, ...]
) -> dict[str, int]:
    """Add a node's extended resources to totals by resource; those of our domains without it."""
    status = node.get("status") if isinstance(node, dict) else None
    # The kubelet keeps the name of a resource that has no units left: it counts 0.
    for part in ("capacity", "allocatable"):
        amounts = status.get(part) if isinstance(status, dict) else None
        for key, amount in amounts.items() if isinstance(amounts, dict) else ():
            if "/" in key:
                name = key.partition("/")[2] if key.startswith(prefixes) else key
                count = _count(amount) if part == "allocatable" else 0
                totals[name] = totals.get(name, 0) + count
    return totals


def check(
    index: MappingIndex,
    *,
    policy: Policy = _USUAL,
    advertised: collections.abc.Mapping[str, int] | None = None,
    uses: Iterable[ResourceUse] = (),
    problems: Sequence[str] = (),
    claim_problem: ClaimProblem | None = None,
) -> list[Problem]:
    """Return the problems of mappings, compared with what nodes advertise and workloads request.

    `advertised` is as `add_advertised` counts; None if unknown. `problems` says why
    objects without a kind and name can't be used. `claim_problem` returns why pods of a namespace
    get no claims of a target.
    """
    findings = [
        *(Problem(Code.INVALID, problem) for problem in problems),
        *(
            finding
            for namespace in index.namespaces
            for table in index.namespace(namespace).tables
            for finding in _of_table(table, policy, advertised)
        ),
        *_of_uses(index, policy, uses),
        *(_of_claims(index, policy, uses, claim_problem) if claim_problem else ()),
    ]
    order = list(Code)
    findings.sort(key=lambda one: (order.index(Code(one.code)), one.namespace, one.subject))
    return findings


def _count(amount: object) -> int:
    try:
        return parse_count(str(amount)) if type(amount) in (str, int) else 0
    except InvalidQuantity:
        return 0


def _of_table(
    mappings: NameTable,
    policy: Policy,
    advertised: collections.abc.Mapping[str, int] | None,
) -> Iterator[Problem]:
    for name, reason in mappings.rejected.items():
        yield _of_rejected(mappings.namespace, name, reason)
    yield from _duplicates(mappings)
    for mapping in mappings.by_name.values():
        logical = logical_target(mapping, policy.prefixes)
        if logical is not None and mapping.family is Family.ACCELERATOR:
            message = f"stands for {logical}, which is a logical name itself"
            yield _about(Code.LOGICAL, mapping, message)
        elif advertised is not None:
            yield from _of_resource(mapping, advertised)


def _of_rejected(namespace: str, name: str, reason: str) -> Problem:
    if reason == clash(namespace, name):
        return Problem(Code.CLASH, reason, plain(name), namespace)
    kinds = [kind for kind in TABLE if label(kind, namespace, name) in reason]
    again = any(reason == repeated(kind, namespace, name) for kind in kinds)
    code = Code.DUPLICATE if again else Code.INVALID
    return Problem(code, reason, " ".join([*kinds, plain(name)]), namespace)


def _duplicates(mappings: NameTable) -> Iterator[Problem]:
    same: dict[Resolution, list[Mapping]] = {}
    for mapping in mappings.by_name.values():
        if mapping.deprecated is None:
            same.setdefault(mapping.resolution, []).append(mapping)
    for resolution, group in same.items():
        if len(group) > 1:
            first, *others = sorted(group, key=lambda one: one.name)
            shown = [plain(one.name) for one in others[:_SHOWN]]
            message = (
                f"it is the same as {listing(shown, more=len(others) - len(shown))} "
                f"({resolution.resource}{_mode(', mode', resolution)}): deprecate or delete all "
                "but one"
            )
            yield _about(Code.DUPLICATE, first, message)


def _of_resource(
    mapping: Mapping, advertised: collections.abc.Mapping[str, int]
) -> Iterator[Problem]:
    resource = mapping.resolution.resource
    if resource.startswith((DEVICE_CLASS, CLAIM_TEMPLATE)):
        return  # nodes advertise neither
    amount = advertised.get(resource)
    if amount is None:
        message = (
            f"no node has advertised {resource}: is there a node"
            f"{_mode(' of mode', mapping.resolution)} with it?"
        )
        yield _about(Code.NEVER_ADVERTISED, mapping, message)
    elif amount == 0:
        message = (
            f"nodes have advertised {resource}, but none has a healthy unit now: the device is "
            "missing, broken or programmed with another function, or the plugin isn't running"
        )
        yield _about(Code.DANGLING, mapping, message)


def _of_claims(
    index: MappingIndex, policy: Policy, uses: Iterable[ResourceUse], claim_problem: ClaimProblem
) -> Iterator[Problem]:
    """Yield what is wrong with the claims of names, in each namespace that has or uses one."""
    shared = policy.shared(index)
    # Nobody needs templates of shared names in their own namespace; classes are of no namespace.
    by_class = {
        name
        for name, mapping in shared.by_name.items()
        if mapping.resolution.resource.startswith(DEVICE_CLASS)
    }
    users = {shared.namespace: by_class}
    for name in index.namespaces:
        if name != shared.namespace:
            users[name] = {*index.namespace(name).accelerators.by_name}
    for use in uses:
        if use.key.startswith(policy.accelerator_prefixes):
            users.setdefault(use.namespace, set()).add(use.key.partition("/")[2])
    for namespace, used in users.items():
        for name in sorted(used):
            own = index.namespace(namespace).accelerators
            mapping = own.by_name.get(name) or shared.by_name.get(name)
            target = mapping.resolution.resource if mapping else ""
            if mapping is None or not target.startswith((CLAIM_TEMPLATE, DEVICE_CLASS)):
                continue
            if text := claim_problem(namespace, target):
                yield Problem(Code.CLAIMS, text, f"{mapping.kind} {plain(name)}", namespace)


def _mode(text: str, resolution: Resolution) -> str:
    return f"{text} {resolution.mode}" if resolution.mode else ""


def _of_uses(index: MappingIndex, policy: Policy, uses: Iterable[ResourceUse]) -> Iterator[Problem]:
    for use in dict.fromkeys(uses):
        namespace = index.namespace(use.namespace)
        name = use.key.partition("/")[2]
        tables: tuple[NameTable, ...] = (namespace,)
        if use.key.startswith(policy.accelerator_prefixes):
            tables = (namespace.accelerators, policy.shared(index))
        has_it = (each for each in tables if name in each.by_name or name in each.rejected)
        mappings = next(has_it, tables[0])
        mapping = mappings.by_name.get(name)
        requested = f"requests {plain(use.key)}"
        if mapping is not None:
            yield from _of_mapped(use, mapping)
        elif name in mappings.rejected:
            message = f"{requested}, which can't be used: {mappings.rejected[name]}"
            yield Problem(Code.UNMAPPED, message, use.user, use.namespace)
        elif mappings is not namespace or name not in namespace.modes:
            why = (
                "a physical resource that no mapping of the namespace resolves to"
                if names.is_physical(name) and mappings is namespace
                else "which does not exist in the namespace"
            )
            near = nearest(name, *[each.by_name for each in tables])
            question = f"; did you mean {plain(near)}?" if near else ""
            yield Problem(Code.UNMAPPED, f"{requested}, {why}{question}", use.user, use.namespace)


def _of_mapped(use: ResourceUse, mapping: Mapping) -> Iterator[Problem]:
    requested = f"requests {plain(use.key)}"
    if mapping.deprecated is not None:
        advice = mapping.deprecated and f": {plain(mapping.deprecated)}"
        message = f"{requested}, which is deprecated{advice}"
        yield Problem(Code.DEPRECATED, message, use.user, use.namespace)
    effects = mapping.resolution.effects
    placed = effects is not None and (effects.node_selector or effects.tolerations)
    if placed and use.user.startswith("DaemonSet "):
        message = (
            f"{requested}, whose node selector or tolerations the DaemonSet's controller doesn't "
            "see: put them into the template too"
        )
        yield Problem(Code.DAEMONSET, message, use.user, use.namespace)


def _about(code: Code, mapping: Mapping, message: str) -> Problem:
    return Problem(code, message, f"{mapping.kind} {plain(mapping.name)}", mapping.namespace)
