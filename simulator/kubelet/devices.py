"""The kubelet's tables of devices: which resources it knows, and which container has what.

A resource goes through these states (`kubernetes/kubernetes`, pkg/kubelet/cm/devicemanager):

    unknown ──connected──▶ connected ──listed──▶ advertised
                               ▲                     │ its stream ends
                               └──── connected ──────┤
    restored (kubelet restart) ──▶ stopped ◀─────────┘

- advertised: capacity is all its devices, allocatable the healthy ones;
- stopped: all its devices count as unhealthy, so allocatable is 0 and capacity stays;
- restored: known from the checkpoint by name only, so both are 0.

The checkpoint is `device-plugins/kubelet_internal_checkpoint`:

    {"Data": {"PodDeviceEntries": [{"PodUID": …, "ContainerName": …, "ResourceName": …,
                                    "DeviceIDs": {"0": ["dfl-port.0"]}, "AllocResp": base64}],
              "RegisteredDevices": {"domain/name": ["dfl-port.0"]}},
     "Checksum": 123}

A device without a NUMA node stands under "-1", one with several under each of them. `AllocResp` is
the protobuf message ContainerAllocateResponse. An empty list is null, as Go writes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from services.kubelet.deviceplugin_pb2 import (
    ContainerAllocateResponse,
    DevicePluginOptions,
    DeviceSpec,
)

NO_NUMA: Final = -1
"""The key of devices whose NUMA node is not known (`nodeWithoutTopology`)."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device as its plugin lists it; `numa_nodes` is empty where the plugin reports none."""

    id: str
    healthy: bool
    numa_nodes: tuple[int, ...] = ()


@dataclass(slots=True)
class Resource:
    options: DevicePluginOptions | None
    """None after a restart of the kubelet, which restores only names."""
    stopped: bool = False
    """Whether the plugin was lost."""
    devices: dict[str, Device] | None = None
    """By id; None before a plugin's first list."""

    @property
    def healthy(self) -> set[str]:
        return {each.id for each in (self.devices or {}).values() if each.healthy}


class ResourceTable:
    def __init__(self) -> None:
        self.registered: dict[str, Resource] = {}

    def connected(self, name: str, options: DevicePluginOptions) -> None:
        """Replace the plugin of a resource; the devices of the earlier one stay until it lists."""
        resource = self.registered.setdefault(name, Resource(options))
        resource.options, resource.stopped = options, False

    def listed(self, name: str, devices: Iterable[Device]) -> None:
        if name in self.registered:
            self.registered[name].devices = {device.id: device for device in devices}

    def disconnected(self, name: str) -> None:
        """Count the devices of a lost plugin as unhealthy."""
        if resource := self.registered.get(name):
            resource.stopped = True
            known = resource.devices or {}
            resource.devices = {key: replace(each, healthy=False) for key, each in known.items()}

    def restore(self, names: Iterable[str]) -> None:
        """Start again with these names only, as a restarted kubelet does."""
        self.registered = {name: Resource(None, stopped=True, devices={}) for name in names}

    def known(self, name: str) -> Resource | None:
        """A resource whose devices a plugin has listed, now or before the restart."""
        resource = self.registered.get(name)
        return resource if resource and resource.devices is not None else None

    def healthy(self) -> dict[str, list[str]]:
        """The healthy devices by resource, sorted, as the checkpoint keeps them."""
        resources = sorted(self.registered.items())
        return {name: sorted(each.healthy) for name, each in resources if each.devices is not None}

    def capacity(self) -> dict[str, int]:
        resources = self.registered.items()
        return {name: len(each.devices) for name, each in resources if each.devices is not None}


class Entry(msgspec.Struct, frozen=True):
    pod_uid: str = msgspec.field(name="PodUID")
    container: str = msgspec.field(name="ContainerName")
    resource: str = msgspec.field(name="ResourceName")
    by_numa: dict[int, list[str]] = msgspec.field(name="DeviceIDs")
    """Device ids by NUMA node."""
    response: bytes = msgspec.field(name="AllocResp")
    """The plugin's ContainerAllocateResponse."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Its device ids, each once, sorted."""
        return tuple(sorted({each for ids in self.by_numa.values() for each in ids}))


class CheckpointData(msgspec.Struct):
    entries: list[Entry] | None = msgspec.field(name="PodDeviceEntries", default=None)
    registered: dict[str, list[str] | None] = msgspec.field(
        name="RegisteredDevices", default_factory=dict
    )


class Checkpoint(msgspec.Struct):
    data: CheckpointData = msgspec.field(name="Data", default_factory=CheckpointData)
    # Over Go's print of the structure, which nothing outside Go can compute.
    checksum: int = msgspec.field(name="Checksum", default=0)


def entry_of(
    pod_uid: str,
    container: str,
    resource: str,
    devices: Iterable[Device],
    response: ContainerAllocateResponse,
) -> Entry:
    by_numa: dict[int, list[str]] = {}
    for device in devices:
        for node in device.numa_nodes or (NO_NUMA,):
            by_numa.setdefault(node, []).append(device.id)
    answer = response.SerializeToString(deterministic=True)
    return Entry(pod_uid, container, resource, by_numa, answer)


@dataclass(frozen=True, slots=True)
class Granted:
    """The answer of `Allocate` for one container, all its resources together."""

    env: tuple[tuple[str, str], ...] = ()
    devices: tuple[DeviceSpec, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    allocated: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Device ids by resource."""


def granted(entries: Iterable[Entry]) -> Granted:
    """Variables and devices that a container starts with."""
    # Where two resources set the same variable or path, the first counts here. The order in which a
    # real kubelet reads them changes from start to start.
    env: dict[str, str] = {}
    nodes: dict[str, DeviceSpec] = {}
    cdi: dict[str, None] = {}
    allocated: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        response = ContainerAllocateResponse.FromString(entry.response)
        allocated[entry.resource] = entry.ids
        env = dict(sorted(response.envs.items())) | env
        for node in response.devices:
            nodes.setdefault(node.container_path, node)
        cdi |= dict.fromkeys(each.name for each in response.cdi_devices)
    return Granted(
        env=tuple(env.items()),
        devices=tuple(nodes.values()),
        cdi_devices=tuple(cdi),
        allocated=tuple(allocated.items()),
    )
