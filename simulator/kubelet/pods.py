"""Pods on a node: what a kubelet reads of them, their state, their events, calls for them."""

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from services.pods.requests import parse_count
from services.process.errors import InvalidInput, InvalidQuantity
from simulator.kubelet.devices import Granted

ALWAYS: Final = "Always"

KEPT: Final = 10_000
"""How many calls and events are kept, so that the memory of a long run stays flat."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    name: str
    init: bool = False
    sidecar: bool = False
    """An init container that keeps running (`restartPolicy: Always`)."""
    limits: tuple[tuple[str, int], ...] = ()
    """Whole counts of extended resources by full name, in the order of the spec."""
    env: tuple[Mapping[str, Any], ...] = ()
    """Its variables as written: `$(OTHER)` and `valueFrom` are not resolved."""
    claimed: frozenset[str] = frozenset()
    """The resources among its limits that a claim serves, and no device plugin."""

    @property
    def runs_to_completion(self) -> bool:
        """Whether it is a plain init container, whose end the next container waits for."""
        return self.init and not self.sidecar

    @property
    def field_path(self) -> str:
        """Its place in the pod, for events."""
        return f"spec.{'initContainers' if self.init else 'containers'}{{{self.name}}}"


@dataclass(frozen=True, slots=True)
class PodSpec:
    uid: str
    namespace: str
    name: str
    containers: tuple[ContainerSpec, ...]
    """Init containers first: the order in which a kubelet allocates."""


def read_pod(pod: Mapping[str, Any]) -> PodSpec:
    """Read a v1 Pod, or raise InvalidInput; a missing uid or namespace is made up."""
    try:
        metadata, spec = pod["metadata"], pod["spec"]
        extended = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
        claimed = extended.get("requestMappings") or ()
        listed = [(each, True) for each in spec.get("initContainers") or ()]
        listed += [(each, False) for each in spec["containers"]]
        return PodSpec(
            uid=str(metadata.get("uid") or uuid.uuid4()),
            namespace=str(metadata.get("namespace") or "default"),
            name=str(metadata["name"]),
            containers=tuple(_container(each, claimed, init=init) for each, init in listed),
        )
    except (KeyError, TypeError, AttributeError, InvalidQuantity) as error:
        raise InvalidInput(f"not a pod that can run: {error!r}") from error


def _container(
    container: Mapping[str, Any], claimed: Iterable[Mapping[str, Any]], *, init: bool
) -> ContainerSpec:
    limits = (container.get("resources") or {}).get("limits") or {}
    return ContainerSpec(
        name=str(container["name"]),
        init=init,
        sidecar=init and container.get("restartPolicy") == ALWAYS,
        limits=tuple(
            (str(name), parse_count(str(value)))
            for name, value in limits.items()
            if is_extended_resource(str(name))
        ),
        env=tuple(container.get("env") or ()),
        claimed=frozenset(
            each["resourceName"] for each in claimed if each["containerName"] == container["name"]
        ),
    )


def is_extended_resource(name: str) -> bool:
    """Whether a device plugin may own a resource of this name.

    It has a domain, none of Kubernetes' own, and no quota prefix (the rule of the API server's
    `IsExtendedResourceName`).
    """
    domain, slash, rest = name.partition("/")
    native = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return bool(slash and domain and rest) and not native and not name.startswith("requests.")


# State


def now() -> datetime:
    return datetime.now(UTC)


class Phase(StrEnum):
    """A pod's phase. No pod succeeds: app containers run until they are killed."""

    PENDING = "Pending"
    RUNNING = "Running"
    FAILED = "Failed"


class Stage(StrEnum):
    """The state of a container, by its key in a pod's status."""

    WAITING = "waiting"
    RUNNING = "running"
    TERMINATED = "terminated"


