"""Who has which device: the kubelet's allocations, in memory and as its checkpoint.

The file is `device-plugins/kubelet_internal_checkpoint`:

    {"Data": {"PodDeviceEntries": [{"PodUID": …, "ContainerName": …, "ResourceName": …,
                                    "DeviceIDs": {"0": ["dfl-port.0"]}, "AllocResp": base64}],
              "RegisteredDevices": {"domain/name": ["dfl-port.0"]}},
     "Checksum": 123}

A device without a NUMA node stands under "-1", one with several under each of them. `AllocResp` is
the protobuf message ContainerAllocateResponse. A list that is empty is null, as Go writes it.

The real kubelet's checksum is FNV-1a over Go's print of the structure, which nothing outside Go
can compute; ours is FNV-1a over the JSON of `Data`. Readers that don't verify it see no difference.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError

from services.kubelet.deviceplugin_pb2 import ContainerAllocateResponse
from services.process.errors import KubeletError
from simulator.kubelet.registry import Device
from simulator.kubelet.states import DeviceNode, Granted, Mount

NO_NUMA: Final = -1
"""The key of devices whose NUMA node is not known (`nodeWithoutTopology`)."""

_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193


class CorruptCheckpoint(KubeletError):
    """The checkpoint can't be read; a kubelet goes on without."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one container has of one resource.

    Attributes:
        pod_uid: whose.
        container: which of its containers.
        resource: full resource name.
        by_numa: device ids by NUMA node.
        response: what the plugin answered.
    """

    pod_uid: str
    container: str
    resource: str
    by_numa: Mapping[int, tuple[str, ...]]
    response: ContainerAllocateResponse

    @property
    def ids(self) -> tuple[str, ...]:
        """Its device ids, each once, sorted."""
        return tuple(sorted({each for ids in self.by_numa.values() for each in ids}))

    def numa_nodes(self, device_id: str) -> tuple[int, ...]:
        """The NUMA nodes that a device of it was known to sit on."""
        return tuple(
            node for node, ids in self.by_numa.items() if node != NO_NUMA and device_id in ids
        )


class Ledger:
    """All entries of one node, in the order in which they were made."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries: dict[tuple[str, str, str], Entry] = {}
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Add or replace what a container has of a resource."""
        self._entries[entry.pod_uid, entry.container, entry.resource] = entry

    def keep_only(self, pod_uids: Iterable[str]) -> None:
        """Forget all pods but these."""
        kept = set(pod_uids)
        self._entries = {key: each for key, each in self._entries.items() if key[0] in kept}

    def of_container(self, pod_uid: str, container: str) -> tuple[Entry, ...]:
        """What one container has, one entry per resource."""
        key = (pod_uid, container)
        return tuple(each for each in self if (each.pod_uid, each.container) == key)

    def entry(self, pod_uid: str, container: str, resource: str) -> Entry | None:
        """What one container has of one resource."""
        return self._entries.get((pod_uid, container, resource))

    def in_use(self, resource: str) -> set[str]:
        """The devices of a resource that are in use."""
        return {each for entry in self if entry.resource == resource for each in entry.ids}

    def has_resource(self, resource: str) -> bool:
        """Whether a device of it is in use."""
        return any(entry.resource == resource for entry in self)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())


def entry_of(
    pod_uid: str,
    container: str,
    resource: str,
    devices: Iterable[Device],
    response: ContainerAllocateResponse,
) -> Entry:
    """The entry for devices as their plugin listed them."""
    by_numa: dict[int, list[str]] = {}
    for device in devices:
        for node in device.numa_nodes or (NO_NUMA,):
            by_numa.setdefault(node, []).append(device.id)
    frozen = {node: tuple(ids) for node, ids in by_numa.items()}
    return Entry(pod_uid, container, resource, frozen, response)


def granted(entries: Iterable[Entry]) -> Granted:
    """What a container starts with, all its resources together.

    Where two resources set the same variable, path or annotation, the first counts. The order in
    which a real kubelet looks at them changes from start to start.
    """
    env: dict[str, str] = {}
    nodes: dict[str, DeviceNode] = {}
    mounts: dict[str, Mount] = {}
    annotations: dict[str, str] = {}
    cdi: dict[str, None] = {}
    allocated: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        response = entry.response
        allocated[entry.resource] = entry.ids
        env = dict(sorted(response.envs.items())) | env
        annotations = dict(sorted(response.annotations.items())) | annotations
        for node in response.devices:
            seen = DeviceNode(node.container_path, node.host_path, node.permissions)
            nodes.setdefault(seen.container_path, seen)
        for mount in response.mounts:
            bound = Mount(mount.container_path, mount.host_path, mount.read_only)
            mounts.setdefault(bound.container_path, bound)
        cdi |= dict.fromkeys(each.name for each in response.cdi_devices)
    return Granted(
        env=tuple(env.items()),
        devices=tuple(nodes.values()),
        mounts=tuple(mounts.values()),
        annotations=tuple(annotations.items()),
        cdi_devices=tuple(cdi),
        allocated=tuple(allocated.items()),
    )


def encode_checkpoint(entries: Iterable[Entry], registered: Mapping[str, Iterable[str]]) -> bytes:
    """The checkpoint's bytes."""
    data = {
        "PodDeviceEntries": [_encode_entry(entry) for entry in entries] or None,
        "RegisteredDevices": {name: list(ids) or None for name, ids in registered.items()},
    }
    return json.dumps({"Data": data, "Checksum": _checksum(data)}, separators=(",", ":")).encode()


def _encode_entry(entry: Entry) -> dict[str, Any]:
    return {
        "PodUID": entry.pod_uid,
        "ContainerName": entry.container,
        "ResourceName": entry.resource,
        "DeviceIDs": {str(node): list(ids) for node, ids in entry.by_numa.items()},
        "AllocResp": base64.b64encode(
            entry.response.SerializeToString(deterministic=True)
        ).decode(),
    }


def decode_checkpoint(content: bytes) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """The entries and the names of the registered resources of a checkpoint."""
    try:
        document = json.loads(content)
        data = document["Data"]
        if document["Checksum"] != _checksum(data):
            raise CorruptCheckpoint("the checksum does not fit")
        entries = tuple(_decode_entry(each) for each in data["PodDeviceEntries"] or ())
        return entries, tuple(data["RegisteredDevices"] or ())
    except (ValueError, KeyError, TypeError, AttributeError, DecodeError) as error:
        raise CorruptCheckpoint(f"not a checkpoint: {error!r}") from error


def _decode_entry(entry: Mapping[str, Any]) -> Entry:
    try:
        response = base64.b64decode(entry["AllocResp"], validate=True)
    except binascii.Error as error:
        raise CorruptCheckpoint("AllocResp is not base64") from error
    return Entry(
        pod_uid=entry["PodUID"],
        container=entry["ContainerName"],
        resource=entry["ResourceName"],
        by_numa={int(node): tuple(ids) for node, ids in entry["DeviceIDs"].items()},
        response=ContainerAllocateResponse.FromString(response),
    )


def _checksum(data: object) -> int:
    """FNV-1a, 32 bits, over the compact JSON."""
    value = _FNV_OFFSET
    for byte in json.dumps(data, separators=(",", ":")).encode():
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return value
