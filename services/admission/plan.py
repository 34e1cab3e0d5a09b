"""What is to be done to one container: what its names stand for, and whether it may have them."""

from collections import Counter

import msgspec

from services import names
from services.mappings import suggestions as hints
from services.mappings.index import NamespaceMappings
from services.mappings.model import Mapping, Mode
from services.pods.functions import RESERVED, Function, check_functions
from services.pods.pod import Place, environment
from services.pods.refusals import RefusalReason, Refusals
from services.pods.requests import Count, read_counts
from services.process.text import clip, listing, plain, quote

_REASON_SHOWN = 400  # characters of why a mapping can't be used, within a message
_ASKS_SHOWN = 4  # names that a message about modes lists


_ONE_MODE = {mode: frozenset({mode}) for mode in Mode}


class ResourceRequest(msgspec.Struct, frozen=True, gc=False):
    """One resource that a container asks for, and what it stands for.

    Attributes:
        key: the full name that it asks for, as in limits.
        resource: the physical name, with domain.
        units: how many.
        in_requests: whether it stands in requests too.
        mapping: what the logical name stands for; None if it asks by the physical name.
    """

    key: str
    resource: str
    units: int
    in_requests: bool
    mapping: Mapping | None = None

    @property
    def function(self) -> Function | None:
        """What is to be programmed for a logical name, None where the suite has nothing to do."""
        return self.mapping.pair if self.mapping else None

    def functions(self) -> list[Function]:
        """Return the function of each unit that is to be programmed."""
        function = self.function
        return [function] * self.units if function else []


class ContainerPlan(msgspec.Struct, frozen=True, gc=False):
    """What is to be done to one container.

    Attributes:
        place: the container.
        mapped: what it asks for by logical name; by name.
        direct: what it asks for by physical name; by name.
        units: how many units of each physical name, with domain, it gets.
        modes: the modes in which a node could serve all of it; None if it asks for no unit.
        written: the functions that its env spells already, by number.
        env_is_empty: whether its env has no variable at all.
    """

    place: Place
    mapped: list[ResourceRequest]
    direct: list[ResourceRequest]
    units: dict[str, int]
    modes: frozenset[Mode] | None
    written: dict[int, Function]
    env_is_empty: bool

    def wanted(self) -> dict[str, Counter[Function]]:
        """Return which functions must be in the units of each physical name, with domain."""
        wanted: dict[str, Counter[Function]] = {}
        for ask in self.mapped:
            if function := ask.function:
                wanted.setdefault(ask.resource, Counter())[function] += ask.units
        regions = {_name(ask.key): ask.key for ask in self.direct if ask.units}
        for function in self.written.values():
            wanted.setdefault(regions[f"region-{function[0]}"], Counter())[function] += 1
        return wanted


def plan_container(
    place: Place,
    mappings: NamespaceMappings,
    *,
    prefixes: tuple[str, ...],
    max_units: int,
    refusals: Refusals,
) -> ContainerPlan:
    """Work out what is to be done to a container that asks for something of our domains.

    Args:
        place: the container.
        mappings: those of its namespace.
        prefixes: our domains, each with its slash.
        max_units: how many units it may ask for.
        refusals: takes what is wrong with it; the plan then holds the rest.

    Raises:
        InvalidReview: its env can't be read.
    """
    counts = read_counts(place, prefixes, refusals)
    asked = sum([count.units for count in counts])
    if asked > max_units:
        message = (
            f"asks for {asked} accelerators, and the limit is {max_units} units a container "
            "(--max-units of the webhook)"
        )
        refusals.add(RefusalReason.TOO_MANY_UNITS, place, message)
    mapped, direct = _resolve(place, counts, mappings, refusals)
    units: dict[str, int] = {}
    for ask in direct + mapped:
        units[ask.resource] = units.get(ask.resource, 0) + ask.units
    written, env_is_empty = _written(place, direct, mappings, refusals)
    programmed = {f"region-{interface_id}" for interface_id, _ in written.values()}
    modes = _common_modes(place, mapped + direct, mappings, programmed, refusals)
    return ContainerPlan(place, mapped, direct, units, modes, written, env_is_empty)


def _name(key: str) -> str:
    """Return the name after the domain."""
    return key.partition("/")[2]


