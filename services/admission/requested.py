"""Requests of a container by one name: those of now, and those of an earlier mutation.

The API server calls the webhook again after another plugin or webhook changed the pod. One that
finds a name missing may have set it again. Anybody can write the note, and a pod may be an edited
copy of another one, so a noted name counts only while its container has what the name stands for.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as ReadOnly
from typing import Final

import msgspec

from services import names
from services.mappings.accelerator import Effects
from services.mappings.index import NamespaceMappings, NameTable
from services.mappings.kinds import TABLE
from services.mappings.model import Function, Mapping
from services.mappings.suggestions import known_names, nearest
from services.pods.functions import RESERVED, read_functions
from services.pods.pod import ContainerRef, environment
from services.pods.reasons import ReviewReason
from services.pods.refusals import Refusals
from services.pods.requests import ResourceCount, read_count
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
    tables: Sequence[NameTable],
    others: Sequence[NameTable],
    refusals: Refusals,
) -> None:
    """Refuse a name that its family doesn't have.

    `tables` have its names: of the namespace, then those that all share; `others` the other
    family's.
    """
    name, table = key.partition("/")[2], tables[0]
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
    message += _suggestion(name, _known(tables), _known(others), is_compared=is_compared)
    refusals.add(code, ref, message)


def _known(tables: Sequence[NameTable]) -> list[ReadOnly[str, Mapping]]:
    by_namespace = {each.namespace: each.by_name for each in tables}
    return [each for each in by_namespace.values() if each]


def _suggestion(
    name: str,
    known: Sequence[ReadOnly[str, Mapping]],
    others: Sequence[ReadOnly[str, Mapping]],
    *,
    is_compared: bool,
) -> str:
    if not (known or others):
        return "; the namespace has no mappings: ask an administrator for one"
    elsewhere = next((each for each in others if name in each), None)
    near = None
    if elsewhere is None and is_compared:
        near = nearest(name, *known)
        meant = name if near else nearest(name, *others)
        elsewhere = None if near else next((each for each in others if meant in each), None)
        name = meant or name
    if elsewhere is not None:
        mapping = elsewhere[name]
        return f"; did you mean {plain(_domain(mapping) + name)}? {mapping.label} has this name"
    question = f"; did you mean {plain(near)}?" if near else "."
    listed = [known_names(each) for each in known] or [
        known_names(each, _domain(next(iter(each.values())))) for each in others
    ]
    return f"{question} Available: {'; '.join(listed)}"


def _domain(mapping: Mapping) -> str:
    """The usual domain of a name's family."""
    return f"{TABLE[mapping.kind].group}/"


MAX_NOTED_UNITS: Final = 256
"""Units of a name that a note may have: no pod may request more."""

OWN: Final = "env:"
"""The prefix of such a variable in the note: no resource name has a colon."""


class EarlierRequests(msgspec.Struct, frozen=True, gc=False):
    """The requests of a container when the pod was mutated before."""

    fpga: list[ResourceRequest] = []
    """The requests by names of FPGAs."""
    accelerators: list[ResourceRequest] = []
    """The requests by names of accelerators."""
    own: frozenset[str] = frozenset()
    """Variables that the container set itself, to the value that a name would have set."""
    others: dict[str, int] = {}
    """The note of another installation, with names of other domains."""

    @property
    def units(self) -> dict[str, int]:
        """How many units of each name were requested."""
        return {each.key: each.units for each in (*self.fpga, *self.accelerators)}


def earlier_requests(
    ref: ContainerRef,
    noted: ReadOnly[str, int],
    mappings: NamespaceMappings,
    tables: Sequence[NameTable],
    *,
    fpga_prefixes: tuple[str, ...],
    accelerator_prefixes: tuple[str, ...],
) -> EarlierRequests:
    """Return what an earlier mutation noted for a container, and the container still has.

    `noted` has the units of each name. `mappings` has the names of FPGAs, `tables` those of
    accelerators.

    Raises:
        InvalidReview: its env can't be read.
    """
    fpga, accelerators = [], []
    for key, units in noted.items():
        domain, _, name = key.partition("/")
        count = ResourceCount(key, units, in_requests=False)
        # Anybody can write a note, and each unit of it is work.
        if not 0 <= units <= MAX_NOTED_UNITS:
            continue
        if key.startswith(fpga_prefixes) and (mapping := mappings.by_name.get(name)):
            resource = f"{domain}/{mapping.resolution.resource}"
            fpga.append(ResourceRequest(ref, count, resource, mapping))
        elif key.startswith(accelerator_prefixes):
            found = (each for table in tables if (each := table.by_name.get(name)))
            if mapping := next(found, None):
                resource = mapping.resolution.resource
                accelerators.append(ResourceRequest(ref, count, resource, mapping))
    missing = _missing_resources(ref, [*fpga, *accelerators])
    fpga = [each for each in fpga if each.resource not in missing]
    unnamed = _unnamed_functions(ref, fpga)
    fpga = [each for each in fpga if each.function not in unnamed]
    accelerators = [each for each in accelerators if missing.isdisjoint(amounts([each]))]
    own = frozenset(key.removeprefix(OWN) for key in noted if key.startswith(OWN))
    ours = (*fpga_prefixes, *accelerator_prefixes, OWN)
    others = {key: units for key, units in noted.items() if not key.startswith(ours)}
    return EarlierRequests(fpga, accelerators, own, others)


def _missing_resources(ref: ContainerRef, requests: Sequence[ResourceRequest]) -> set[str]:
    """Return the resources of which a container has less than the requests stand for together."""
    unread = Refusals()  # the resources are read again with those that the container requests now
    missing = set()
    for resource, amount in amounts(requests).items():
        count = read_count(ref, resource, unread)
        # Our patch writes 0 units too.
        if count is None or amount > count.units:
            missing.add(resource)
    return missing


def _unnamed_functions(
    ref: ContainerRef, requests: Sequence[ResourceRequest]
) -> Counter[Function | None]:
    """Return the functions that the requests need and a container's variables don't name."""
    needed = Counter[Function | None](
        function for each in requests for function in each.functions()
    )
    if needed:
        needed.subtract(read_functions(environment(ref, RESERVED)[0]).by_number.values())
    return +needed
