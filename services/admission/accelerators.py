"""The plan for a container's names of accelerators: resources, variables, and what contradicts."""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as ReadOnly
from functools import cache, partial

import msgspec

from services.admission.requested import ResourceRequest, refuse_name
from services.mappings.index import NameTable
from services.mappings.model import Mapping
from services.pods.pod import ContainerRef, environment
from services.pods.refusals import RefusalReason, Refusals
from services.pods.requests import ResourceCount, read_count
from services.process.text import plain


class AcceleratorPlan(msgspec.Struct, frozen=True, gc=False):
    """What is to be done to one container for its names of accelerators."""

    mapped: list[ResourceRequest]
    """The requests by logical name; sorted by name."""
    amounts: dict[str, int]
    """How many of each resource the container gets, its own requests included."""
    noted: dict[str, int]
    """The units of each name to note, those of an earlier mutation included."""
    stale: list[str]
    """Names that an earlier note has, and whose resources the container doesn't request."""
    variables: list[dict[str, str]]
    """What is added to its env."""


def plan_accelerators(
    ref: ContainerRef,
    counts: Sequence[ResourceCount],
    tables: Sequence[NameTable],
    prefixes: tuple[str, ...],
    refusals: Refusals,
    *,
    others: NameTable,
    earlier: ReadOnly[str, int],
) -> AcceleratorPlan:
    """Plan what is to be done for a container's names of accelerators, which are in `counts`.

    `tables` are the names of its namespace and then the shared ones, `others` those of FPGAs. No
    target may begin with one of the `prefixes`. `earlier` has the units of each name noted before.

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
            mapped.append(
                ResourceRequest(ref, count.key, resource, count.units, count.in_requests, mapping)
            )
    noted = {each.key: each.units for each in mapped}
    own = cache(partial(_own, ref, refusals))  # a quantity of 128 characters takes a while to read
    # Another webhook may have added names to a pod that was mutated before. Names of the earlier
    # mutation are in its note, and their resources in its limits: all are evaluated together.
    kept = _earlier(ref, earlier, tables, own)
    before, amounts = _amounts(kept), _amounts(mapped)
    if kept:
        noted = {key: noted.get(key, 0) + earlier.get(key, 0) for key in [*earlier, *noted]}
        amounts = _amounts(_resolve(ref, noted, tables) or ())
    stale = [key for key in earlier if key not in noted]
    # What the container requests by itself is added; its limits have the earlier amounts too.
    amounts = {
        resource: amount - before.get(resource, 0) + own(resource)
        for resource, amount in amounts.items()
    }
    return AcceleratorPlan(mapped, amounts, noted, stale, _variables(ref, mapped, kept, refusals))


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
            refusals.add(RefusalReason.UNUSABLE_MAPPING, ref, message)
            return None
        if name in table.rejected:  # no shared name takes its place
            refuse_name(ref, key, table, others, refusals)
            return None
    refuse_name(ref, key, tables[0], others, refusals, *tables[1:])
    return None


def _earlier(
    ref: ContainerRef,
    earlier: ReadOnly[str, int],
    tables: Sequence[NameTable],
    own: Callable[[str], int],
) -> list[ResourceRequest]:
    """Return the requests of an earlier note, none if the container hasn't all they stand for."""
    requests = _resolve(ref, earlier, tables) if earlier else None
    amounts = _amounts(requests or ())
    # The pod may be an edited copy of another one, or somebody wrote the note.
    there = all(amount <= own(each) for each, amount in amounts.items())
    return requests if requests and there else []


def _resolve(
    ref: ContainerRef, noted: ReadOnly[str, int], tables: Sequence[NameTable]
) -> list[ResourceRequest] | None:
    """Return the requests of a note, None if it has a name that can't be used."""
    requests = []
    for key, units in noted.items():
        name = key.partition("/")[2]
        mapping = next((each for table in tables if (each := table.by_name.get(name))), None)
        if mapping is None or units < 0:
            return None
        resource = mapping.resolution.resource
        requests.append(
            ResourceRequest(ref, key, resource, units, in_requests=False, mapping=mapping)
        )
    return requests


def _amounts(mapped: Sequence[ResourceRequest]) -> dict[str, int]:
    """Return how many of each resource the names stand for; those of one resource add up."""
    amounts: dict[str, int] = {}
    once: dict[str, int] = {}
    for request in mapped:
        amounts[request.resource] = amounts.get(request.resource, 0) + request.amount
        for also in request.effects.also if request.effects else ():
            if also.per == "Unit":
                amounts[also.resource] = amounts.get(also.resource, 0) + also.count * request.units
            else:  # the container needs it once, whichever of its names ask for it
                once[also.resource] = max(once.get(also.resource, 0), also.count)
    for resource, count in once.items():
        amounts[resource] = amounts.get(resource, 0) + count
    return amounts


def _own(ref: ContainerRef, refusals: Refusals, resource: str) -> int:
    """Return how many of a resource the container requests by itself."""
    count = read_count(ref, resource, refusals)
    return count.units if count is not None else 0


def _variables(
    ref: ContainerRef,
    mapped: Sequence[ResourceRequest],
    earlier: Sequence[ResourceRequest],
    refusals: Refusals,
) -> list[dict[str, str]]:
    """Return the variables of the mappings that the container doesn't set itself."""
    wanted = [*_environment(mapped)]
    if not wanted:
        return []
    own = {
        each.name: each.value or ("" if bytes(each.value_from) == b"null" else None)
        for each in environment(ref, b"")[0]
    }
    # A variable with the value of an earlier request comes from that, not from the container.
    added = {
        name: (value, request)
        for request, name, value in _environment(earlier)
        if own.get(name) == value
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
            refusals.add(RefusalReason.MAPPINGS_CONFLICT, ref, message)
    return [{"name": name, "value": value} for name, (value, _) in added.items() if name not in own]


def _environment(
    requests: Sequence[ResourceRequest],
) -> Iterator[tuple[ResourceRequest, str, str]]:
    """Yield each variable of the requests: request, name, value."""
    for request in requests:
        for name, value in request.effects.env if request.effects else ():
            yield request, name, value
