"""Whether the device nodes that a container has are those of its devices."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from services.devices.hardware.sysfs import Sysfs
from services.devices.held import HELD
from services.devices.model import Device, DeviceNode
from services.devices.nodes import exclusive_paths
from services.kubelet.values import CheckpointEntry
from services.node.ledger import RECOVERING
from services.process.errors import NotAllowed
from services.process.text import listing, plain, quote


def require_own_nodes(
    entry: CheckpointEntry,
    devices: Mapping[str, Device],
    others: Iterable[Device] | None,
    host_root: str,
) -> None:
    """Raise `NotAllowed` if a container was allocated nodes that its devices don't have now.

    With `others`, a node that a device had which can't be read, or not as a whole, counts only if
    one of these has it.
    """
    # The kubelet stores the answer to `Allocate` and uses it at each start of the container, also
    # after the node was restarted. A device may have another node by then, and another device its
    # old one. Only a new pod gets the right nodes.
    own = [devices[key] for key in sorted(entry.device_ids) if key in devices]
    given = entry.nodes or ()
    if others is not None and not (len(own) == len(entry.device_ids) and all(map(_is_read, own))):
        taken = frozenset[str]().union(*(exclusive_paths(each, host_root) for each in others))
        old = [each for each in given if each in taken]
    else:
        nodes = (node for each in own for node in each.nodes)
        today = frozenset[str]().union(*(node.host_paths(host_root) for node in nodes))
        old = [each for each in given if each not in today]
    if old:
        now = [node.host_path(host_root) for each in own for node in each.nodes]
        raise NotAllowed(_refusal(entry, old, now))


def _is_read(device: Device) -> bool:
    """Whether the nodes of a device are those of now."""
    return all(each.code in (HELD, RECOVERING) for each in device.reasons)


def _refusal(entry: CheckpointEntry, old: Sequence[str], today: Sequence[str]) -> str:
    ids = listing([plain(each) for each in sorted(entry.device_ids)[:8]])
    paths = listing([plain(each) for each in old[:8]])
    now = f"now it is {listing(today, most=8)}" if today else "now it has none"
    return (
        f"container {quote(entry.container)} was allocated {paths} for"
        f" {ids} of {entry.resource}, and the device has another node now ({now}): delete the"
        " pod; a new one gets the right node"
    )


def require_numbers(root: Path, nodes: Iterable[DeviceNode]) -> None:
    """Raise `NotAllowed` if a node that a container is to get has the number of another device."""
    files = Sysfs(root)  # `/dev` is in memory, so this asks no device
    for node in nodes:
        # A missing one is left to the runtime: a refusal of `Allocate` fails the pod for good.
        actual = files.node_number(node.place) if node.number else None
        if node.number and actual and actual != node.number:
            (now, at), (major, minor) = actual, node.number
            raise NotAllowed(
                f"/dev/{node.place} is {now}:{at}, and the device is {major}:{minor}:"
                " another device has its node now"
            )
