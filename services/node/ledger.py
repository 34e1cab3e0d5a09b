"""The devices of a node as its process knows them, and the one place where that changes.

    read_world()  ─►  step(ledger, world, now)  ─►  ledger.offer, .by_name, .inventory, .entries

`step` applies the rules in this order:

1. A card that is worked on stays as it was. One has failed if its driver doesn't return from a call
   or is about to be rebound, or if it appears while it is worked on.
2. A source of devices that can't be read (a card, a device of a type) keeps the devices that it
   had, unhealthy. A device whose resource can't be read keeps the one it had.
3. No device is offered twice: FPGAs come first, then device types.
4. A device that a container has as another resource, or of which it has a node, is unhealthy.
5. A device that was unhealthy is healthy again only after some good readings in a row.

      healthy ── bad ──► lost ── good ──► recovering ── enough of them ──► healthy
                          ▲                   │
                          └──────── bad ──────┘

A device that vanishes is forgotten, and new when it comes back.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, count
from typing import Final, TypeAlias

from services.containers.holders import Given, HeldNodes, Holders, held_by_node, held_by_pods
from services.devices.dra import DraDevice, dra_devices
from services.devices.health import Ignored
from services.devices.held import (
    HELD,
    Parts,
    function_resources,
    held_parts,
    is_number,
    is_other_node,
    possible_ids,
)
from services.devices.model import Card, Device, Inventory, PluginMode, Sighting, TypesReading
from services.devices.ofs import is_in_use
from services.devices.resources import (
    DEFAULT_UNITS,
    NOTHING_ADVERTISED,
    AdvertisedResources,
    completed,
    fpga_sightings,
    with_problems,
)
from services.names import FUNCTION_PREFIX, dra_name
from services.node.repairs import Attempts, still_tried
from services.process.problem import Problem
from services.process.text import listing

NO_DRIVER: Final = "no-driver"
HUNG_IN_DRIVER: Final = "card-hung-in-driver"
LEAVING: Final = "card-leaving"
BUSY: Final = "card-busy"
RECOVERING: Final = "recovering"
UNFINISHED: Final = "programming-unfinished"
RELEASED: Final = "port-released"
CLAIMED_BY_FPGA: Final = "claimed-by-fpga"
CLAIMED_TWICE: Final = "claimed-twice"
DUPLICATE: Final = "duplicate-name"


@dataclass(frozen=True, slots=True)
class World:
    """One reading of a node."""

    error: str = ""
    """Why something could not be read; empty if everything was."""
    holders: Holders | None = None
    """The containers that have devices; None if that is unknown, so that nothing may change."""
    given: frozenset[Given] = frozenset()
    """The nodes that containers were given."""
    cards: Inventory | None = None
    """None if the cards could not be read."""
    types: TypesReading | None = None
    """None if there are no device types, or they could not be read."""
    busy: frozenset[str] = frozenset()
    """Keys of calls that ran while the cards were read."""
    stuck: Mapping[str, float] = field(default_factory=dict)
    """Keys of calls that were given up, and seconds since then."""
    unfinished: frozenset[str] = frozenset()
    """Records of ports whose programming began and has not succeeded."""
    rebinding: frozenset[str] = frozenset()
    """Locks of cards whose driver is about to be rebound."""
    problems: Mapping[str, Problem] = field(default_factory=dict)
    """Problems known from elsewhere, by the id of a device."""
    attempts: Attempts = field(default_factory=dict)
    """Repairs that were tried since the last reading."""

    @property
    def is_known(self) -> bool:
        """Whether enough was read to change anything."""
        return self.holders is not None and (self.cards is not None or self.types is not None)


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that decide about a node's devices."""

    mode: PluginMode = PluginMode.AF
    units: int = DEFAULT_UNITS
    """The number of devices in mode units."""
    ignored: Ignored = field(default_factory=dict)
    """Errors that make nothing unhealthy."""
    good_scans: int = 3
    """Good readings in a row after which a device is healthy again; 1 means at once."""
    spacing: float = 0.0
    """Seconds between two readings for both to count."""
    programs_virtual: frozenset[str] = frozenset()
    """The drivers that program ports on virtual functions."""
    clears_errors: bool = True
    """Whether errors that containers left in ports are cleared."""
    programs: bool = False
    """Whether regions are programmed, and disabled ports enabled."""
    host_root: str = "/"
    """The folder on the host with its `dev/`, where containers' nodes are."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The state of a device that is offered."""

    device: Device
    """As it is offered."""
    since: float
    """When its health or its reasons changed last."""
    was_healthy: bool = False
    good: int = 0
    """Good readings in a row that count, of a device that was healthy before and lost that."""
    counted: float = 0.0
    """When the last of them was."""


