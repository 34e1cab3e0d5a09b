"""The plan for one container: what its names resolve to, and whether it may have them."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from services import names
from services.admission.accelerators import AcceleratorPlan
from services.admission.requested import EarlierRequests, ResourceRequest, refuse_name
from services.mappings.index import NamespaceMappings, NameTable
from services.mappings.model import Function, Mode
from services.pods.functions import RESERVED, permitted_functions
from services.pods.pod import ContainerRef, environment
from services.pods.reasons import ReviewReason
from services.pods.refusals import Refusals
from services.pods.requests import ResourceCount
from services.process.text import listing, plain

_REQUESTS_SHOWN = 4  # names that a message about modes lists

NOTHING_EARLIER = EarlierRequests()
_ONE_MODE: dict[Mode | None, frozenset[Mode]] = {mode: frozenset({mode}) for mode in Mode}


class ContainerPlan(msgspec.Struct, frozen=True, gc=False):
    """The changes to one container."""

    ref: ContainerRef
    mapped: list[ResourceRequest]
    """The requests by logical name; sorted by name."""
    direct: list[ResourceCount]
    """The requests by physical name; sorted by name."""
    units: dict[str, int]
    """How many units of each physical name, with domain, the container gets."""
    modes: frozenset[Mode] | None
    """The modes in which a node could serve all requests; None if no unit is requested."""
    written: dict[int, Function]
    """The functions that its env names already, by number."""
    env_is_empty: bool
    accelerators: AcceleratorPlan | None = None
    """What its names of accelerators need; None if it has none."""
    earlier: EarlierRequests = NOTHING_EARLIER
    """What it requested before, of which `direct` has the physical names."""

    @property
    def rewritten(self) -> list[ResourceRequest]:
        """The requests by logical name, of all domains."""
        return self.mapped + self.accelerators.mapped if self.accelerators else self.mapped

    def wanted(self) -> dict[str, Counter[Function]]:
        """Return which functions must be in the units of each physical name, with domain."""
        wanted: dict[str, Counter[Function]] = {}
        left = Counter(self.written.values())
        for request in (*self.earlier.fpga, *self.mapped):
            if function := request.function:
                wanted.setdefault(request.resource, Counter())[function] += request.units
        for request in self.earlier.fpga:
            left.subtract(request.functions())
        regions: dict[str, list[str]] = {}
        for count in self.direct:
            if count.units:
                regions.setdefault(_name(count.key), []).append(count.key)
        for function in left.elements():
            region, *others = regions[names.region_name(function[0])]
            # Variables name no domain. If regions of two may be meant, the call that wrote them
            # has checked them.
            if not others:
                wanted.setdefault(region, Counter())[function] += 1
        return wanted


def plan_container(
    ref: ContainerRef,
    counts: list[ResourceCount],
    mappings: NamespaceMappings,
    refusals: Refusals,
    *,
    tables: Sequence[NameTable] = (),
    accelerators: AcceleratorPlan | None = None,
    earlier: EarlierRequests = NOTHING_EARLIER,
) -> ContainerPlan:
    """Plan what is to be done to a container; `counts` is what it requests of FPGAs' domains.

    `tables` are the names of accelerators, which a refusal may suggest; `earlier` is what it
    requested before, of which `counts` has the physical names.

    Raises:
        InvalidReview: its env can't be read.
    """
    mapped, direct = _resolve(ref, counts, mappings, tables, refusals)
    units: dict[str, int] = {}
    for count in direct:
        units[count.key] = count.units
    for request in mapped:
        units[request.resource] = units.get(request.resource, 0) + request.units
    written, env_is_empty = _written_functions(ref, counts, direct, mappings, refusals)
    # Names of an earlier mutation are of one mode, and so are those that are added to them.
    modes = _modes([*mapped, *earlier.fpga] if mapped else [], direct, written, mappings)
    common = frozenset.intersection(*modes.values()) if modes else None
    if modes and not common:
        _refuse_modes(ref, modes, refusals)
    return ContainerPlan(
        *(ref, mapped, direct, units, common, written, env_is_empty, accelerators, earlier)
    )


def _name(key: str) -> str:
    """Return the name after the domain."""
    return key.partition("/")[2]


def _resolve(
    ref: ContainerRef,
    counts: list[ResourceCount],
    mappings: NamespaceMappings,
    tables: Sequence[NameTable],
    refusals: Refusals,
) -> tuple[list[ResourceRequest], list[ResourceCount]]:
    """Return the requests by logical name, with their mappings, and those by physical name."""
    mapped: list[ResourceRequest] = []
    direct: list[ResourceCount] = []
    for count in counts:
        key = count.key
        if key == names.UNIT_RESOURCE:
            continue  # pods request units by this name, without a mapping
        domain, _, name = key.partition("/")
        mapping = mappings.by_name.get(name)
        if mapping is not None:
            resource = f"{domain}/{mapping.resolution.resource}"
            mapped.append(ResourceRequest(ref, count, resource, mapping))
        elif name in mappings.modes:
            direct.append(count)
        elif refusals.full:
            break
        else:
            refuse_name(ref, key, [mappings], tables, refusals)
    return mapped, direct


def _modes(
    mapped: list[ResourceRequest],
    direct: list[ResourceCount],
    written: dict[int, Function],
    mappings: NamespaceMappings,
) -> dict[str, frozenset[Mode]]:
    """Return the modes in which a node could serve each request; a node runs one mode."""
    modes = {each.key: _ONE_MODE[each.mapping.resolution.mode] for each in mapped if each.units}
    # An earlier mutation rewrote functions of mode region to these.
    programmed = {names.region_name(interface_id) for interface_id, _ in written.values()}
    for each in direct:
        if each.units:
            name = _name(each.key)
            in_region = name in programmed
            modes[each.key] = _ONE_MODE[Mode.REGION] if in_region else mappings.modes_of(name)
    return modes


def _refuse_modes(ref: ContainerRef, modes: dict[str, frozenset[Mode]], refusals: Refusals) -> None:
    shown = [f"{plain(key)} (mode {' or '.join(sorted(modes[key]))})" for key in sorted(modes)]
    message = (
        "resources of different modes are requested, but a node runs one mode: "
        f"{listing(shown, most=_REQUESTS_SHOWN)}; "
        "request them in different pods"
    )
    refusals.add(ReviewReason.MIXED_MODES, ref, message)


def _written_functions(
    ref: ContainerRef,
    counts: list[ResourceCount],
    direct: list[ResourceCount],
    mappings: NamespaceMappings,
    refusals: Refusals,
) -> tuple[dict[int, Function], bool]:
    """Return the functions that env names, and whether env is empty.

    An env with a variable that isn't allowed names none.
    """
    variables, is_empty = environment(ref, RESERVED)
    # Nothing is programmed for a container that requests no FPGA: it may have any variable.
    if not variables or not counts:
        return {}, is_empty
    units: Counter[str] = Counter()
    for request in direct:
        units[_name(request.key)] += request.units
    written = permitted_functions(variables, mappings, units)
    for problem in written.problems:
        refusals.add(ReviewReason.ENV_NOT_ALLOWED, ref, problem)
    return written.by_number, is_empty
