"""Whether the device nodes that a container has are those of its devices."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from services.containers.identity import allocations, pods_of_folders
from services.devices.hardware.sysfs import Sysfs
from services.devices.model import Device, DeviceNode
from services.kube.events import EventRecord
from services.kubelet.checkpoint import KubeletFiles
from services.kubelet.values import CheckpointEntry
from services.node.events import EventReason
from services.node.start_gate import record_on_pod
from services.node.state import NodeState
from services.process.errors import HardwareError, KubeletError, NotAllowed
from services.process.outage import Outage
from services.process.text import listing, plain, quote

log = structlog.get_logger(component="node")


def _changed_nodes(
    entry: CheckpointEntry, devices: Mapping[str, Device], host_root: str
) -> tuple[list[str], list[str]]:
    """The host paths that a container was allocated and that its devices don't have, and theirs."""
    nodes = [
        node for key in sorted(entry.device_ids) if key in devices for node in devices[key].nodes
    ]
    today = [node.host_path(host_root) for node in nodes]
    # Earlier versions answered `Allocate` with the path of a link.
    links = {replace(node, target="").host_path(host_root) for node in nodes}
    return [each for each in entry.nodes or () if each not in {*today, *links}], today


class NodesStartPolicy:
    """Lets a container start if its devices still have the nodes that it was allocated."""

    def __init__(
        self,
        state: NodeState,
        *,
        host_root: str,
        files: KubeletFiles,
        record_event: Callable[[EventRecord], None],
    ) -> None:
        self._state = state
        self._host_root = host_root
        self._files = files
        self._record_event = record_event
        self._outage = Outage(
            log,
            "containers start without a check of their device nodes",
            "device nodes are checked again before containers start",
        )

    async def authorize_start(self, resource: str, ids: Sequence[str]) -> None:
        """As `StartPolicy` says."""
        try:
            allocated = allocations(await self._files.entries(), resource, ids)
        except (KubeletError, HardwareError, NotAllowed) as error:
            self._outage.failed(str(error))  # and it starts
            return
        unknown = any(each.nodes is None for each in allocated)
        self._outage.update("an answer in the checkpoint can't be decoded" if unknown else "")
        devices = self._state.advertised.resources.get(resource, {})
        # The kubelet stores the answer to `Allocate` and uses it at each start of the container,
        # also after the node was restarted. A device may have another node by then, and another
        # device its old one. Only a new pod gets the right nodes.
        for entry in allocated:
            old, today = _changed_nodes(entry, devices, self._host_root)
            if old:
                text = _refusal(entry, old, today)
                await self._report(entry, text)
                raise NotAllowed(text)

    async def _report(self, entry: CheckpointEntry, text: str) -> None:
        try:
            folders = await self._files.folders()
        except (KubeletError, HardwareError):
            return
        pod = pods_of_folders(folders).get(entry.pod_uid)
        record_on_pod(self._record_event, pod, EventReason.DEVICE_NODE_CHANGED, text)


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
