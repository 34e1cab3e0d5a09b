"""What has to be programmed before a container starts, with the least work.

The kubelet has chosen the regions, the pod's spec names the functions. Each function needs a region
of its own, and a region beyond those must carry one of the functions too. A container gets every
port of its regions, so every port must carry a function that the container wants. A port that
carries one keeps it. The others are programmed with the function that their region was assigned,
and so is a port whose content is unknown. The regions are assigned so that as few ports as possible
are programmed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.devices.model import Port
from services.process.errors import NotAllowed, WorldError
from services.process.text import listing, plain
from services.programming.regions import Records, Region, carried


@dataclass(frozen=True, slots=True)
class Assignment:
    """A port of a region and the function that it is to carry.

    Args:
        region: Name of the region.
        port: Name of the port.
        function: Canonical AFU id, or id of an OpenCL program.
    """

    region: str
    port: str
    function: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Every port of a container's regions, and the function that it is to carry.

    Args:
        kept: Ports that carry a wanted function.
        programmed: Ports that have to be programmed, all of a region with one function.
    """

    kept: tuple[Assignment, ...]
    programmed: tuple[Assignment, ...]


def plan(
    functions: Sequence[str],
    ids: Sequence[str],
    regions: Mapping[str, Region],
    records: Records,
    *,
    interface_id: str,
    who: str,
) -> Plan:
    """Decide which region gets which function.

    Args:
        functions: What the container wants, at least one.
        ids: The regions that it was given, by name.
        regions: The node's regions as they are at this moment.
        records: Which OpenCL program is in which port.
        interface_id: Canonical interface id that the regions must have.
        who: The container and its pod, for messages.

    Raises:
        NotAllowed: It wants more functions than it was given regions.
        WorldError: A region is gone, changed, or can't be programmed, or can't be read as a whole.
    """
    given = list(dict.fromkeys(ids))
    if len(functions) > len(given):
        raise NotAllowed(
            f"{who} names {len(functions)} functions and was given {len(given)} regions:"
            " let it ask for as many"
        )
    here = [_present(each, regions, interface_id) for each in given]
    matched = _match(functions, here, records)
    kept: list[Assignment] = []
    programmed: list[Assignment] = []
    rest = [functions[n] for n in range(len(functions)) if n not in matched.values()]
    for number, region in enumerate(here):
        if number in matched:
            function = functions[matched[number]]
        else:
            function = rest.pop(0) if rest else _spare(region, functions, records)
        kept_here, programmed_here = _assign(region, function, functions, records)
        kept.extend(kept_here)
        programmed.extend(programmed_here)
    return Plan(tuple(kept), tuple(programmed))


def _spare(region: Region, functions: Sequence[str], records: Records) -> str:
    """The function for a region beyond those that the functions need: one that it carries."""
    return next((each for each in functions if region.carrier(each, records)), functions[-1])


def _assign(
    region: Region, function: str, wanted: Sequence[str], records: Records
) -> tuple[list[Assignment], list[Assignment]]:
    """The ports of a region to keep, and those to program with its function.

    Raises:
        WorldError: A port must be programmed and can't be.
    """
    foreign = region.foreign(wanted, records)
    if not foreign and region.carrier(function, records) is None:
        foreign = (_programmable(region),)
    for port in foreign:
        if port.number is None:
            raise WorldError(
                f"port {plain(port.name)} of region {plain(region.name)} must be programmed, since"
                " the container gets every port of the region and this one carries no function"
                " that it wants; its number can't be read, which programming needs"
            )
    names = {port.name for port in foreign}
    kept = [
        Assignment(region.name, port.name, carried(port, records))
        for port in region.ports
        if port.name not in names
    ]
    return kept, [Assignment(region.name, port.name, function) for port in foreign]


def _match(functions: Sequence[str], regions: Sequence[Region], records: Records) -> dict[int, int]:
    """As many regions as possible with a function that costs no extra work: a bipartite matching.

    A function costs nothing extra in a region that carries it. Nor does it in a region with a
    port that must be programmed anyway, since that port can get it.

    Returns:
        The function's number by the region's.
    """
    taken: dict[int, int] = {}
    foreign = [bool(region.foreign(functions, records)) for region in regions]

    def place(function: int, tried: set[int]) -> bool:
        for number, region in enumerate(regions):
            fits = foreign[number] or region.carrier(functions[function], records) is not None
            if number in tried or not fits:
                continue
            tried.add(number)
            if number not in taken or place(taken[number], tried):
                taken[number] = function
                return True
        return False

    for function in range(len(functions)):
        place(function, set())
    return taken


def _present(name: str, regions: Mapping[str, Region], interface_id: str) -> Region:
    region = regions.get(name)
    if region is None:
        raise WorldError(
            f"region {plain(name)} is not there any more, or can't be read; the kubelet will try"
            " again, and its health says more"
        )
    if region.interface_id != interface_id:
        now = region.interface_id or "none that can be read"
        raise WorldError(
            f"region {plain(name)} should have interface id {interface_id} and has {now}: it was"
            " flashed anew, or its card is broken; delete the pod to have another region"
        )
    if region.unread:
        raise WorldError(
            f"nobody can tell what every port of region {plain(region.name)} carries:"
            f" {plain(region.unread[0].message, 300)}; the kubelet will try again"
        )
    return region


def _programmable(region: Region) -> Port:
    port = region.programmable
    if port is None:
        ports = listing([each.name for each in region.ports]) if region.ports else "no port"
        raise WorldError(
            f"region {plain(region.name)} has no port that could be programmed: it has {ports}, and"
            " none whose number can be read"
        )
    return port
