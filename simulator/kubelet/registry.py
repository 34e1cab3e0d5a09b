"""Which resources the kubelet knows, and how many of their devices a node may count on.

A resource goes through these states (`kubernetes/kubernetes`, pkg/kubelet/cm/devicemanager):

    unknown ──connected──▶ connected ──listed──▶ advertised
                               ▲                     │ its stream ends
                               └──── connected ──────┤
    restored (kubelet restart) ──▶ stopped ◀─────────┘──5 minutes──▶ removed

- advertised: capacity is all its devices, allocatable the healthy ones;
- stopped: all its devices count as unhealthy, so allocatable is 0 and capacity stays;
- restored: known from the checkpoint by name only, so both are 0;
- removed: forgotten, but the node still reports 0.

Time comes from a clock that is handed in. There is no I/O here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

GRACE_SECONDS: Final = 300.0
"""How long a stopped resource keeps its capacity (`endpointStopGracePeriod`)."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device as its plugin lists it.

    Attributes:
        id: its name, unique in the resource.
        healthy: whether its health is the word `Healthy`; anything else is not.
        numa_nodes: where it sits; empty where the plugin doesn't say.
    """

    id: str
    healthy: bool
    numa_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Options:
    """What a plugin announced.

    Attributes:
        pre_start: it wants `PreStartContainer` before each start.
        preferred: it has an opinion on which devices to take.
    """

    pre_start: bool = False
    preferred: bool = False


@dataclass(slots=True)
class Endpoint:
    """A registered plugin.

    Attributes:
        options: what it announced; None after a restart, when the kubelet knows but the name.
        stopped_at: the clock when it was lost, or None while it is there.
    """

    options: Options | None
    stopped_at: float | None = None

    @property
    def stopped(self) -> bool:
        """Whether it can't be called."""
        return self.stopped_at is not None


@dataclass(frozen=True, slots=True)
class NodeResources:
    """What a node's status says of its devices, by resource name."""

    capacity: dict[str, int]
    allocatable: dict[str, int]


class Registry:
    """The resources of one node."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._endpoints: dict[str, Endpoint] = {}
        self._devices: dict[str, dict[str, Device]] = {}
        self._healthy: dict[str, set[str]] = {}
        self._unhealthy: dict[str, set[str]] = {}
        self._removed: set[str] = set()

    def connected(self, resource: str, options: Options) -> None:
        """A plugin registered this resource and was dialled; it replaces an earlier one.

        Devices of the earlier one stay until the new one lists its own.
        """
        self._endpoints[resource] = Endpoint(options)

    def listed(self, resource: str, devices: Iterable[Device]) -> None:
        """A plugin's stream listed its devices; they replace the earlier list."""
        by_id = {device.id: device for device in devices}
        self._devices[resource] = by_id
        self._healthy[resource] = {each.id for each in by_id.values() if each.healthy}
        self._unhealthy[resource] = by_id.keys() - self._healthy[resource]
        self._removed.discard(resource)

    def disconnected(self, resource: str) -> None:
        """The plugin was lost: its devices count as unhealthy, for now."""
        endpoint = self._endpoints.get(resource)
        if endpoint is None:
            return
        endpoint.stopped_at = self._clock()
        self._unhealthy.setdefault(resource, set()).update(self._healthy.get(resource, ()))
        self._healthy[resource] = set()

    def restore(self, resources: Iterable[str]) -> None:
        """Start again, as a restarted kubelet does, with these names only."""
        for table in (self._endpoints, self._devices, self._healthy, self._unhealthy):
            table.clear()
        self._removed.clear()
        for resource in resources:
            self._endpoints[resource] = Endpoint(None, self._clock())
            self._healthy[resource] = set()
            self._unhealthy[resource] = set()

    def knows(self, resource: str) -> bool:
        """Whether a plugin has listed devices of it, now or before the restart."""
        return resource in self._healthy

    def endpoint(self, resource: str) -> Endpoint | None:
        """The plugin of a resource, if it ever registered."""
        return self._endpoints.get(resource)

    def healthy(self, resource: str) -> set[str]:
        """The devices of it that may be handed out; a copy."""
        return set(self._healthy.get(resource, ()))

    def device(self, resource: str, device_id: str) -> Device | None:
        """A device as last listed."""
        return self._devices.get(resource, {}).get(device_id)

    def registered(self) -> dict[str, tuple[str, ...]]:
        """The healthy devices by resource, sorted, as the checkpoint keeps them."""
        return {name: tuple(sorted(ids)) for name, ids in sorted(self._healthy.items())}

    def allocatable_devices(self) -> Mapping[str, tuple[Device, ...]]:
        """The healthy devices with their topology, for PodResources."""
        return {
            name: tuple(self._devices[name][each] for each in sorted(ids))
            for name, ids in sorted(self._healthy.items())
            if name in self._devices
        }

    def node_resources(self) -> NodeResources:
        """What the node's status says now; forgets what was stopped for too long."""
        self._remove_expired()
        allocatable = {name: len(ids) for name, ids in self._healthy.items()}
        capacity = {name: n + len(self._unhealthy[name]) for name, n in allocatable.items()}
        gone = dict.fromkeys(self._removed, 0)
        return NodeResources(capacity | gone, allocatable | gone)

    def _remove_expired(self) -> None:
        now = self._clock()
        for name, endpoint in list(self._endpoints.items()):
            stopped_at = endpoint.stopped_at
            if stopped_at is None or now - stopped_at <= GRACE_SECONDS or name not in self._healthy:
                continue
            for table in (self._endpoints, self._healthy, self._unhealthy, self._devices):
                table.pop(name, None)
            self._removed.add(name)
