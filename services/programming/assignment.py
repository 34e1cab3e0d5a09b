"""Which function goes into which port before a container starts, with the least programming.

The kubelet has chosen the regions, the pod's spec names the functions. A region is a card's engine
together with its ports, including those on virtual functions.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from services.devices.model import Card, Contents, Fme, Inventory, Port
from services.process.errors import ExternalFailure, NotAllowed
from services.process.problem import Problem
from services.process.text import count, plain


@dataclass(frozen=True, slots=True)
class Region:
    """A region of a card."""

    card: Card
    engine: Fme
    ports: tuple[Port, ...]
    """Its ports, by number."""
    unread: tuple[Problem, ...] = ()
    """Why virtual functions of its card, and with them some of its ports, can't be read."""

    @property
    def name(self) -> str:
        """Its engine's name, which is its device id: `dfl-fme.0`."""
        return self.engine.name

    @property
    def interface_id(self) -> str:
        """The interface id that a bitstream for it must fit; empty if it can't be read."""
        return self.engine.interface_id

    def carries(self, function: str, contents: Contents) -> bool:
        """Whether a port of it carries a function."""
        # By the records only. The id that a port shows is no proof of what is in it: the loaded
        # image supplies it, and all OpenCL programs show the same one.
        return any(contents.get(port.name) == function for port in self.ports)

    def foreign(self, functions: Collection[str], contents: Contents) -> tuple[Port, ...]:
        """The ports that carry none of some functions, or whose content is unknown."""
        return tuple(port for port in self.ports if contents.get(port.name) not in functions)


def regions_of(inventory: Inventory) -> dict[str, Region]:
    """The regions that a scan found, by name."""
    return {
        card.fme.name: Region(
            card=card,
            engine=card.fme,
            ports=inventory.ports(card),
            unread=tuple(each.failure for each in inventory.members(card) if each.failure),
        )
        for card in inventory.cards
        if card.fme is not None and card.failure is None
    }


@dataclass(frozen=True, slots=True)
class Assignment:
    """A port of a region and the function that it is to carry."""

    region: str
    port: str
    function: str
    """Canonical AFU id, or id of an OpenCL program."""


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """A region of a container, and the function that each of its ports is to carry."""

    region: Region
    kept: tuple[Assignment, ...]
    """Its ports that carry a wanted function."""
    programmed: tuple[Assignment, ...]
    """Its ports that have to be programmed, all with one function."""


def plan(
    functions: Sequence[str],
    ids: Sequence[str],
    regions: Mapping[str, Region],
    contents: Contents,
    *,
    interface_id: str,
    who: str,
) -> tuple[RegionPlan, ...]:
    """Decide which of the given regions, by name, gets which function; `who` is for messages.

    Raises:
        NotAllowed: It wants more functions than it was given regions.
        ExternalFailure: A region is gone, changed, or can't be programmed or read as a whole.
    """
    given = list(dict.fromkeys(ids))
    if len(functions) > len(given):  # each function needs a region of its own
        raise NotAllowed(
            f"{who} names {count(len(functions), 'function')} and was given"
            f" {count(len(given), 'region')}:"
            " request as many regions as functions"
        )
    present = [_present(each, regions, interface_id) for each in given]
    matched = _match(functions, present, contents)
    planned: list[RegionPlan] = []
    rest = [functions[n] for n in range(len(functions)) if n not in matched.values()]
    for number, region in enumerate(present):
        if number in matched:
            function = functions[matched[number]]
        else:
            # Beyond the functions, a region must carry one of them too.
            function = rest.pop(0) if rest else _spare(region, functions, contents)
        planned.append(_assign(region, function, functions, contents))
    return tuple(planned)


def _match(
    functions: Sequence[str], regions: Sequence[Region], contents: Contents
) -> dict[int, int]:
    """Pair functions with regions where they cost no extra work: a largest bipartite matching."""
    # A function costs nothing extra in a region that carries it. Nor does it in a region with a
    # port that must be programmed anyway, since that port can get it.
    matched: dict[int, int] = {}
    foreign = [bool(region.foreign(functions, contents)) for region in regions]

    def place(function: int, tried: set[int]) -> bool:
        for number, region in enumerate(regions):
            fits = foreign[number] or region.carries(functions[function], contents)
            if number in tried or not fits:
                continue
            tried.add(number)
            if number not in matched or place(matched[number], tried):
                matched[number] = function
                return True
        return False

    for function in range(len(functions)):
        place(function, set())
    return matched


def _spare(region: Region, functions: Sequence[str], contents: Contents) -> str:
    return next((each for each in functions if region.carries(each, contents)), functions[-1])


def _assign(region: Region, function: str, wanted: Sequence[str], contents: Contents) -> RegionPlan:
    # The container gets every port of the region, so each must carry a function that it wants. One
    # that carries any of them keeps it.
    foreign = region.foreign(wanted, contents)
    if not foreign and not region.carries(function, contents):
        foreign = tuple(port for port in region.ports if port.number is not None)[:1]
        if not foreign:
            raise ExternalFailure(
                f"region {plain(region.name)} has no port whose number can be read, which"
                " programming needs"
            )
    for port in foreign:
        if port.number is None:
            raise ExternalFailure(
                f"port {plain(port.name)} of region {plain(region.name)} must be programmed, since"
                " the container gets every port of the region and this one carries no function"
                " that it wants; its number can't be read, which programming needs"
            )
    return RegionPlan(
        region,
        kept=tuple(
            Assignment(region.name, port.name, contents[port.name])
            for port in region.ports
            if port not in foreign
        ),
        programmed=tuple(Assignment(region.name, port.name, function) for port in foreign),
    )


def _present(name: str, regions: Mapping[str, Region], interface_id: str) -> Region:
    region = regions.get(name)
    if region is None:
        raise ExternalFailure(
            f"region {plain(name)} is gone or can't be read; the kubelet will try again, and the"
            " device's health says more; if its card has another name now, delete the pod"
        )
    if region.interface_id != interface_id:
        now = region.interface_id or "none that can be read"
        raise ExternalFailure(
            f"region {plain(name)} should have interface id {interface_id} and has {now}: another"
            " image was flashed, or its card is broken; delete the pod to get another region"
        )
    if region.unread:
        raise ExternalFailure(
            f"not every port of region {plain(region.name)} can be read:"
            f" {plain(region.unread[0].text, 300)}; the kubelet will try again"
        )
    return region
