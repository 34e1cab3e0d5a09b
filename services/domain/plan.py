"""What is to be done to one container: what its names stand for, and whether it may have them."""

from collections import Counter

import msgspec

from services.domain import env_rules, hints, names
from services.domain.asks import Ask, read_asks
from services.domain.env_rules import Function
from services.domain.mappings import Mapping, Mode, NamespaceMappings
from services.domain.pod import Place, environment
from services.domain.refusals import RefusalReason, Refusals
from services.domain.text import clip, listing, plain, quote

_REASON_SHOWN = 400  # characters of why a mapping can't be used, within a message
_ASKS_SHOWN = 4  # names that a message about modes lists


_ONE_MODE = {mode: frozenset({mode}) for mode in Mode}
_ALL_MODES = frozenset(Mode)


class Plan(msgspec.Struct, frozen=True):
    """What is to be done to one container.

    Attributes:
        place: the container.
        mapped: what it asks for by logical name, and what that stands for; by name.
        direct: what it asks for by physical name.
        units: how many units of each physical name, with domain, it gets.
        modes: the modes in which a node could serve all of it; None if it asks for no unit.
        written: the functions that its env spells already, by number.
        env_is_empty: whether its env has no variable at all.
    """

    place: Place
    mapped: list[tuple[Ask, Mapping]]
    direct: list[Ask]
    units: dict[str, int]
    modes: frozenset[Mode] | None
    written: dict[int, Function]
    env_is_empty: bool

    def new_functions(self) -> list[Function]:
        """Return the function of each unit that is to be programmed and that env lacks."""
        functions: list[Function] = []
        for ask, mapping in self.mapped:
            if function := _function(mapping):
                functions += [function] * ask.count
        return functions

    def wanted(self) -> dict[str, Counter[Function]]:
        """Return which functions must be in the units of each physical name, with domain."""
        wanted: dict[str, Counter[Function]] = {}
        for ask, mapping in self.mapped:
            if function := _function(mapping):
                wanted.setdefault(target(ask, mapping), Counter())[function] += ask.count
        regions = {ask.name: ask.key for ask in self.direct if ask.count}
        for function in self.written.values():
            wanted.setdefault(regions[f"region-{function[0]}"], Counter())[function] += 1
        return wanted


def target(ask: Ask, mapping: Mapping) -> str:
    """Return the physical name, with domain, that an ask by logical name becomes."""
    return f"{ask.domain}/{mapping.resource}"


def plan_container(
    place: Place,
    mappings: NamespaceMappings,
    *,
    prefixes: tuple[str, ...],
    max_units: int,
    refusals: Refusals,
) -> Plan:
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
    asks = read_asks(place, prefixes, refusals)
    units = sum(ask.count for ask in asks)
    if units > max_units:
        message = (
            f"asks for {units} accelerators, and the limit is {max_units} units a container "
            "(--max-units of the webhook)"
        )
        refusals.add(RefusalReason.TOO_MANY_UNITS, place, message)
    mapped, direct = _resolve(place, asks, mappings, refusals)
    modes = _common_modes(place, mapped, direct, mappings, refusals)
    written, env_is_empty = _written(place, direct, mappings, refusals)
    return Plan(place, mapped, direct, _units(mapped, direct), modes, written, env_is_empty)


def _units(mapped: list[tuple[Ask, Mapping]], direct: list[Ask]) -> dict[str, int]:
    units = {ask.key: ask.count for ask in direct}
    for ask, mapping in mapped:
        key = target(ask, mapping)
        units[key] = units.get(key, 0) + ask.count
    return units


def _function(mapping: Mapping) -> Function | None:
    """Return what is to be programmed for a mapping, None where that isn't the suite's work."""
    if mapping.mode is Mode.REGION and mapping.afu_id is not None:
        return (mapping.interface_id, mapping.afu_id)
    return None


def _resolve(
    place: Place, asks: list[Ask], mappings: NamespaceMappings, refusals: Refusals
) -> tuple[list[tuple[Ask, Mapping]], list[Ask]]:
    """Sort what is asked for into logical names, with their mappings, and physical ones."""
    mapped: list[tuple[Ask, Mapping]] = []
    direct: list[Ask] = []
    for ask in asks:
        mapping = mappings.by_name.get(ask.name)
        if mapping is not None:
            mapped.append((ask, mapping))
        elif ask.name in mappings.by_resource:
            direct.append(ask)
        elif refusals.full:
            break
        else:
            _refuse_name(place, ask, mappings, refusals)
    return mapped, direct


def _refuse_name(place: Place, ask: Ask, mappings: NamespaceMappings, refusals: Refusals) -> None:
    namespace = f"namespace {quote(mappings.namespace)}"
    asked = plain(ask.key)
    if ask.name in mappings.rejected:
        reason = clip(mappings.rejected[ask.name], _REASON_SHOWN)
        message = f"asks for {asked}, whose mapping can't be used: {reason}"
        refusals.add(RefusalReason.UNUSABLE_MAPPING, place, message)
        return
    if names.is_physical(ask.name):
        code = RefusalReason.UNMAPPED_RESOURCE
        message = f"asks for {asked}, a physical name that no mapping of {namespace} leads to"
    else:
        code = RefusalReason.UNKNOWN_NAME
        message = f"asks for {asked}, which is not mapped in {namespace}"
    refusals.add(code, place, message + _suggestion(ask, mappings))


def _suggestion(ask: Ask, mappings: NamespaceMappings) -> str:
    if not mappings.by_name:
        return "; nothing is mapped there: create an AcceleratorFunction or FpgaRegion for it"
    near = hints.nearest(ask.name, mappings.by_name)
    question = f"; did you mean {ask.domain}/{near}?" if near else "."
    return f"{question} Mapped there: {hints.known_names(mappings.by_name)}"


def _common_modes(
    place: Place,
    mapped: list[tuple[Ask, Mapping]],
    direct: list[Ask],
    mappings: NamespaceMappings,
    refusals: Refusals,
) -> frozenset[Mode] | None:
    """Return the modes in which a node could serve all of it; a node runs one mode."""
    by_key = {ask.key: _ONE_MODE[mapping.mode] for ask, mapping in mapped if ask.count}
    for ask in direct:
        if ask.count:
            by_key[ask.key] = mappings.modes_of(ask.name)
    if not by_key:
        return None
    common = _ALL_MODES.intersection(*by_key.values())
    if not common:
        shown = [
            f"{plain(key)} (mode {' or '.join(sorted(modes))})"
            for key, modes in sorted(by_key.items())
        ]
        message = (
            "asks for resources of different modes, but a node runs one mode: "
            f"{listing(shown[:_ASKS_SHOWN], more=len(shown[_ASKS_SHOWN:]))}; "
            "ask for them in different pods"
        )
        refusals.add(RefusalReason.MIXED_MODES, place, message)
    return common


def _written(
    place: Place, direct: list[Ask], mappings: NamespaceMappings, refusals: Refusals
) -> tuple[dict[int, Function], bool]:
    """Return the functions that env spells already, and whether env is empty.

    If it has one that may not be there, it counts as having none.
    """
    variables, is_empty = environment(place, env_rules.RESERVED)
    if not variables:
        return {}, is_empty
    units: Counter[str] = Counter()
    for ask in direct:
        units[ask.name] += ask.count
    written = env_rules.read_functions(variables, mappings, units)
    for problem in written.problems:
        refusals.add(RefusalReason.ENV_NOT_ALLOWED, place, problem)
    return written.by_number, is_empty
