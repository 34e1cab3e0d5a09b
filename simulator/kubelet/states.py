"""The state of pods and containers, for tests and the API server.

The records here are the kubelet's only memory of pods; `podworker` alone writes them.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from simulator.kubelet.pods import ContainerSpec, EnvVar, PodSpec


def now() -> datetime:
    """The time of day, for people who read statuses and events."""
    return datetime.now(UTC)


class Phase(StrEnum):
    """A pod's phase."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Stage(StrEnum):
    """The state of a container, by its key in a pod's status."""

    WAITING = "waiting"
    RUNNING = "running"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node in a container.

    Attributes:
        container_path: where the container sees it.
        host_path: where the node has it.
        permissions: of `r`, `w` and `m`.
    """

    container_path: str
    host_path: str
    permissions: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the host in a container."""

    container_path: str
    host_path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Granted:
    """What `Allocate` gave one container, all its resources together.

    Attributes:
        env: variables; of two resources that set one name, one is kept.
        devices: device nodes; one a container path.
        mounts: mounts; one a container path.
        annotations: handed to the runtime.
        cdi_devices: names of CDI devices.
        allocated: the device ids by resource.
    """

    env: tuple[tuple[str, str], ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    cdi_devices: tuple[str, ...] = ()
    allocated: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(slots=True)
class ContainerState:
    """One container's life so far.

    Attributes:
        spec: what was asked for.
        stage: waiting, running or terminated.
        reason: why it waits or has ended (`CreateContainerConfigError`, `Completed`, …).
        message: the sentence with that reason.
        exit_code: of its last end.
        restarts: how often it was started again.
        granted: what it was given at its last start; empty before the first.
        env: all its variables at its last start, in order: those of `Allocate`, then the spec's.
        started: how often it was started.
        attempts: how often that was tried, successfully or not.
        since: when it came into its stage.
    """

    spec: ContainerSpec
    stage: Stage = Stage.WAITING
    reason: str = "PodInitializing"
    message: str = ""
    exit_code: int = 0
    restarts: int = 0
    granted: Granted = field(default_factory=Granted)
    env: tuple[EnvVar, ...] = ()
    started: int = 0
    attempts: int = 0
    since: datetime = field(default_factory=now)

    @property
    def running(self) -> bool:
        """Whether it runs now."""
        return self.stage is Stage.RUNNING

    @property
    def environment(self) -> dict[str, str]:
        """The variables as the process sees them: the last of a name counts, as in runtimes.

        Variables from references are left out, since they have no value here.
        """
        return {each.name: each.value for each in self.env if not each.source}

    @property
    def devices(self) -> tuple[DeviceNode, ...]:
        """The device nodes it was given."""
        return self.granted.devices

    def wait(self, reason: str, message: str = "") -> None:
        """Set it to waiting."""
        self.stage, self.reason, self.message = Stage.WAITING, reason, message

    def run(self, granted: Granted) -> None:
        """Set it to running, with what it was given."""
        given = tuple(EnvVar(name, value) for name, value in granted.env)
        self.granted, self.env = granted, given + self.spec.env
        self.stage, self.reason, self.message, self.since = Stage.RUNNING, "", "", now()
        self.restarts += bool(self.started)
        self.started += 1

    def end(self, exit_code: int) -> None:
        """Set it to terminated."""
        self.stage, self.message, self.exit_code = Stage.TERMINATED, "", exit_code
        self.since = now()
        self.reason = "Error" if exit_code else "Completed"


@dataclass(slots=True)
class PodState:
    """One pod's life so far; a live record, not a copy.

    Attributes:
        spec: what was asked for.
        phase: as in its status.
        reason: of a pod that was refused (`UnexpectedAdmissionError`).
        message: the sentence with that reason.
        containers: by name, init containers first.
        since: when it came to this node.
    """

    spec: PodSpec
    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""
    containers: dict[str, ContainerState] = field(default_factory=dict)
    since: datetime = field(default_factory=now)

    def __post_init__(self) -> None:
        for container in self.spec.all_containers:
            self.containers.setdefault(container.name, ContainerState(container))

    @property
    def active(self) -> bool:
        """Whether it holds its devices: it has not ended."""
        return self.phase in {Phase.PENDING, Phase.RUNNING}

    @property
    def settled(self) -> bool:
        """Whether nothing more happens, except retries.

        Every app container runs or has ended, or something waits for its cause to go away, or
        the pod has come to its end.
        """
        if not self.active:
            return True
        states = self.containers.values()
        apps = [each for each in states if not each.spec.init]
        stuck = any(each.stage is Stage.WAITING and each.message for each in states)
        return stuck or all(each.stage is not Stage.WAITING for each in apps)

    def __iter__(self) -> Iterator[ContainerState]:
        return iter(self.containers.values())

    def __getitem__(self, name: str) -> ContainerState:
        return self.containers[name]


@dataclass(slots=True)
class Event:
    """A Kubernetes event on a pod.

    Attributes:
        type: `Normal` or `Warning`.
        reason: `Failed`, `Started`, `UnexpectedAdmissionError`, …
        message: word for word as `kubectl describe pod` would show it.
        pod: whom it is about.
        field_path: which container, or empty.
        count: how often it was said.
        first: when it was first said.
        last: when it was last said.
        key: its name among all events.
    """

    type: str
    reason: str
    message: str
    pod: PodSpec
    field_path: str = ""
    count: int = 1
    first: datetime = field(default_factory=now)
    last: datetime = field(default_factory=now)
    key: str = field(default_factory=lambda: uuid.uuid4().hex[:16])

    def says_the_same_as(self, other: "Event") -> bool:
        """Whether the other is the same event, repeated."""
        return (self.type, self.reason, self.message, self.field_path, self.pod.uid) == (
            other.type,
            other.reason,
            other.message,
            other.field_path,
            other.pod.uid,
        )

    def again(self) -> None:
        """Count a repetition."""
        self.count += 1
        self.last = now()
