"""The plan for one container: what its names resolve to, and whether it may have them."""

from collections import Counter

import msgspec

from services import names
from services.mappings.index import NamespaceMappings
from services.mappings.model import Function, Mapping, Mode
from services.mappings.suggestions import known_names, nearest
from services.pods.functions import RESERVED, check_functions
from services.pods.pod import ContainerRef, environment
from services.pods.refusals import RefusalReason, Refusals
from services.pods.requests import ResourceCount
from services.process.text import clip, listing, plain, quote

_REASON_SHOWN = 400  # characters of a mapping's error within a message
_REQUESTS_SHOWN = 4  # names that a message about modes lists

_ONE_MODE = {mode: frozenset({mode}) for mode in Mode}


class ResourceRequest(msgspec.Struct, frozen=True, gc=False):
    """One resource that a container requests, and what the name resolves to."""

    key: str
    """The full name that is requested, as in limits."""
    resource: str
    """The physical name, with domain."""
    units: int
    in_requests: bool
    """Whether the name is in requests too."""
    mapping: Mapping | None = None
    """None for a request by physical name."""

    @property
    def function(self) -> Function | None:
        """What is to be programmed into each unit, None if nothing is."""
        return self.mapping.resolution.function if self.mapping else None

    def functions(self) -> list[Function]:
        """Return the function of each unit that is to be programmed."""
        function = self.function
        return [function] * self.units if function else []


class ContainerPlan(msgspec.Struct, frozen=True, gc=False):
    """What is to be done to one container."""

    ref: ContainerRef
    mapped: list[ResourceRequest]
    """The requests by logical name; sorted by name."""
    direct: list[ResourceRequest]
    """The requests by physical name; sorted by name."""
    units: dict[str, int]
    """How many units of each physical name, with domain, the container gets."""
    modes: frozenset[Mode] | None
    """The modes in which a node could serve all requests; None if no unit is requested."""
    written: dict[int, Function]
    """The functions that its env names already, by number."""
    env_is_empty: bool

    def wanted(self) -> dict[str, Counter[Function]]:
        """Return which functions must be in the units of each physical name, with domain."""
        wanted: dict[str, Counter[Function]] = {}
        for request in self.mapped:
            if function := request.function:
                wanted.setdefault(request.resource, Counter())[function] += request.units
        regions = {_name(request.key): request.key for request in self.direct if request.units}
        for function in self.written.values():
            wanted.setdefault(regions[f"region-{function[0]}"], Counter())[function] += 1
        return wanted


def plan_container(
    ref: ContainerRef, counts: list[ResourceCount], mappings: NamespaceMappings, refusals: Refusals
) -> ContainerPlan:
    """Plan what is to be done to a container that requests something of our domains.

    Args:
        ref: the container.
        counts: what it requests of our domains.
        mappings: those of its namespace.
        refusals: receives its problems; the plan then holds the rest.

    Raises:
        InvalidReview: its env can't be read.
    """
    mapped, direct = _resolve(ref, counts, mappings, refusals)
    units: dict[str, int] = {}
    for request in direct + mapped:
        units[request.resource] = units.get(request.resource, 0) + request.units
    written, env_is_empty = _written_functions(ref, direct, mappings, refusals)
    programmed = {f"region-{interface_id}" for interface_id, _ in written.values()}
    modes = _common_modes(ref, mapped + direct, mappings, programmed, refusals)
    return ContainerPlan(ref, mapped, direct, units, modes, written, env_is_empty)


def _name(key: str) -> str:
    """Return the name after the domain."""
    return key.partition("/")[2]


def _resolve(
    ref: ContainerRef, counts: list[ResourceCount], mappings: NamespaceMappings, refusals: Refusals
) -> tuple[list[ResourceRequest], list[ResourceRequest]]:
    """Return the requests by logical name, with their mappings, and those by physical name."""
    mapped: list[ResourceRequest] = []
    direct: list[ResourceRequest] = []
    for count in counts:
        key = count.key
        if key == names.UNIT_RESOURCE:
            continue  # pods request units by this name, without a mapping
        domain, _, name = key.partition("/")
        mapping = mappings.by_name.get(name)
        if mapping is not None:
            resource = f"{domain}/{mapping.resolution.resource}"
            mapped.append(ResourceRequest(key, resource, count.units, count.in_requests, mapping))
        elif name in mappings.by_resource:
            direct.append(ResourceRequest(key, key, count.units, count.in_requests))
        elif refusals.full:
            break
        else:
            _refuse_name(ref, key, name, mappings, refusals)
    return mapped, direct


