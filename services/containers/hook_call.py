"""The message of an OCI hook about the container that a runtime is about to start.

The runtime starts the hook on the host and gives it the container's state (OCI runtime
specification, `runtime.md`, State). The hook sends that, with the annotations and devices of the
container's configuration. The runtime's own annotations, which pods can't set, identify the
container; containerd and CRI-O use different names for them. The container's environment is not
read.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from services.containers.identity import ContainerIdentity
from services.kubelet.values import Entry
from services.names import DOMAIN, RegionName, decode
from services.process.errors import InvalidInput, InvalidName
from services.process.text import listing, plain
from services.programming.assignment import Region

MAX_MESSAGE: Final = 1024 * 1024

_NAMES: Final = (
    ("io.kubernetes.cri.sandbox-uid", "io.kubernetes.cri.container-name"),
    ("io.kubernetes.pod.uid", "io.kubernetes.container.name"),
)
"""Annotations of containerd and of CRI-O: UID of the pod, name of the container."""

_TYPES: Final = ("io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType")
_SANDBOX: Final = "sandbox"
_NODE: Final = re.compile(r"/dev/([A-Za-z0-9_.:-]+)")


class InvalidHookCall(InvalidInput):
    """A hook's message can't be read, or doesn't identify the container."""


@dataclass(frozen=True, slots=True)
class HookCall:
    """A container that is about to start, as its runtime describes it."""

    who: ContainerIdentity | None
    """None for a pod's sandbox, which has no devices of its own."""
    nodes: frozenset[str]
    """File names of its device nodes below `/dev`."""


class _ContainerState(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Device(msgspec.Struct):
    path: str = ""


class _Message(msgspec.Struct):
    state: _ContainerState
    annotations: dict[str, str] | None = None
    devices: list[_Device] | None = None


_DECODER: Final = msgspec.json.Decoder(_Message)


def parse(message: bytes) -> HookCall:
    """Read a hook's message; `InvalidHookCall` if it doesn't name one container of one pod."""
    try:
        found = _DECODER.decode(message)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidHookCall(f"the hook's message can't be read: {error}") from error
    annotations = {**(found.annotations or {}), **(found.state.annotations or {})}
    nodes = [_NODE.fullmatch(each.path) for each in found.devices or ()]
    named = frozenset(match[1] for match in nodes if match)
    if {annotations[key] for key in _TYPES if key in annotations} == {_SANDBOX}:
        return HookCall(None, named)
    return HookCall(_who(annotations), named)


def _who(annotations: Mapping[str, str]) -> ContainerIdentity:
    found = {
        ContainerIdentity(annotations[uid], annotations[name])
        for uid, name in _NAMES
        if annotations.get(uid) and annotations.get(name)
    }
    if len(found) == 1:
        return found.pop()
    if found:  # a pod's own annotations that imitate another runtime's
        raise InvalidHookCall("the annotations name two different containers")
    raise InvalidHookCall(
        "the runtime's annotations don't say which container of which pod is starting: containerd"
        f" and CRI-O set {' and '.join(_NAMES[0])}, or {' and '.join(_NAMES[1])}"
    )


def held_regions(
    call: HookCall, entries: Iterable[Entry], regions: Mapping[str, Region]
) -> dict[str, tuple[str, ...]]:
    """The regions that a container was allocated: their names, sorted, by full resource name.

    A container that has nodes of other regions is refused.
    """
    held: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        if call.who == ContainerIdentity(entry.pod_uid, entry.container) and _is_region(
            entry.resource
        ):
            held[entry.resource] = tuple(sorted({*held.get(entry.resource, ()), *entry.device_ids}))
    allocated = {name for names in held.values() for name in names}
    strange = sorted(
        name
        for name, region in regions.items()
        if name not in allocated and call.nodes & {port.name for port in region.ports}
    )
    if strange:
        shown = listing([plain(each) for each in strange[:8]])
        raise InvalidHookCall(
            f"the container has the nodes of {shown}, which the kubelet has not allocated to it:"
            " ask for a region as a resource"
        )
    return held


def _is_region(resource: str) -> bool:
    """Whether a resource is of regions, even if they are missing at the moment."""
    try:
        return resource.startswith(f"{DOMAIN}/") and isinstance(decode(resource), RegionName)
    except InvalidName:
        return False
