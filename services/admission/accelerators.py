"""The plan for a container's names of accelerators: resources, variables, and what contradicts."""

from collections.abc import Iterator, Sequence

import msgspec

from services.admission.requested import EarlierRequests, ResourceRequest, amounts, refuse_name
from services.mappings.index import NameTable
from services.mappings.model import Mapping
from services.pods.pod import ContainerRef, environment
from services.pods.reasons import ReviewReason
from services.pods.refusals import Refusals
from services.pods.requests import ResourceCount, read_count
from services.process.text import plain


class AcceleratorPlan(msgspec.Struct, frozen=True, gc=False):
    """The changes to one container for its names of accelerators."""

    mapped: list[ResourceRequest]
    """The requests by logical name; sorted by name."""
    amounts: dict[str, int]
    """How many of each resource the container gets, its own requests included."""
    variables: list[dict[str, str]]
    """What is added to its env."""
    own: frozenset[str]
    """Variables that the container sets itself, to the value that a name would set."""


def plan_accelerators(
    ref: ContainerRef,
    counts: Sequence[ResourceCount],
    tables: Sequence[NameTable],
    prefixes: tuple[str, ...],
    refusals: Refusals,
    *,
    others: NameTable,
    earlier: EarlierRequests,
) -> AcceleratorPlan:
    """Plan what is to be done for a container's names of accelerators, which are in `counts`.

    `tables` are the names of its namespace and then the shared ones, `others` those of FPGAs. No
    target may begin with one of the `prefixes`. `earlier` are the requests of an earlier mutation.

    Raises:
        InvalidReview: its env can't be read.
    """
    mapped = []
    for count in counts:
        if refusals.full:
            break
        mapping = _find(ref, count.key, tables, prefixes, refusals, others=others)
        if mapping is not None:
            resource = mapping.resolution.resource
            mapped.append(ResourceRequest(ref, count, resource, mapping))
    # Another webhook may have added names to a pod that was mutated before. The resources of the
    # earlier names are in the container's limits: all names are evaluated together.
    all_names = {each.key: each for each in (*earlier.accelerators, *mapped)}
    before = amounts(earlier.accelerators)
    # What the container requests by itself is added; its limits have the earlier amounts too.
    wanted = {
        resource: amount - before.get(resource, 0) + _own(ref, refusals, resource)
        for resource, amount in amounts(all_names.values()).items()
    }
    return AcceleratorPlan(mapped, wanted, *_variables(ref, mapped, earlier, refusals))


def logical_target(mapping: Mapping, prefixes: tuple[str, ...]) -> str | None:
    """Return the first resource of a mapping that is a logical name itself, None if none is."""
    effects = mapping.resolution.effects
    also = [each.resource for each in effects.also] if effects else []
    resources = [mapping.resolution.resource, *also]
    return next((each for each in resources if each.startswith(prefixes)), None)


def _find(
    ref: ContainerRef,
    key: str,
    tables: Sequence[NameTable],
    prefixes: tuple[str, ...],
    refusals: Refusals,
    *,
    others: NameTable,
) -> Mapping | None:
    """Return the mapping of the first table that has the name."""
    name = key.partition("/")[2]
    for table in tables:
        if (mapping := table.by_name.get(name)) is not None:
            logical = logical_target(mapping, prefixes)
            if logical is None:
                return mapping
            message = (
                f"{plain(key)} can't be used: {mapping.label} stands for {logical}, whose domain "
                "has logical names only"
            )
            refusals.add(ReviewReason.UNUSABLE_MAPPING, ref, message)
            return None
        if name in table.rejected:  # no shared name takes its place
            refuse_name(ref, key, [table], [others], refusals)
            return None
    refuse_name(ref, key, tables, [others], refusals)
    return None


def _own(ref: ContainerRef, refusals: Refusals, resource: str) -> int:
    """Return how many of a resource the container requests by itself."""
    count = read_count(ref, resource, refusals)
    return count.units if count is not None else 0


def _variables(
    ref: ContainerRef,
    mapped: Sequence[ResourceRequest],
    earlier: EarlierRequests,
    refusals: Refusals,
) -> tuple[list[dict[str, str]], frozenset[str]]:
    """Return the variables that the container lacks, and those that it has with the same value."""
    before, wanted = [*_environment(earlier.accelerators)], [*_environment(mapped)]
    if not wanted:
        return [], earlier.own
    own = {
        each.name: each.value or ("" if bytes(each.value_from) == b"null" else None)
        for each in environment(ref, b"")[0]
    }
    equal = {name for _, name, value in (*before, *wanted) if own.get(name) == value}
    # One with the value of an earlier request comes from that, unless the note says otherwise.
    added = {
        name: (value, request)
        for request, name, value in before
        if own.get(name) == value and name not in earlier.own
    }
    for request, name, value in wanted:
        if name in own and name not in added:
            continue
        other, first = added.setdefault(name, (value, request))
        if other != value:
            message = (
                f"{plain(first.key)} and {plain(request.key)} set {name} to different values: "
                "set it in the container, or request them in different containers"
            )
            refusals.add(ReviewReason.MAPPINGS_CONFLICT, ref, message)
    lacking = [
        {"name": name, "value": value} for name, (value, _) in added.items() if name not in own
    ]
    return lacking, frozenset(equal - added.keys())


def _environment(
    requests: Sequence[ResourceRequest],
) -> Iterator[tuple[ResourceRequest, str, str]]:
    """Yield each variable of the requests: request, name, value."""
    for request in requests:
        for name, value in request.effects.env if request.effects else ():
            yield request, name, value