def _resolve(
    place: Place, counts: list[Count], mappings: NamespaceMappings, refusals: Refusals
) -> tuple[list[ResourceRequest], list[ResourceRequest]]:
    """Sort what is asked for into logical names, with their mappings, and physical ones."""
    mapped: list[ResourceRequest] = []
    direct: list[ResourceRequest] = []
    for count in counts:
        key = count.key
        if key == names.UNIT_RESOURCE:
            continue  # no mapping stands behind it: pods ask for units by this name
        domain, _, name = key.partition("/")
        mapping = mappings.by_name.get(name)
        if mapping is not None:
            resource = f"{domain}/{mapping.resource}"
            mapped.append(ResourceRequest(key, resource, count.units, count.in_requests, mapping))
        elif name in mappings.by_resource:
            direct.append(ResourceRequest(key, key, count.units, count.in_requests))
        elif refusals.full:
            break
        else:
            _refuse_name(place, domain, name, mappings, refusals)
    return mapped, direct


def _refuse_name(
    place: Place, domain: str, name: str, mappings: NamespaceMappings, refusals: Refusals
) -> None:
    namespace = f"namespace {quote(mappings.namespace)}"
    asked = plain(f"{domain}/{name}")
    if name in mappings.rejected:
        reason = clip(mappings.rejected[name], _REASON_SHOWN)
        message = f"asks for {asked}, whose mapping can't be used: {reason}"
        refusals.add(RefusalReason.UNUSABLE_MAPPING, place, message)
        return
    if names.is_physical(name):
        code = RefusalReason.UNMAPPED_RESOURCE
        message = f"asks for {asked}, a physical name that no mapping of {namespace} leads to"
    else:
        code = RefusalReason.UNKNOWN_NAME
        message = f"asks for {asked}, which is not mapped in {namespace}"
    refusals.add(code, place, message + _suggestion(domain, name, mappings))


def _suggestion(domain: str, name: str, mappings: NamespaceMappings) -> str:
    if not mappings.by_name:
        return "; nothing is mapped there: create an AcceleratorFunction or FpgaRegion for it"
    near = hints.nearest(name, mappings.by_name)
    if near is not None and mappings.by_name[near].deprecated is not None:
        twin = mappings.twin_of(mappings.by_name[near])  # better than a name that is on its way out
        near = near if twin is None else plain(twin.name)
    question = f"; did you mean {domain}/{near}?" if near else "."
    return f"{question} Mapped there: {hints.known_names(mappings.by_name)}"


def _modes(
    ask: ResourceRequest, mappings: NamespaceMappings, programmed: set[str]
) -> frozenset[Mode]:
    """Return the modes in which a node could serve this."""
    if ask.mapping is not None:
        return _ONE_MODE[ask.mapping.mode]
    name = _name(ask.key)
    return _ONE_MODE[Mode.REGION] if name in programmed else mappings.modes_of(name)


def _common_modes(
    place: Place,
    asks: list[ResourceRequest],
    mappings: NamespaceMappings,
    programmed: set[str],
    refusals: Refusals,
) -> frozenset[Mode] | None:
    """Return the modes in which a node could serve all of it; a node runs one mode.

    Args:
        place: the container.
        asks: what it asks for.
        mappings: those of its namespace.
        programmed: the regions, by physical name, that env spells functions for already: they are
            what a function of mode region became when the pod came first.
        refusals: takes what is wrong with it.
    """
    common: frozenset[Mode] | None = None
    for ask in asks:
        if ask.units:
            modes = _modes(ask, mappings, programmed)
            common = modes if common is None else common & modes
    if common is not None and not common:
        shown = [
            f"{plain(ask.key)} (mode {' or '.join(sorted(_modes(ask, mappings, programmed)))})"
            for ask in sorted(asks, key=lambda ask: ask.key)
            if ask.units
        ]
        message = (
            "asks for resources of different modes, but a node runs one mode: "
            f"{listing(shown[:_ASKS_SHOWN], more=len(shown[_ASKS_SHOWN:]))}; "
            "ask for them in different pods"
        )
        refusals.add(RefusalReason.MIXED_MODES, place, message)
    return common


def _written(
    place: Place, direct: list[ResourceRequest], mappings: NamespaceMappings, refusals: Refusals
) -> tuple[dict[int, Function], bool]:
    """Return the functions that env spells already, and whether env is empty.

    If it has one that may not be there, it counts as having none.
    """
    variables, is_empty = environment(place, RESERVED)
    if not variables:
        return {}, is_empty
    units: Counter[str] = Counter()
    for ask in direct:
        units[_name(ask.key)] += ask.units
    written = check_functions(variables, mappings, units)
    for problem in written.problems:
        refusals.add(RefusalReason.ENV_NOT_ALLOWED, place, problem)
    return written.by_number, is_empty