Known: TypeAlias = Mapping[Hashable, Mapping[str, Device]]
"""The devices with a resource, by source and id."""


@dataclass(frozen=True, slots=True)
class Share:
    """The part of FPGAs or of device types in the ledger; it stays while they can't be read."""

    devices: tuple[Device, ...] = ()
    known: Known = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Ledger:
    """Everything that a node process knows of devices."""

    rules: Rules = field(default_factory=Rules)
    error: str = ""
    """Why the last reading failed, in part or as a whole."""
    inventory: Inventory | None = None
    """The cards as they count, and what is wrong with the node; None before the first reading."""
    entries: Mapping[str, Entry] = field(default_factory=dict)
    """The devices that are offered, by id."""
    offer: AdvertisedResources = NOTHING_ADVERTISED
    """The devices by resource, and those that can't be offered."""
    holders: Holders = field(default_factory=dict)
    """Who has devices, as last read."""
    fpgas: Share = field(default_factory=Share)
    types: Share = field(default_factory=Share)
    needs_fpgas: bool = True
    """Whether it has had no device of another kind, so that one without FPGAs is a problem."""
    raw: Mapping[tuple[str, str], Card] = field(default_factory=dict)
    """The cards as they were read when nobody worked on them, by driver and place."""
    tried: Attempts = field(default_factory=dict)
    """Repairs that count as tried."""
    latest: Attempts = field(default_factory=dict)
    """Those that were tried since the step before."""

    @cached_property
    def by_name(self) -> Mapping[str, DraDevice]:
        """The devices that are offered, by their names in slices."""
        # What was programmed is for attributes that only slices show.
        programs = self.rules.programs
        found = dra_devices(self.offer, self.inventory or Inventory(), {}, programmable=programs)
        return {each.name: each for each in found}


def step(ledger: Ledger, world: World, now: float) -> Ledger:
    """The ledger after one reading of the node; `now` is a clock that doesn't go back."""
    tried = {**ledger.tried, **world.attempts}
    ledger = replace(ledger, error=world.error, latest=world.attempts)
    if world.holders is None or not world.is_known:
        holders = ledger.holders if world.holders is None else world.holders
        return replace(ledger, holders=holders, tried=tried)
    held = held_parts(held_by_pods(world.holders))
    raw, cards, fpgas = ledger.raw, ledger.inventory and ledger.inventory.cards, ledger.fpgas
    if world.cards is not None:
        raw, counted = _effective_cards(ledger.raw, world.cards.cards, world)
        of_ports = _port_problems(counted, ledger.rules, world.unfinished)
        seen = with_problems(replace(world.cards, cards=counted), of_ports, ledger.rules.ignored)
        cards = seen.cards
        fpgas = _fpgas(seen, ledger, held_parts(world.holders))
    types = ledger.types
    if world.types is not None:
        types = _share(world.types.sightings, world.types.problems, ledger.types.known)
    devices = (*fpgas.devices, *types.devices)
    nodes = held_by_node(devices, world.given, ledger.rules.host_root)
    offer = _merge(devices, held, nodes, world.problems)
    needs_fpgas = ledger.needs_fpgas and not types.devices
    found = world.cards.cards if world.cards else ()
    busy = frozenset(each.place for each in found if each.work_key in world.busy)
    entries = {
        each.id: _entry(ledger, each, now, is_read=_is_read(world, each, busy))
        for each in offer.devices()
    }
    offer = _as_entered(offer, entries)
    problems = tuple(_node_problems(fpgas, types, needs_fpgas=needs_fpgas))
    inventory = Inventory(cards or (), problems)
    return replace(
        ledger,
        inventory=inventory,
        entries=entries,
        offer=ledger.offer if offer == ledger.offer else offer,
        holders=world.holders,
        fpgas=fpgas,
        types=types,
        needs_fpgas=needs_fpgas,
        raw=raw,
        tried=still_tried(tried, inventory, held_parts(world.holders)) if tried else tried,
    )


