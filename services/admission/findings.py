"""What is wrong with the mappings of a cluster, beside what one pod or one mapping tells.

`check` looks at an index together with what nodes advertise and what pods and workloads ask for, as
far as those are known, and gives findings for people: `accelbind check mappings` shows them.
"""

import collections.abc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from services import names
from services.mappings import suggestions as hints
from services.mappings.index import MappingIndex, NamespaceMappings, clash, repeated
from services.mappings.model import KINDS, Mapping, label
from services.pods.manifests import FoundPod
from services.pods.quantity import parse_count
from services.pods.requests import asking_places
from services.process.errors import InvalidQuantity
from services.process.text import listing, plain

_SHOWN = 4  # names that a message lists

Told: TypeAlias = collections.abc.Mapping[str, list[str]]
"""What was said of those that can't be used, by reason: each place where that is the case."""


class Code(StrEnum):
    """What kind of thing is found, in the order in which findings are shown.

    Attributes:
        INVALID: a mapping that can't be used.
        CLASH: an AcceleratorFunction and an FpgaRegion of one name; neither can be used.
        UNMAPPED: a pod or workload asks for a name that its namespace doesn't map.
        NEVER_ADVERTISED: a mapping to a resource that no node knows.
        DANGLING: a mapping to a resource that nodes know, but have none of now.
        DUPLICATE: several names of a namespace for the same thing.
        DEPRECATED: a pod or workload asks for a deprecated name.
    """

    INVALID = "invalid"
    CLASH = "clash"
    UNMAPPED = "unmapped"
    NEVER_ADVERTISED = "never-advertised"
    DANGLING = "dangling"
    DUPLICATE = "duplicate"
    DEPRECATED = "deprecated"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        code: what kind of thing.
        namespace: of the mapping, or of what asks for it; empty if nobody can tell.
        name: what it is about, as people call it: ``AcceleratorFunction nlb0``, ``Pod train``.
        message: a sentence.
    """

    code: Code
    namespace: str
    name: str
    message: str


@dataclass(frozen=True, slots=True)
class Wish:
    """A resource of our domains that a pod or workload asks for.

    Attributes:
        namespace: of the pod.
        who: the object that asks, such as ``Deployment train``.
        key: the full name, as in limits.
    """

    namespace: str
    who: str
    key: str


def wishes_of(found: FoundPod, prefixes: tuple[str, ...], *, namespace: str) -> list[Wish]:
    """Return what a pod, or the template of one, asks for of our domains.

    Args:
        found: the pod.
        prefixes: our domains, each with its slash.
        namespace: of a pod that names none.
    """
    keys: set[str] = set()
    for place in asking_places(found.pod, prefixes):
        resources = place.container.resources
        for asked in (resources.limits, resources.requests) if resources else ():
            keys.update(key for key in asked or () if key.startswith(prefixes))
    return [Wish(found.namespace or namespace, found.label, key) for key in sorted(keys)]


def add_advertised(
    totals: dict[str, int], node: object, prefixes: tuple[str, ...]
) -> dict[str, int]:
    """Add what a node offers of our domains to totals by resource, without domain.

    A resource that it knows and has none of counts 0: the kubelet keeps the name of one that is
    gone. What can't be read counts 0 too.
    """
    status = node.get("status") if isinstance(node, dict) else None
    for part in ("capacity", "allocatable"):
        amounts = status.get(part) if isinstance(status, dict) else None
        for key, amount in amounts.items() if isinstance(amounts, dict) else ():
            if key.startswith(prefixes):
                name = key.partition("/")[2]
                count = _count(amount) if part == "allocatable" else 0
                totals[name] = totals.get(name, 0) + count
    return totals


def check(
    index: MappingIndex,
    *,
    advertised: collections.abc.Mapping[str, int] | None = None,
    wishes: Iterable[Wish] = (),
    problems: Sequence[str] = (),
) -> list[Finding]:
    """Return what is wrong.

    Args:
        index: the mappings that are looked at.
        advertised: how many of each resource, without domain, nodes can give; None if that isn't
            known.
        wishes: what pods and workloads ask for.
        problems: what whoever read the mappings said of those that can't be used, with more than
            the index knows, such as file and line.
    """
    told: dict[str, list[str]] = {}
    for problem in dict.fromkeys(problems):
        told.setdefault(problem.partition(": ")[2], []).append(problem)
    found = [
        *_unread(index, told),
        *(
            finding
            for namespace in index.namespaces
            for finding in _of_namespace(index.namespace(namespace), told, advertised)
        ),
        *_of_wishes(index, wishes),
    ]
    order = list(Code)
    return sorted(found, key=lambda one: (order.index(one.code), one.namespace, one.name))


def _count(amount: object) -> int:
    try:
        return parse_count(amount) if isinstance(amount, str | int | float) else 0
    except InvalidQuantity:
        return 0


def _unread(index: MappingIndex, told: Told) -> Iterator[Finding]:
    """Yield what is wrong with what isn't even known by name."""
    reasons = {
        reason
        for namespace in index.namespaces
        for reason in index.namespace(namespace).rejected.values()
    }
    for reason, places in told.items():
        for problem in places:
            if reason not in reasons and problem not in reasons:
                yield Finding(Code.INVALID, "", "", problem)


