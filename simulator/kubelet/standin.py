"""A kubelet without a container runtime, for tests and the demo.

    async with KubeletStandIn(folder, node_name="n1") as kubelet:
        …                                   # a plugin registers in folder/device-plugins
        pod = await kubelet.admit(pod_object)
        await kubelet.settled(pod)
        assert pod["main"].running
        assert pod["main"].granted.devices == …
        await kubelet.restart()

Its behaviour was measured on kubelet 1.36.2, or follows the source where nothing was measured.

Not modelled: topology manager policies other than `none`, CPUs and memory, images and volumes,
probes, eviction, ResourceClaims, plugins found through `plugins_registry`, containers that end by
themselves, the ten seconds between two reports of the node's status (each change is reported at
once), the end of a lost plugin's capacity after five minutes, the new admission of pods whose
containers don't run when the kubelet restarts, and back-off that grows (every retry waits the same
interval).
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Self

from services.kubelet.sockets import plugins_folder
from services.process.errors import KubeletError
from simulator.kubelet.device_manager import AllocationFailed, DeviceManager
from simulator.kubelet.pod_worker import Node, PodWorker
from simulator.kubelet.pods import Journal, Phase, PodSpec, PodState, read_pod
from simulator.kubelet.registration import Faults

UNEXPECTED: Final = "UnexpectedAdmissionError"


class KubeletStandIn:
    """One node's kubelet; an async context manager that starts and stops it."""

    def __init__(
        self, folder: Path, *, node_name: str = "node", retry_seconds: float | None = None
    ) -> None:
        """Prepare a kubelet that is stopped.

        `folder` is a node's `/var/lib/kubelet`, short, for the sockets in it; here `pod-logs` in it
        is `/var/log/pods`. A start is tried again after `retry_seconds`, by default 10 to 20 by
        chance.
        """
        self.folder = folder
        self.node_name = node_name
        self.journal = Journal()
        self.devices = DeviceManager(folder, active=self._active, journal=self.journal)
        self.events = self.journal.events
        """The events on its pods, the oldest first."""
        self.calls = self.journal.calls
        """The calls from and to plugins, the oldest first."""
        self.in_use = self.devices.in_use
        self._pods: dict[str, PodState] = {}
        self._workers: dict[str, PodWorker] = {}
        self._endings: dict[str, asyncio.Task[None]] = {}
        self._admission = asyncio.Lock()
        self._up = asyncio.Event()
        self._node = Node(self.devices, self.journal, self._up, retry_seconds)
        self._lives = 0

    def _active(self) -> list[PodSpec]:
        return [pod.spec for pod in self._pods.values() if pod.active]

    # The kubelet's own life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self) -> None:
        """Start: read the checkpoint, delete every other file in the folder, serve."""
        await self.devices.start()
        self._lives += 1
        self._up.set()
        self.journal.ring()

    async def stop(self) -> None:
        """Stop: drop the plugins and leave all sockets. Containers run on."""
        self._up.clear()
        await self.devices.stop()
        self.journal.ring()

    async def restart(self) -> None:
        """Stop and start; the allocations of running pods are kept."""
        await self.stop()
        await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        for ending in self._endings.values():
            ending.cancel()
        await asyncio.gather(*self._endings.values(), return_exceptions=True)
        for worker in self._workers.values():
            await worker.stop()
        self._workers.clear()

    # Pods

    async def admit(self, pod: Mapping[str, Any]) -> PodState:
        """Admit a v1 Pod that is bound to this node: allocate its devices, then run it.

        Returns its live record: running, or Failed for good if it could not have its devices. A pod
        that is here already is left alone.
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
                state.phase, state.reason = Phase.FAILED, UNEXPECTED
                state.message = f"Pod was rejected: {problem}"
                self.journal.event("Warning", UNEXPECTED, problem, spec)
            else:
                self._run(state)
        self.journal.ring()
        return state

    async def _allocate(self, spec: PodSpec) -> str:
        """Allocate, across a restart of the kubelet if need be; returns the error."""
        while True:
            await self._up.wait()
            life = self._lives
            try:
                await self.devices.allocate(spec)
            except AllocationFailed as error:
                if life == self._lives and self._up.is_set():
                    return f"Allocate failed due to {error}, which is unexpected"
            else:
                return ""

    def _run(self, state: PodState) -> None:
        self._log_folder(state.spec).mkdir(parents=True, exist_ok=True)
        self._workers[state.spec.uid] = PodWorker(state, self._node)

    def _log_folder(self, spec: PodSpec) -> Path:
        return self.folder / "pod-logs" / f"{spec.namespace}_{spec.name}_{spec.uid}"

    async def delete_pod(self, pod: PodState) -> None:
        uid = pod.spec.uid
        if uid not in self._endings:
            self._endings[uid] = asyncio.create_task(self._end(pod))
        try:
            await asyncio.shield(self._endings[uid])
        finally:
            if uid not in self._pods:
                self._endings.pop(uid, None)

    async def _end(self, pod: PodState) -> None:
        if (worker := self._workers.pop(pod.spec.uid, None)) is not None:
            await worker.stop()
        self._pods.pop(pod.spec.uid, None)
        await asyncio.to_thread(shutil.rmtree, self._log_folder(pod.spec), ignore_errors=True)
        self.journal.ring()

    async def restart_container(self, pod: PodState, container: str) -> None:
        """End a running container, and wait until its next start was tried."""
        state = pod[container]
        before = state.attempts
        if pod.spec.uid not in self._workers or not state.running:
            raise KubeletError(f"container {container} of pod {pod.spec.name} does not run")
        state.killed.set()
        await self.journal.until(lambda: state.attempts > before)

    async def settled(self, pod: PodState) -> PodState:
        """Wait until a pod runs, has failed, or waits for something to be fixed."""
        await self.until(lambda: pod.settled)
        return pod

    async def until(self, holds: Callable[[], bool], timeout: float = 180) -> None:  # noqa: ASYNC109 - a deadline
        async with asyncio.timeout(timeout):
            await self.journal.until(holds)

    # What there is

    @property
    def capacity(self) -> dict[str, int]:
        """The node's capacity by device plugin resource."""
        return self.devices.registered.capacity()

    @property
    def allocatable(self) -> dict[str, int]:
        """The healthy part of the capacity, in use or not."""
        return {name: len(ids) for name, ids in self.devices.registered.healthy().items()}

    @property
    def pods(self) -> tuple[PodState, ...]:
        """All pods of the node, failed ones too."""
        return tuple(self._pods.values())

    # What may go wrong

    @contextmanager
    def faulty(self, **faults: object) -> Iterator[None]:
        """Answer registrations with these `Faults` inside the block, then without any."""
        self.set_faults(**faults)
        try:
            yield
        finally:
            self.set_faults(**asdict(Faults()))

    def set_faults(self, **changes: object) -> None:
        """Answer registrations with these `Faults` from now on."""
        for name, value in changes.items():
            setattr(self.devices.faults, name, value)
        self.journal.ring()

    async def cut_stream(self, resource: str) -> None:
        """Break the connection to a resource's plugin; no file changes."""
        if self.devices.registration is not None:
            await self.devices.registration.cut(resource)

    def remove_folder(self) -> None:
        """Remove `device-plugins`; plugins can't register until the kubelet restarts."""
        shutil.rmtree(plugins_folder(self.folder))
