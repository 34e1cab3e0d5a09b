"""A node's devices as ResourceSlices, and which writes lead from the stored slices to them.

The slices of a node are one pool. Consumers count only those of the pool's highest **generation**,
and allocate nothing while there are fewer of them than each says (`resourceSliceCount`). They may
see the pool after any of our writes, so after each of them it must be what the node has, what it
had before, or incomplete.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from services.containers.holders import held_by_pods
from services.devices.dra import (
    API_VERSION,
    CONTENT,
    DRIVER,
    SHARES,
    Attributes,
    DraDevice,
    carried,
    dra_devices,
    held_by_plugin,
)
from services.devices.model import Contents, Inventory, Value
from services.names import dns_label
from services.node.ledger import Ledger

COLLECTION: Final = f"/apis/{API_VERSION}/resourceslices"
KIND: Final = "ResourceSlice"

MAX_DEVICES: Final = 64
"""Of a slice: the API server allows 128, but only 64 if one of them has a taint."""

MAX_NODE: Final = 230
"""Characters of a node's name that slices have in theirs, which may have 253. Longer ones are cut;
`manifests/dra/policy.yaml` has the same limit."""

UNHEALTHY: Final = f"{DRIVER}/unhealthy"
"""Key of the taint of an unhealthy device; its value is the reason."""

MULTIPLE: Final = "allowMultipleAllocations"
"""The field of a device of which several claims may have shares."""

_KINDS: Final[Mapping[type, str]] = {bool: "bool", int: "int", str: "string"}

Body: TypeAlias = dict[str, Any]
"""A device as a slice has it in JSON."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice of the pool, as it should be or as it is stored."""

    name: str
    generation: int
    count: int
    """How many slices the pool has in this generation."""
    devices: Sequence[Body]


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps to take, in this order."""

    delete: tuple[str, ...]
    """Names of slices."""
    write: tuple[Slice, ...]
    """Replace these slices, or create those that are missing."""


def slices(
    ledger: Ledger,
    programmed: Contents,
    shown: Mapping[str, Attributes],
    *,
    committed: Container[str],
    renamed: Container[str],
    taints: bool,
) -> list[list[Body]]:
    """The devices of each slice of a node.

    Args:
        ledger: Everything that is known of its devices.
        programmed: What accelbind has programmed into ports.
        shown: The devices in the slices now.
        committed: Devices that containers of claims may change.
        renamed: Devices that claims have by earlier names.
        taints: Whether the API server keeps taints.
    """
    inventory = ledger.inventory or Inventory()
    programs = ledger.rules.programs
    present = dra_devices(ledger.offer, inventory, programmed, programmable=programs)
    of_plugin = held_by_plugin(present, held_by_pods(ledger.holders))
    # One that a pod of the plugin has, or a claim by an earlier name, as before its type was
    # renamed, is left out, since the scheduler would allocate it once more. One that a claim has by
    # this name shows what was in it before its containers could change that.
    devices = [
        carried(each, shown.get(each.name, {}), programmed) if each.name in committed else each
        for each in present
        if each.name not in of_plugin and each.name not in renamed
    ]
    return devices_of_slices(in_order(devices, shown), taints=taints)


def device_body(device: DraDevice) -> Body:
    """A device in JSON; one that is unhealthy has a taint."""
    body: Body = {"name": device.name, "attributes": typed_attributes(device.attributes)}
    if shares := device.device.shares:
        # Without a default, a request that names no capacity would get all shares.
        policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
        body |= {
            MULTIPLE: True,
            "capacity": {SHARES: {"value": str(shares), "requestPolicy": policy}},
        }
    if not device.device.healthy:
        reason = device.device.reasons[0].code
        body["taints"] = [{"key": UNHEALTHY, "value": reason, "effect": "NoSchedule"}]
    return body


def typed_attributes(attributes: Attributes) -> Body:
    """Attributes in JSON, each with its type."""
    return {name: {_KINDS[type(value)]: value} for name, value in attributes.items()}


def shown_attributes(slices: Iterable[Slice]) -> dict[str, Attributes]:
    """The attributes of each device in slices, in their order."""
    bodies = (body for each in slices for body in each.devices)
    return {body["name"]: read_attributes(body) for body in bodies}


def read_attributes(body: Body) -> Attributes:
    """The attributes of a stored device; those of other types are left out."""
    attributes: Mapping[str, Mapping[str, Value]] = body.get("attributes") or {}
    return {
        name: value
        for name, typed in attributes.items()
        for kind, value in typed.items()
        if kind in _KINDS.values()
    }


def read_slice(item: Mapping[str, Any]) -> Slice:
    """A stored slice."""
    spec = item["spec"]
    pool, devices = spec["pool"], spec.get("devices") or []
    name = item["metadata"]["name"]
    return Slice(name, pool["generation"], pool["resourceSliceCount"], devices)


def has_taints(devices: Iterable[Body]) -> bool:
    """Whether a device has one."""
    return any("taints" in each for each in devices)


def has_shares(devices: Iterable[Body]) -> bool:
    """Whether claims may have shares of a device."""
    return any(each.get(MULTIPLE) for each in devices)


def in_order(devices: Iterable[DraDevice], shown: Mapping[str, Attributes]) -> list[DraDevice]:
    """The devices in the order in which schedulers should allocate them.

    The first share of every device comes before the second share of any. Among these, the region
    whose content changed last comes last. `shown` has the devices in the order of the slices now;
    new ones come first.
    """
    # A scheduler allocates the first device that fits. So a claim for several devices gets distinct
    # ones, and a claim that fits nothing better takes the region that was programmed longest ago,
    # not what was programmed for the claim before it.
    places = {name: place for place, name in enumerate(shown)}

    def place(device: DraDevice) -> int:
        if device.name not in shown:
            return -1
        before, now = shown[device.name], device.attributes
        is_same = all(before.get(each) == now.get(each) for each in CONTENT)
        return places[device.name] if is_same else len(places)

    return sorted(devices, key=lambda each: (each.device.share or 0, place(each)))


def devices_of_slices(devices: Iterable[DraDevice], *, taints: bool) -> list[list[Body]]:
    """The devices of each slice, in their order; there is at least one, which may be empty.

    `taints` says whether the API server keeps them.
    """
    # Without its taint, an unhealthy device would be allocated.
    fit = [each for each in devices if taints or each.device.healthy]
    # Which slice a device is in follows from shares and names alone: one that takes another place
    # in the order changes one slice.
    names = [
        each.name for each in sorted(fit, key=lambda each: (each.device.share or 0, each.name))
    ]
    parts = [names[at : at + MAX_DEVICES] for at in range(0, max(1, len(names)), MAX_DEVICES)]
    return [
        [device_body(each) for each in fit if each.name in part] for part in map(frozenset, parts)
    ]


def slice_name(node: str, number: int) -> str:
    """The name of a slice: always the same, so that none is created twice."""
    start = node if len(node) <= MAX_NODE else dns_label(node)
    # Schedulers sort slices by their names: `a10` comes behind `9`, and `b100` behind `a99`.
    digits = str(number)
    mark = "" if len(digits) == 1 else chr(ord("a") + len(digits) - 2)
    return f"{start}-{DRIVER}-{mark}{digits}"


def slice_spec(node: str, wanted: Slice) -> Body:
    """The spec of a slice of a node's pool, which has the node's name."""
    return {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {
            "name": node,
            "generation": wanted.generation,
            "resourceSliceCount": wanted.count,
        },
        "devices": [*wanted.devices],
    }


def plan(node: str, wanted: Sequence[Sequence[Body]], stored: Iterable[Slice]) -> Plan:
    """Which writes lead from the stored slices to the devices of each slice."""
    known = {each.name: each for each in stored}
    # One that differs can be replaced in its generation, so a pool of one slice keeps it. If more
    # differ, all go into the next generation, which is complete with the last one.
    generation = max((each.generation for each in known.values()), default=1)
    slices = _slices(node, wanted, generation)
    current = {name for name, each in known.items() if each.generation == generation}
    different = {name for name in current if known[name] != slices.get(name)}
    if len(different) > 1:
        slices = _slices(node, wanted, generation + 1)
    # The one that differs comes first: until the missing ones are there, the pool is incomplete.
    order = sorted(slices, key=lambda name: (name not in different, name not in known))
    # Deletions come first: after them the pool is incomplete until the rest is written.
    return Plan(
        tuple(name for name in known if name not in slices),
        tuple(slices[name] for name in order if known.get(name) != slices[name]),
    )


def _slices(node: str, wanted: Sequence[Sequence[Body]], generation: int) -> dict[str, Slice]:
    named = ((slice_name(node, number), each) for number, each in enumerate(wanted))
    return {name: Slice(name, generation, len(wanted), devices) for name, devices in named}