@dataclass(slots=True)
class ContainerState:
    spec: ContainerSpec
    stage: Stage = Stage.WAITING
    reason: str = "PodInitializing"
    """Why it waits or has ended (`CreateContainerConfigError`, `Completed`, …)."""
    message: str = ""
    exit_code: int = 0
    granted: Granted = field(default_factory=Granted)
    """What it was given at its last start."""
    started: int = 0
    attempts: int = 0
    """How often a start was tried, successfully or not."""
    since: datetime = field(default_factory=now)
    """When it came into its stage."""
    killed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to end it while it runs."""

    @property
    def running(self) -> bool:
        return self.stage is Stage.RUNNING

    def wait(self, reason: str, message: str) -> None:
        self.stage, self.reason, self.message = Stage.WAITING, reason, message

    def run(self, granted: Granted) -> None:
        self.granted = granted
        self.stage, self.reason, self.message, self.since = Stage.RUNNING, "", "", now()
        self.killed.clear()
        self.started += 1

    def end(self, exit_code: int) -> None:
        self.stage, self.message, self.exit_code = Stage.TERMINATED, "", exit_code
        self.since = now()
        self.reason = "Error" if exit_code else "Completed"


@dataclass(slots=True)
class PodState:
    """One pod's life so far; a live record, not a copy."""

    spec: PodSpec
    phase: Phase = Phase.PENDING
    reason: str = ""
    """Of a pod that was refused: `UnexpectedAdmissionError`."""
    message: str = ""
    containers: dict[str, ContainerState] = field(default_factory=dict)
    """By name, init containers first."""
    since: datetime = field(default_factory=now)
    """When it came to this node."""

    def __post_init__(self) -> None:
        self.containers = {each.name: ContainerState(each) for each in self.spec.containers}

    @property
    def active(self) -> bool:
        """Whether it was not refused, and so holds its devices."""
        return self.phase is not Phase.FAILED

    @property
    def settled(self) -> bool:
        """Whether nothing more happens, except retries."""
        if not self.active:
            return True
        stuck = any(each.stage is Stage.WAITING and each.message for each in self)
        return stuck or all(each.stage is not Stage.WAITING for each in self if not each.spec.init)

    def __iter__(self) -> Iterator[ContainerState]:
        return iter(self.containers.values())

    def __getitem__(self, name: str) -> ContainerState:
        return self.containers[name]


# What happened


@dataclass(frozen=True, slots=True)
class Call:
    """One call between the kubelet and a plugin, noted when it begins.

    `method` is a method of either protocol, or `Registered` (the answer to `Register`), or
    `Disconnected`. `ids` are the devices in question.
    """

    method: str
    resource: str
    ids: tuple[str, ...] = ()


@dataclass(slots=True)
class Event:
    """A Kubernetes Event on a pod, with the message as `kubectl describe pod` shows it."""

    type: str
    reason: str
    message: str
    pod: PodSpec
    field_path: str = ""
    at: datetime = field(default_factory=now)
    key: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    """Its name among all events."""

    @property
    def content(self) -> tuple[str, ...]:
        return (self.type, self.reason, self.message, self.field_path, self.pod.uid)


class Journal:
    """The calls and events of one kubelet, the newest last, and a signal for waiters."""

    def __init__(self) -> None:
        self.version = 0
        self.calls: deque[Call] = deque(maxlen=KEPT)
        self.events: deque[Event] = deque(maxlen=KEPT)
        self._changed = asyncio.Event()

    def call(self, method: str, resource: str, ids: tuple[str, ...] = ()) -> None:
        self.calls.append(Call(method, resource, ids))
        self.ring()

    def event(
        self, kind: str, reason: str, message: str, pod: PodSpec, field_path: str = ""
    ) -> None:
        """Add an event; one that is repeated counts once."""
        new = Event(kind, reason, message, pod, field_path)
        if all(each.content != new.content for each in self.events):
            self.events.append(new)
        self.ring()

    def ring(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds, checked after each change."""
        while not holds():
            await self._changed.wait()
