"""A kubelet without a container runtime, for tests and the demo.

    async with KubeletStandIn(folder, node_name="n1") as kubelet:
        …                                   # a plugin registers in folder/device-plugins
        pod = await kubelet.admit(pod_object)
        await kubelet.settled(pod)
        assert pod["main"].running
        assert pod["main"].environment["FPGA_REGION_0"] == …
        await kubelet.restart()

Its behaviour was measured on kubelet 1.36.2, or follows the source where nothing was measured.

Not modelled: topology manager policies other than `none`, CPUs and memory, DRA, images and volumes,
probes, eviction, the ten seconds between two reports of the node's status (each change is reported
at once), plugins found through `plugins_registry`, the new admission of pods whose containers don't
run when the kubelet restarts, and back-off that grows (every retry waits the same interval).
"""

import asyncio
import random
import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import structlog

from services.kubelet.sockets import plugins_folder, registration_socket
from services.process.errors import KubeletError
from simulator.kubelet.allocator import AllocationFailed
from simulator.kubelet.device_manager import DeviceManager
from simulator.kubelet.files import delete_sockets
from simulator.kubelet.journal import Call, Journal
from simulator.kubelet.pods import PodSpec, read_pod
from simulator.kubelet.podworker import Node, PodWorker, Workload, usual_workload
from simulator.kubelet.registration import fault
from simulator.kubelet.registry import NodeResources
from simulator.kubelet.states import Event, Phase, PodState, Stage

LOG = structlog.get_logger()

UNEXPECTED: Final = "UnexpectedAdmissionError"
POD_LOGS: Final = "pod-logs"


