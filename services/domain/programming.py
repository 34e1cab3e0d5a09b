"""What has to be programmed before a container starts, with the least work.

The kubelet has chosen the regions, the pod's spec names the functions. Each function needs a region
of its own; a region that carries a wanted function keeps it, as many as possible do, and only the
rest is programmed. A region beyond those must carry one of the functions too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.domain.errors import NotAllowed, WorldError
from services.domain.regions import Records, Region
from services.domain.text import listing, plain


@dataclass(frozen=True, slots=True)
class Assignment:
    """A region and the function that it is to carry.

    Args:
        region: Name of the region.
        port: Name of the port that carries the function, or is to be programmed with it.
        function: Canonical AFU id, or id of an OpenCL program.
    """

    region: str
    port: str
    function: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What comes of a container's wish.

    Args:
        kept: Regions that carry what they should.
        programmed: Regions that have to be programmed.
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
        WorldError: A region is gone, changed, or can't be programmed.
    """
    given = list(dict.fromkeys(ids))
    if len(functions) > len(given):
        raise NotAllowed(
            f"{who} names {len(functions)} functions and was given {len(given)} regions:"
            " let it ask for as many"
        )
    here = [_present(each, regions, interface_id) for each in given]
    matched = _match(functions, here, records)
    kept, programmed = [], []
    rest = [functions[n] for n in range(len(functions)) if n not in matched.values()]
    for number, region in enumerate(here):
        if number in matched:
            kept.append(_kept(region, functions[matched[number]], records))
        elif rest:
            programmed.append(_programmed(region, rest.pop(0)))
        else:
            spare = next((each for each in functions if region.carrier(each, records)), "")
            found = _kept(region, spare, records) if spare else None
            kept.extend([found] if found else [])
            programmed.extend([] if found else [_programmed(region, functions[-1])])
    return Plan(tuple(kept), tuple(programmed))


def _match(functions: Sequence[str], regions: Sequence[Region], records: Records) -> dict[int, int]:
    """As many regions as possible with a function that they carry: a bipartite matching.

    Returns:
        The function's number by the region's.
    """
    taken: dict[int, int] = {}

    def place(function: int, tried: set[int]) -> bool:
        for number, region in enumerate(regions):
            if number in tried or region.carrier(functions[function], records) is None:
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
    return region


def _kept(region: Region, function: str, records: Records) -> Assignment:
    port = region.carrier(function, records)
    return Assignment(region.name, port.name if port else "", function)


def _programmed(region: Region, function: str) -> Assignment:
    port = region.programmable
    if port is None:
        ports = listing([each.name for each in region.ports]) if region.ports else "no port"
        raise WorldError(
            f"region {plain(region.name)} has no port that could be programmed: it has {ports}, and"
            " none whose number can be read"
        )
    return Assignment(region.name, port.name, function)