def _node_problems(fpgas: Share, types: Share, *, needs_fpgas: bool) -> Iterator[Problem]:
    """Yield what is wrong with the node; one that serves other devices need have no FPGA."""
    yield from (each for each in fpgas.problems if each.code != NO_DRIVER or needs_fpgas)
    yield from types.problems


# 1. Cards that are worked on ----------------------------------------------------------------------


def _effective_cards(
    before: Mapping[tuple[str, str], Card], cards: Iterable[Card], world: World
) -> tuple[Mapping[tuple[str, str], Card], tuple[Card, ...]]:
    """The cards to remember as they were read, and the cards as they count."""
    raw, effective = {}, []
    for card in cards:
        # Its name changes while its driver is rebound.
        place, key = (card.driver, card.place), card.work_key
        # While a card is programmed, its files change: ports vanish for a moment, ids can't be
        # read, and registers show errors that will be cleared. That says nothing about its health.
        known = before.get(place) if key in world.busy else card
        if known is not None:
            raw[place] = known
        effective.append(replace(known or card, failure=_card_failure(card, known, world)))
    return raw, tuple(effective)


def _card_failure(card: Card, known: Card | None, world: World) -> Problem | None:
    """Why a card can't be used; `known` is the card as it was read when nobody worked on it."""
    if (seconds := world.stuck.get(card.work_key)) is not None:
        text = (
            f"card {card.name} hangs in its driver since {seconds:.0f} s, in a call that was given"
            " up; if it doesn't come back, reset the card or restart the node"
        )
        return Problem(HUNG_IN_DRIVER, text)
    if card.lock in world.rebinding:
        return Problem(LEAVING, f"the driver of card {card.name} is about to be rebound")
    if known is None:
        # Its function may change meanwhile.
        text = f"card {card.name} is being worked on, and was not read before that"
        return Problem(BUSY, text)
    return known.failure


def _port_problems(
    cards: Iterable[Card], rules: Rules, unfinished: frozenset[str]
) -> dict[str, Problem]:
    """Why ports can't be used in the node's mode, by their names."""
    problems: dict[str, Problem] = {}
    for card in cards:
        is_released = card.lock != card.place and card.driver not in rules.programs_virtual
        for port in card.ports:
            # No record counts for a port that can't be programmed, so no container starts on it.
            if rules.mode.programs and is_released:
                problems[port.name] = Problem(
                    RELEASED,
                    f"{port.name} is released to virtual function {card.address}, and the in-tree"
                    " driver programs only ports of the physical function",
                )
            elif not rules.mode.has_regions and card.record_key(port) in unfinished:
                text = f"programming {port.name} has begun and has not succeeded"
                problems[port.name] = Problem(UNFINISHED, text)
    return problems


# 2. What stays when something can't be read -------------------------------------------------------


def _fpgas(seen: Inventory, ledger: Ledger, held: Parts) -> Share:
    rules, known = ledger.rules, {**ledger.fpgas.known}
    for card in seen.cards if rules.mode.names_functions else ():
        # Which AFU is behind a function that a container has can't be read after a restart. It
        # stays, unhealthy, under the resource that the kubelet knows it by: without that its
        # container could not start again.
        found = {
            function.id: Device(function.id, resource, place=card.place)
            for function in card.functions or ()
            if is_in_use(function)
            for resource in function_resources(held, card, function)
            if resource.startswith(FUNCTION_PREFIX)
        }
        known[card.place] = {**found, **known.get(card.place, {})}
    share = _share(fpga_sightings(seen, rules.mode, units=rules.units), seen.problems, known)
    return replace(share, devices=tuple(completed(each, rules.mode) for each in share.devices))