def _of_namespace(
    mappings: NamespaceMappings,
    told: Told,
    advertised: collections.abc.Mapping[str, int] | None,
) -> Iterator[Finding]:
    for name, reason in mappings.rejected.items():
        for problem in told.get(reason, [reason]):
            yield _of_rejected(mappings.namespace, name, reason, problem)
    yield from _duplicates(mappings)
    if advertised is not None:
        for mapping in mappings.by_name.values():
            yield from _of_resource(mapping, advertised)


def _of_rejected(namespace: str, name: str, reason: str, told: str) -> Finding:
    if reason == clash(namespace, name):
        return Finding(Code.CLASH, namespace, plain(name), reason)
    kinds = [kind for kind in KINDS if reason.startswith(f"{label(kind, namespace, name)}")]
    again = any(reason == repeated(kind, namespace, name) for kind in kinds)
    code = Code.DUPLICATE if again else Code.INVALID
    return Finding(code, namespace, " ".join([*kinds, plain(name)]), told)


def _duplicates(mappings: NamespaceMappings) -> Iterator[Finding]:
    same: dict[tuple[object, ...], list[Mapping]] = {}
    for mapping in mappings.by_name.values():
        if mapping.deprecated is None:
            key = (mapping.resource, mapping.afu_id, mapping.mode)
            same.setdefault(key, []).append(mapping)
    for group in same.values():
        if len(group) > 1:
            first, *others = sorted(group, key=lambda one: one.name)
            shown = [plain(one.name) for one in others[:_SHOWN]]
            message = (
                f"{listing(shown, more=len(others) - len(shown))} and this one are the same "
                f"({first.resource}, mode {first.mode}): deprecate or delete all but one"
            )
            yield _about(Code.DUPLICATE, first, message)


def _of_resource(
    mapping: Mapping, advertised: collections.abc.Mapping[str, int]
) -> Iterator[Finding]:
    amount = advertised.get(mapping.resource)
    if amount is None:
        message = f"no node knows {mapping.resource}: is there one of mode {mapping.mode} with it?"
        yield _about(Code.NEVER_ADVERTISED, mapping, message)
    elif amount == 0:
        message = (
            f"nodes know {mapping.resource}, but none has a healthy one now: the card is gone, "
            "broken or programmed to something else, or the plugin doesn't run"
        )
        yield _about(Code.DANGLING, mapping, message)


def _of_wishes(index: MappingIndex, wishes: Iterable[Wish]) -> Iterator[Finding]:
    for wish in dict.fromkeys(wishes):
        mappings = index.namespace(wish.namespace)
        domain, _, name = wish.key.partition("/")
        mapping = mappings.by_name.get(name)
        asked = f"asks for {plain(wish.key)}"
        if mapping is not None:
            if mapping.deprecated is not None:
                advice = mapping.deprecated and f": {plain(mapping.deprecated)}"
                message = f"{asked}, which is deprecated{advice}"
                yield Finding(Code.DEPRECATED, wish.namespace, wish.who, message)
        elif name in mappings.rejected:
            message = f"{asked}, whose mapping can't be used: {mappings.rejected[name]}"
            yield Finding(Code.UNMAPPED, wish.namespace, wish.who, message)
        elif name not in mappings.by_resource:
            why = (
                "a physical name that no mapping of the namespace leads to"
                if names.is_physical(name)
                else "which the namespace doesn't map"
            )
            near = hints.nearest(name, mappings.by_name)
            question = f"; did you mean {domain}/{plain(near)}?" if near else ""
            yield Finding(Code.UNMAPPED, wish.namespace, wish.who, f"{asked}, {why}{question}")


def _about(code: Code, mapping: Mapping, message: str) -> Finding:
    return Finding(code, mapping.namespace, f"{mapping.kind} {plain(mapping.name)}", message)
