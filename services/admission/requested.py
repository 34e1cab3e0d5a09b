"""Requests of a container by one name, and the refusal of a name that nobody maps."""

from collections.abc import Iterable, Sequence

import msgspec

from services import names
from services.mappings.accelerator import Effects
from services.mappings.index import NamespaceMappings, NameTable
from services.mappings.kinds import TABLE
from services.mappings.model import Function, Mapping
from services.mappings.suggestions import known_names, nearest
from services.pods.pod import ContainerRef
from services.pods.reasons import ReviewReason
from services.pods.refusals import Refusals
from services.pods.requests import ResourceCount
from services.process.text import clip, plain, quote

SUGGESTED = 4
"""How many problems of a pod may suggest the nearest name: a search takes a millisecond."""

_REASON_SHOWN = 400  # characters of a mapping's error within a message


class ResourceRequest(msgspec.Struct, frozen=True, gc=False):
    """One logical name that a container requests, and what replaces it."""

    ref: ContainerRef
    count: ResourceCount
    resource: str
    """The physical name that replaces it, with domain."""
    mapping: Mapping

    @property
    def key(self) -> str:
        """The full name that is requested, as in limits."""
        return self.count.key

    @property
    def units(self) -> int:
        """How many units this mutation adds."""
        return self.count.units

    @property
    def total(self) -> int:
        """How many units are requested, those of an earlier mutation included."""
        return self.count.total

    @property
    def effects(self) -> Effects | None:
        """Everything else that the pod gets; None if nothing, or if no unit is requested."""
        return self.mapping.resolution.effects if self.total else None

    @property
    def function(self) -> Function | None:
        """The function to program into each unit; None if there is none."""
        return self.mapping.resolution.function

    def functions(self) -> list[Function]:
        """Return the function of each unit that is to be programmed."""
        function = self.function
        return [function] * self.units if function else []


def amounts(requests: Iterable[ResourceRequest]) -> dict[str, int]:
    """Return how many of each resource the names stand for; those of one resource add up."""
    found: dict[str, int] = {}
    once: dict[str, int] = {}
    for request in requests:
        units, resource = request.total, request.resource
        found[resource] = found.get(resource, 0) + units * request.mapping.resolution.count
        for also in request.effects.also if request.effects else ():
            if also.per == "Unit":
                found[also.resource] = found.get(also.resource, 0) + also.count * units
            else:  # the container needs it once, whichever of its names ask for it
                once[also.resource] = max(once.get(also.resource, 0), also.count)
    for resource, count in once.items():
        found[resource] = found.get(resource, 0) + count
    return found


def refuse_name(
    ref: ContainerRef,
    key: str,
    table: NameTable,
    other: NameTable,
    refusals: Refusals,
    *shared: NameTable,
) -> None:
    """Refuse a name that a table doesn't map, nor those that all namespaces share.

    `other` has the names of the other family.
    """
    name = key.partition("/")[2]
    namespace = f"namespace {quote(table.namespace)}"
    if name in table.rejected:
        reason = clip(table.rejected[name], _REASON_SHOWN)
        message = f"{plain(key)} can't be used: {reason}"
        refusals.add(ReviewReason.UNUSABLE_MAPPING, ref, message)
        return
    if names.is_physical(name) and isinstance(table, NamespaceMappings):
        code = ReviewReason.UNMAPPED_RESOURCE
        message = (
            f"{plain(key)} is a physical resource, and no mapping of {namespace} resolves to it"
        )
    else:
        code = ReviewReason.UNKNOWN_NAME
        message = f"{plain(key)} does not exist in {namespace}"
    is_compared = len(refusals.listed) < SUGGESTED
    message += _suggestion(name, table, other, shared, is_compared=is_compared)
    refusals.add(code, ref, message)


def _suggestion(
    name: str,
    table: NameTable,
    other: NameTable,
    shared: Sequence[NameTable],
    *,
    is_compared: bool,
) -> str:
    if name in other.by_name:
        mapping = other.by_name[name]
        meant = f"{TABLE[mapping.kind].group}/{name}"  # the usual domain
        return f"; did you mean {plain(meant)}? {mapping.label} has this name"
    others = [each for each in shared if each.namespace != table.namespace]
    known = [each.by_name for each in (table, *others) if each.by_name]
    if not known:
        return "; the namespace has no mappings: ask an administrator for one"
    near = nearest(name, *known) if is_compared else None
    question = f"; did you mean {plain(near)}?" if near else "."
    return f"{question} Available: {'; '.join(map(known_names, known))}"