def _share(sightings: Sequence[Sighting], problems: tuple[Problem, ...], known: Known) -> Share:
    """The devices of some sources now, with what stays of what was known of them."""
    gathered: list[tuple[Hashable, Device]] = []
    for each in sightings:
        last = known.get(each.source, {})
        devices = _under_known_ids(each.devices, last.values()) if each.numbered else each.devices
        gathered += ((each.source, _with_last_resource(device, last)) for device in devices)
    present = {(device.type, device.id) for _, device in gathered}
    for each in sightings:
        if each.broken is None:
            continue
        stays = [
            replace(device, reasons=(each.broken,), afu_ids=("",) * len(device.afu_ids))
            for device in _of_source(each.source, known)
        ]
        if not stays and each.unknown is not None:
            stays = [each.unknown]
        gathered += (
            (each.source, device) for device in stays if (device.type, device.id) not in present
        )
    now: dict[Hashable, dict[str, Device]] = {}
    for source, device in gathered:
        if device.resource:
            now.setdefault(device.place or source, {})[device.id] = device
    return Share(tuple(device for _, device in gathered), now, problems)


def _of_source(source: Hashable, known: Known) -> Iterable[Device]:
    # A card whose address can't be read is identified by its name.
    if own := known.get(source):
        return own.values()
    every = chain.from_iterable(each.values() for each in known.values())
    return [device for device in every if device.card == source]


def _with_last_resource(device: Device, known: Mapping[str, Device]) -> Device:
    """An FPGA that has no resource now, under the one it had."""
    last = known.get(device.id)
    if device.resource or device.type or last is None:
        return device
    # The kubelet stops using it, and users find it where they expect it.
    return replace(device, resource=last.resource, nodes=device.nodes or last.nodes)


def _under_known_ids(devices: Sequence[Device], known: Iterable[Device]) -> list[Device]:
    """The ports of a card under the ids that they had."""
    # The first port of a function changes when one is released, or when its number can't be read
    # for a while. But the kubelet identifies by the id which container has which port.
    last = {device.nodes: device.id for device in known}
    kept = {device.nodes: last[device.nodes] for device in devices if device.nodes in last}
    taken = set(kept.values())
    for device in devices:
        if device.nodes not in kept:
            base = device.id.partition("-")[0]
            others = (f"{base}-{number}" for number in count(1))
            key = next(each for each in chain((device.id, base), others) if each not in taken)
            taken.add(key)
            kept[device.nodes] = key
    return [replace(device, id=kept[device.nodes]) for device in devices]


# 3. and 4. What is offered ------------------------------------------------------------------------


def _merge(
    devices: Sequence[Device], held: Parts, nodes: HeldNodes, problems: Mapping[str, Problem]
) -> AdvertisedResources:
    """Each device once, and none that two claim."""
    claimants = _claimants(devices)
    current = {(device.resource, device.id) for device in devices}
    resources, names = dict[str, dict[str, Device]](), set[str]()
    not_offered: dict[tuple[str, str], Device] = {}
    for device in devices:
        problem = _conflict(device, claimants) if device.resource else None
        # An id and a name in DRA are each one device's.
        own = {device.id, dra_name(device.type, device.id)} if device.type else {device.id}
        if problem is None and device.resource and not names.isdisjoint(own):
            what = f"type {device.type}" if device.type else device.card
            problem = Problem(DUPLICATE, f"{device.id} of {what} has the name of another device")
        if problem is not None:
            device = replace(device, resource="", reasons=(problem,))  # noqa: PLW2901 - the same
        if device.resource:
            names |= own
            others = nodes.get((device.resource, device.id), ())
            more = [*_held_otherwise(device, held, current)] or [*others]
            more += [problems[device.id]] if device.id in problems else []
            if more:
                device = replace(device, reasons=(*device.reasons, *more))  # noqa: PLW2901
            resources.setdefault(device.resource, {})[device.id] = device
        else:  # a device that two types claim is shown once
            not_offered.setdefault((device.id, str(device.reasons)), device)
    return AdvertisedResources(resources, tuple(not_offered.values()))