def _refuse_name(
    ref: ContainerRef, key: str, name: str, mappings: NamespaceMappings, refusals: Refusals
) -> None:
    namespace = f"namespace {quote(mappings.namespace)}"
    if name in mappings.rejected:
        reason = clip(mappings.rejected[name], _REASON_SHOWN)
        message = f"{plain(key)} can't be used: {reason}"
        refusals.add(RefusalReason.UNUSABLE_MAPPING, ref, message)
        return
    if names.is_physical(name):
        code = RefusalReason.UNMAPPED_RESOURCE
        message = (
            f"{plain(key)} is a physical resource, and no mapping of {namespace} resolves to it"
        )
    else:
        code = RefusalReason.UNKNOWN_NAME
        message = f"{plain(key)} does not exist in {namespace}"
    refusals.add(code, ref, message + _suggestion(name, mappings))


def _suggestion(name: str, mappings: NamespaceMappings) -> str:
    if not mappings.by_name:
        return "; the namespace has no mappings: create an AcceleratorFunction or FpgaRegion"
    near = nearest(name, mappings.by_name)
    if near is not None and mappings.by_name[near].deprecated is not None:
        twin = mappings.twin_of(mappings.by_name[near])  # better than a deprecated name
        near = near if twin is None else plain(twin.name)
    question = f"; did you mean {near}?" if near else "."
    return f"{question} Available: {known_names(mappings.by_name)}"


def _modes(
    request: ResourceRequest, mappings: NamespaceMappings, programmed: set[str]
) -> frozenset[Mode]:
    """Return the modes in which a node could serve a request."""
    if request.mapping is not None:
        return _ONE_MODE[request.mapping.resolution.mode]
    name = _name(request.key)
    return _ONE_MODE[Mode.REGION] if name in programmed else mappings.modes_of(name)


def _common_modes(
    ref: ContainerRef,
    requests: list[ResourceRequest],
    mappings: NamespaceMappings,
    programmed: set[str],
    refusals: Refusals,
) -> frozenset[Mode] | None:
    """Return the modes in which a node could serve all requests; a node runs one mode.

    `programmed` are the regions, by physical name, that env names functions for: an earlier
    mutation rewrote functions of mode region to them.
    """
    common: frozenset[Mode] | None = None
    for request in requests:
        if request.units:
            modes = _modes(request, mappings, programmed)
            common = modes if common is None else common & modes
    if common is not None and not common:
        shown = [
            f"{plain(each.key)} (mode {' or '.join(sorted(_modes(each, mappings, programmed)))})"
            for each in sorted(requests, key=lambda each: each.key)
            if each.units
        ]
        message = (
            "resources of different modes are requested, but a node runs one mode: "
            f"{listing(shown[:_REQUESTS_SHOWN], more=len(shown[_REQUESTS_SHOWN:]))}; "
            "request them in different pods"
        )
        refusals.add(RefusalReason.MIXED_MODES, ref, message)
    return common


def _written_functions(
    ref: ContainerRef,
    direct: list[ResourceRequest],
    mappings: NamespaceMappings,
    refusals: Refusals,
) -> tuple[dict[int, Function], bool]:
    """Return the functions that env names, and whether env is empty.

    An env with a variable that isn't allowed names none.
    """
    variables, is_empty = environment(ref, RESERVED)
    if not variables:
        return {}, is_empty
    units: Counter[str] = Counter()
    for request in direct:
        units[_name(request.key)] += request.units
    written = check_functions(variables, mappings, units)
    for problem in written.problems:
        refusals.add(RefusalReason.ENV_NOT_ALLOWED, ref, problem)
    return written.by_number, is_empty
