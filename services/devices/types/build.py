"""From what was read of a matched device to the device that the kubelet is offered."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from services.devices.cdi import DEVICE_KIND
from services.devices.health import Reading
from services.devices.model import Device, DeviceNode, Value
from services.devices.nodes import VFIO, FoundNode, check_node
from services.devices.types.match import Fact, unmet
from services.devices.types.model import Attribute, DeviceType
from services.devices.types.node_source import NodeSource
from services.devices.types.values import MAX_VALUE
from services.names import resource_variable
from services.process.problem import Problem
from services.process.text import quote

NOT_MATCHED: Final = "not-matched"

PUBLISHED: Final = ("vendorID", "deviceID", "kernelDriver", "pcieRoot")
"""Built-in attributes that go with a device."""

_BOOLEANS: Final = {"0": False, "1": True, "n": False, "y": True, "false": False, "true": True}
_INTEGER: Final = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,19})")


def attribute_value(attribute: Attribute, reading: Reading) -> Value | Problem:
    """The value that a file holds, or what is wrong with it."""
    text = reading.text
    what = f"{attribute.name} ({attribute.file})"
    if reading.failure is not None:
        return Problem("attribute-unreadable", f"{what} can't be read: {reading.detail}")
    if len(text.encode()) > MAX_VALUE:
        return Problem("attribute-invalid", f"{what} has more than {MAX_VALUE} bytes")
    if "\0" in text:  # no variable of a container can hold it
        return Problem("attribute-invalid", f"{what} has a zero byte")
    if attribute.type == "string":
        return text
    value: Value | None = None
    if attribute.type == "bool":
        value = _BOOLEANS.get(text.lower())
    elif _INTEGER.fullmatch(text):
        value = int(text, 16 if "x" in text.lower() else 10)
    if value is None:
        return Problem(
            "attribute-invalid", f"{what} is {quote(text)}, which is no {attribute.type}"
        )
    return value


@dataclass(frozen=True, slots=True)
class Matched:
    """The facts that were read of a device that a type matches."""

    id: str
    card: str
    """The kernel's name for it."""
    fact: Fact
    """Its attributes."""
    nodes: Sequence[tuple[NodeSource, Sequence[FoundNode]]]
    addresses: tuple[str, ...] = ()
    claims: frozenset[str] = frozenset()
    """Besides the numbers of its nodes."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with it, besides its nodes."""


def make_devices(
    of: DeviceType, seen: Matched, *, divides: bool = False, allowed: Collection[str] = ()
) -> Iterator[Device]:
    """Yield the devices that a matched device is: one, or its replicas.

    `divides` says whether claims may have shares of one device; `allowed` are the plugin's words
    about nodes.
    """
    by_source, missing = _nodes(seen, allowed)
    nodes = [*dict.fromkeys(node for _, found in by_source for node in found)]
    problems = [*seen.problems, *missing, *_at_one_path(nodes)]
    counted = (each.number for each in nodes if each.number and each.number != VFIO)
    numbers = {f"{major}:{minor}" for major, minor in counted}
    numa = seen.fact("numaNode")
    is_denied = any(each.code == "node-denied" for each in problems)
    device = Device(
        id=seen.id,
        resource="" if is_denied else of.resource,
        reasons=tuple(problems),
        nodes=tuple(nodes),
        numa_node=numa if isinstance(numa, int) else None,
        pci_addresses=seen.addresses,
        card=seen.card,
        type=of.name,
        cdi=f"{DEVICE_KIND}={seen.id}",
        envs=(*_variables(of, seen), *_node_variables(by_source)),
        fixed_envs=tuple((each.name, each.value) for each in of.spec.env if each.value is not None),
        claims=seen.claims | numbers,
        attributes=tuple(_attributes(of, seen.fact)),
    )
    replicas = of.spec.sharing.replicas
    if replicas == 1:
        yield device
        return
    if divides and of.spec.sharing.dra == "capacity":
        yield replace(device, shares=replicas)
        return
    for number in range(replicas):
        own = f"{seen.id}-r{number}"
        yield replace(device, id=own, cdi=f"{DEVICE_KIND}={own}", share=number)


_ZERO: Final[Mapping[str, Value]] = {"bool": False, "int": 0, "string": ""}


def _attributes(of: DeviceType, fact: Fact) -> Iterator[tuple[str, Value]]:
    """Yield what the type declares, and what the kernel knows."""
    for each in of.spec.attributes:
        value = fact(each.name)
        # In DRA a selector that names an attribute which a device lacks is an error, and keeps pods
        # from being scheduled at all.
        yield each.name, value if isinstance(value, Value) else _ZERO[each.type]
    for name in PUBLISHED:
        value = fact(name)
        if isinstance(value, Value):
            yield name, value


def health_problems(of: DeviceType, fact: Fact) -> Iterator[Problem]:
    """Yield which rules don't hold; one whose file can't be read doesn't."""
    for rule in of.spec.health:
        value = fact(rule.attribute)
        if isinstance(value, Problem):
            yield value
            continue
        why = unmet(rule, value)
        if why:
            yield Problem(rule.reason, why)


def no_node(source: NodeSource) -> Problem:
    """The problem of a device that has no node of a source."""
    names = source.kind or ", ".join(source.entry)
    of = f" of class {source.class_}{f', {names}' if names else ''}" if source.class_ else ""
    return Problem("node-missing", f"it has no node{of}")


def _nodes(
    seen: Matched, allowed: Collection[str]
) -> tuple[list[tuple[NodeSource, list[DeviceNode]]], list[Problem]]:
    nodes = [(source, list[DeviceNode]()) for source, _ in seen.nodes]
    problems: list[Problem] = []
    for (_, good), (source, candidates) in zip(nodes, seen.nodes, strict=True):
        if not candidates and not source.optional:
            problems.append(no_node(source))
        for each in candidates:
            node = check_node(
                each, permissions=source.permissions, is_vfio=source.vfio, allowed=allowed
            )
            if isinstance(node, DeviceNode):
                good.append(replace(node, inside=source.as_.removeprefix("/dev/")))
            elif not source.optional or node.code == "node-denied":
                problems.append(node)
    return nodes, problems


def _at_one_path(nodes: Iterable[DeviceNode]) -> Iterator[Problem]:
    """Yield why a container can't have all nodes of a device."""
    known: dict[str, str] = {}
    for node in nodes:
        other = known.setdefault(node.container_path, node.place)
        if other != node.place:
            text = f"/dev/{other} and /dev/{node.place} would both be {node.container_path}"
            yield Problem("node-path-twice", f"{text} in a container")


def _node_variables(
    nodes: Iterable[tuple[NodeSource, Sequence[DeviceNode]]],
) -> Iterator[tuple[str, str]]:
    """Yield the variables with the paths of nodes."""
    for source, found in nodes:
        paths = (each.container_path for each in found if each.number != VFIO)
        value = "+".join(dict.fromkeys(paths))
        if source.env and value:
            yield source.env, value


def _variables(of: DeviceType, seen: Matched) -> Iterator[tuple[str, str]]:
    """Yield what names the device, and those of its attributes that it has."""
    yield resource_variable(of.resource), "+".join(seen.addresses) or seen.id
    for each in of.spec.env:
        value = seen.fact(each.attribute) if each.attribute is not None else None
        if isinstance(value, Value):
            yield each.name, str(value).lower() if isinstance(value, bool) else str(value)