def _claimants(devices: Iterable[Device]) -> dict[str, list[Device]]:
    """The devices to be offered that claim something, by what they claim."""
    claimants: dict[str, list[Device]] = {}
    for device in devices:
        for claim in device.claims if device.resource else ():
            claimants.setdefault(claim, []).append(device)
    return claimants


def _conflict(device: Device, claimants: Mapping[str, Sequence[Device]]) -> Problem | None:
    """Why a device is not offered, if others claim what it claims."""
    if not device.type:
        return None
    for claim in sorted(device.claims):
        others = [
            each
            for each in claimants[claim]
            if each.replica_key != device.replica_key
            # The nodes of a card are devices of one type.
            and (is_number(claim) or each.type != device.type)
        ]
        fpga = next((each for each in others if not each.type), None)
        if fpga is not None:
            text = (
                f"{claim} belongs to the FPGA device {fpga.id} ({fpga.resource}), so type"
                f" {device.type} can't offer it"
            )
            return Problem(CLAIMED_BY_FPGA, text)
        if others:  # the kubelet counts each resource by itself, and would hand it out twice
            both = sorted({f"{each.card} of type {each.type}" for each in (device, *others)})
            text = f"{claim} is part of {listing(both)}, so none of them is offered"
            return Problem(CLAIMED_TWICE, text)
    return None


def _held_otherwise(
    device: Device, held: Parts, current: set[tuple[str, str]]
) -> Iterator[Problem]:
    """Yield who has a device, or a part of it, as another resource or under an earlier id."""
    others = {
        (key, resource)
        for part in possible_ids(device) & held.keys()
        for resource, key in held[part]
        # An id that the resource no longer has is one of another number of replicas.
        if (resource != device.resource or (resource, key) not in current)
        and not is_other_node(key, device)
    }
    for key, resource in sorted(others):
        yield Problem(HELD, f"a container has {key} as {resource}")


# 5. Health that doesn't flap ----------------------------------------------------------------------


def _is_read(world: World, device: Device, busy: frozenset[str]) -> bool:
    """Whether a reading says something new of a device; cards at `busy` places were worked on."""
    if device.type:
        return world.types is not None
    return world.cards is not None and device.place not in busy


def _entry(ledger: Ledger, device: Device, now: float, *, is_read: bool) -> Entry:
    """The state of a device after this reading; `is_read` says whether that was read."""
    last, rules = ledger.entries.get(device.id), ledger.rules
    was_healthy = last is not None and last.was_healthy
    good, counted = 0, 0.0
    # One that was never healthy has nothing to prove: its driver may still have been at work on it
    # when it appeared.
    if device.healthy and last is not None and was_healthy and not last.device.healthy:
        good, counted = last.good, last.counted
        # As after a burst of events: otherwise a card that flaps fast would recover sooner.
        if is_read and not (good > 0 and 0 <= now - counted < rules.spacing):
            good, counted = good + 1, now
        if good < rules.good_scans:
            text = (
                f"{device.id} was unhealthy a moment ago: it is healthy again after"
                f" {rules.good_scans} good scans in a row"
            )
            device = replace(device, reasons=(Problem(RECOVERING, text),))
    is_same = last is not None and last.device.reasons == device.reasons
    since = last.since if last is not None and is_same else now
    return Entry(device, since, was_healthy or device.healthy, good, counted)


def _as_entered(offer: AdvertisedResources, entries: Mapping[str, Entry]) -> AdvertisedResources:
    resources = {
        resource: {key: entries[key].device for key in devices}
        for resource, devices in offer.resources.items()
    }
    return replace(offer, resources=resources)