class KubeletStandIn:
    """One node's kubelet; an async context manager that starts and stops it."""

    def __init__(
        self,
        folder: Path,
        *,
        node_name: str = "node",
        pod_logs_dir: Path | None = None,
        retry_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        workload: Workload = usual_workload,
    ) -> None:
        """Prepares a kubelet that is stopped.

        Args:
            folder: what `/var/lib/kubelet` is on a node; short, for the sockets in it.
            node_name: its node.
            pod_logs_dir: what `/var/log/pods` is (by default `pod-logs` in `folder`).
            retry_seconds: between two tries to start a container; by default 10 to 20 by chance.
            clock: for the five minutes in which a lost plugin's capacity stays.
            rng: decides what the real kubelet leaves to chance: the order of a container's
                resources and of devices without a preference. Without it they are ordered.
            workload: what containers do.
        """
        self.folder = folder
        self.node_name = node_name
        self.pod_logs_dir = pod_logs_dir or folder / POD_LOGS
        self._journal = Journal()
        self._pods: dict[str, PodState] = {}
        self._workers: dict[str, PodWorker] = {}
        self._admission = asyncio.Lock()
        self._up = asyncio.Event()
        self._lives = 0
        self._devices = DeviceManager(
            folder, active=self._active, journal=self._journal, clock=clock, rng=rng
        )
        chance = rng or random.Random()  # noqa: S311 - no secret hangs on a retry interval
        self._node = Node(
            allocator=self._devices.allocator,
            pre_start=self._devices.pre_start,
            journal=self._journal,
            up=self._up,
            retry_seconds=lambda: (
                chance.uniform(10, 20) if retry_seconds is None else retry_seconds
            ),
            workload=workload,
        )

    def _active(self) -> list[PodSpec]:
        return [pod.spec for pod in self._pods.values() if pod.active]

    # The kubelet's own life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Starts: reads the checkpoint, deletes every other file in the folder, serves its own."""
        await self._devices.start()
        self._lives += 1
        self._up.set()
        self._journal.ring()

    async def stop(self) -> None:
        """Stops: drops the plugins and leaves all sockets. Containers run on."""
        self._up.clear()
        await self._devices.stop()
        self._journal.ring()

    async def restart(self) -> None:
        """Stops and starts; the allocations of running pods are kept."""
        await self.stop()
        await self.start()

    async def close(self) -> None:
        """Stops for good, and all containers with it."""
        await self.stop()
        for worker in list(self._workers.values()):
            await worker.stop()
        self._workers.clear()

    # Pods

    async def admit(self, pod: Mapping[str, Any]) -> PodState:
        """Admit a pod that is bound to this node: allocate its devices, then run it.

        Args:
            pod: a v1 Pod.

        Returns:
            Its live record: running its course, or Failed for good where it could not have its
            devices. A pod that is here already is left alone.
        """
        spec = read_pod(pod)
        if spec.uid in self._pods:
            return self._pods[spec.uid]
        state = self._pods[spec.uid] = PodState(spec)
        async with self._admission:
            problem = await self._allocate(spec)
            if spec.uid not in self._pods:
                return state
            if problem:
                self._refuse(state, problem)
            else:
                self._begin(state)
        self._journal.ring()
        return state

    async def _allocate(self, spec: PodSpec) -> str:
        """Allocate, across a restart of the kubelet if need be; returns the error."""
        while True:
            await self._up.wait()
            life = self._lives
            try:
                await self._devices.allocate(spec)
            except AllocationFailed as error:
                if life == self._lives and self._up.is_set():
                    return f"Allocate failed due to {error}, which is unexpected"
            else:
                return ""

    def _refuse(self, state: PodState, problem: str) -> None:
        state.phase, state.reason = Phase.FAILED, UNEXPECTED
        state.message = f"Pod was rejected: {problem}"
        self._journal.event("Warning", UNEXPECTED, problem, state.spec)

    def _begin(self, state: PodState) -> None:
        self._log_folder(state.spec).mkdir(parents=True, exist_ok=True)
        worker = self._workers[state.spec.uid] = PodWorker(state, self._node)
        worker.start()

    def _log_folder(self, spec: PodSpec) -> Path:
        return self.pod_logs_dir / spec.log_folder

    def adopt(self, pod: Mapping[str, Any]) -> PodState:
        """Adopt a pod whose containers were started by an earlier process."""
        state = PodState(read_pod(pod), phase=Phase.RUNNING)
        status = pod.get("status") or {}
        statuses = [
            *(status.get("initContainerStatuses") or ()),
            *(status.get("containerStatuses") or ()),
        ]
        for each in statuses:
            container = state[str(each["name"])]
            container.restarts = int(each.get("restartCount") or 0)
            container.started = container.restarts + 1
            if Stage.RUNNING in (each.get("state") or {}):
                container.run(self._devices.allocator.granted(state.spec, container.spec))
                container.restarts -= 1
            elif Stage.TERMINATED in (each.get("state") or {}):
                container.end(int(each["state"][Stage.TERMINATED].get("exitCode") or 0))
        self._pods[state.spec.uid] = state
        self._begin(state)
        return state

    async def delete_pod(self, pod: PodState) -> None:
        """End a pod: stop its containers, free its devices, remove its log folder."""
        self._pods.pop(pod.spec.uid, None)
        worker = self._workers.pop(pod.spec.uid, None)
        if worker is not None:
            await worker.stop()
        await asyncio.to_thread(shutil.rmtree, self._log_folder(pod.spec), ignore_errors=True)
        self._journal.ring()

    async def restart_container(self, pod: PodState, container: str) -> None:
        """End a running container, and wait until its next start was tried."""
        state = pod[container]
        before = state.attempts
        worker = self._workers.get(pod.spec.uid)
        if worker is None or not state.running:
            raise KubeletError(f"container {container} of pod {pod.spec.name} does not run")
        await self._journal.until(lambda: worker.works(container) or not state.running)
        worker.kill(container)
        await self._journal.until(lambda: state.attempts > before or not pod.active)

    async def settled(self, pod: PodState, timeout: float = 60) -> PodState:  # noqa: ASYNC109 - a deadline
        """Wait until a pod runs, has ended, or waits for something to be fixed."""
        await self.until(lambda: pod.settled, timeout)
        return pod

    async def until(self, holds: Callable[[], bool], timeout: float = 60) -> None:  # noqa: ASYNC109 - a deadline
        """Wait until a condition holds, checked after each change of this kubelet."""
        async with asyncio.timeout(timeout):
            await self._journal.until(holds)

    # What is to be seen

    @property
    def resources(self) -> NodeResources:
        """What the node's status says of its devices."""
        return self._devices.resources

    @property
    def capacity(self) -> dict[str, int]:
        """The node's capacity by device plugin resource."""
        return self.resources.capacity

    @property
    def allocatable(self) -> dict[str, int]:
        """The healthy part of the capacity, in use or not."""
        return self.resources.allocatable

    def in_use(self, resource: str) -> set[str]:
        """The devices of a resource that a pod has."""
        self._devices.allocator.forget_inactive()
        return self._devices.allocator.ledger.in_use(resource)

    def device_health(self, pod: PodState, container: str) -> dict[str, dict[str, bool]]:
        """Whether each device of a container is healthy, by resource and id.

        A device that its plugin no longer lists counts as healthy, as in the real kubelet.
        """
        registry, health = self._devices.registry, dict[str, dict[str, bool]]()
        for entry in self._devices.allocator.ledger.of_container(pod.spec.uid, container):
            known = {each: registry.device(entry.resource, each) for each in entry.ids}
            health[entry.resource] = {k: v is None or v.healthy for k, v in known.items()}
        return health

    @property
    def version(self) -> int:
        """A number that grows with each change."""
        return self._journal.version

    @property
    def pods(self) -> tuple[PodState, ...]:
        """All pods of the node, ended ones too."""
        return tuple(self._pods.values())

    @property
    def events(self) -> deque[Event]:
        """The events on its pods, the oldest first."""
        return self._journal.events

    @property
    def calls(self) -> deque[Call]:
        """The calls from and to plugins, the oldest first."""
        return self._journal.calls

    # What may go wrong

    def refusing(self, text: str) -> AbstractContextManager[None]:
        """Refuse every registration with this text, inside the block."""
        return fault(self._devices.faults, self._journal, refuse=text)

    def hanging(self) -> AbstractContextManager[None]:
        """Leave registrations unanswered, inside the block."""
        return fault(self._devices.faults, self._journal, hang=True)

    def speaking(self, version: str) -> AbstractContextManager[None]:
        """Accept only this version of the protocol, inside the block."""
        return fault(self._devices.faults, self._journal, version=version)

    def dialling(self, seconds: float) -> AbstractContextManager[None]:
        """Try a plugin's socket for so long instead of ten seconds, inside the block."""
        return fault(self._devices.faults, self._journal, dial_seconds=seconds)

    async def cut_stream(self, resource: str) -> None:
        """Breaks the connection to a resource's plugin; no file changes."""
        await self._devices.cut(resource)

    def delete_sockets(self, *, own: bool = False) -> list[str]:
        """Delete the plugins' sockets, and with `own` the kubelet's too; returns their names."""
        keep = None if own else registration_socket(self.folder)
        return delete_sockets(plugins_folder(self.folder), keep=keep)

    def remove_folder(self) -> None:
        """Remove `device-plugins`; plugins can't register until the kubelet restarts."""
        shutil.rmtree(plugins_folder(self.folder))
