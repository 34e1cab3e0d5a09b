"""The life of a pod: init containers in order, then the app containers.

    waiting ──PreStartContainer──▶ running ──its workload ends, or it is restarted──▶ terminated
       ▲ │ an error: CreateContainerConfigError, an event,                                │
       │ └── and again after the retry interval                                           │
       └──────────────── where the restart policy says so ◀───────────────────────────────┘

Containers have no processes. What they do is a `Workload`, a coroutine whose result is their exit
code; the usual one ends at once in a plain init container and never in the others.

While the kubelet is stopped, running containers run on and nothing is started. A start that was
under way is forgotten, and is repeated once the kubelet is back.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import structlog

from simulator.kubelet.allocator import (
    Allocator,
    PluginFailed,
    PreStart,
    StartRefused,
    pre_start_text,
)
from simulator.kubelet.journal import Journal
from simulator.kubelet.pods import ALWAYS, PodSpec
from simulator.kubelet.states import ContainerState, Phase, PodState, Stage

LOG = structlog.get_logger()

Workload: TypeAlias = Callable[[PodSpec, ContainerState], Awaitable[int]]
"""What a container does: given its pod and what it was started with, ends with an exit code."""

KILLED: Final = 137
"""The exit code of a container that was made to end (128 + SIGKILL)."""


async def usual_workload(_pod: PodSpec, container: ContainerState) -> int:
    """Ends at once in a plain init container, and never in the others."""
    if not container.spec.runs_to_completion:
        await asyncio.get_running_loop().create_future()
    return 0


@dataclass(frozen=True, slots=True)
class Node:
    """What a pod's life needs of its kubelet.

    Attributes:
        allocator: knows what each container was given.
        pre_start: makes one PreStartContainer call; raises PluginFailed.
        journal: for events.
        up: set while the kubelet runs.
        retry_seconds: gives the time until the next try.
        workload: what containers do.
    """

    allocator: Allocator
    pre_start: Callable[[PreStart], Awaitable[None]]
    journal: Journal
    up: asyncio.Event
    retry_seconds: Callable[[], float]
    workload: Workload


class PodWorker:
    """Runs one admitted pod; the only writer of its records."""

    def __init__(self, pod: PodState, node: Node) -> None:
        self.pod = pod
        self._node = node
        self._turn = asyncio.Lock()
        self._running: dict[str, asyncio.Task[int]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts to run the pod."""
        self._task = asyncio.create_task(self._run(), name=f"pod {self.pod.spec.name}")
        self._task.add_done_callback(self._report)

    def _report(self, task: asyncio.Task[None]) -> None:
        """Log a workload that raises, and fail its pod."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            LOG.error("pod failed", pod=self.pod.spec.name, exc_info=error)
            self._finish(Phase.FAILED)

    async def stop(self) -> None:
        """Stops all its containers, for good."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def works(self, container: str) -> bool:
        """Whether a container's workload is under way."""
        return container in self._running

    def kill(self, container: str) -> None:
        """End a running container now; the restart policy decides what follows."""
        if container in self._running:
            self._running[container].cancel()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            sidecars = []
            for container in self.pod.spec.init_containers:
                state = self.pod[container.name]
                life = group.create_task(self._live(state))
                if container.sidecar:
                    sidecars.append(life)
                    await self._node.journal.until(lambda state=state: bool(state.started))  # type: ignore[misc]
                elif not await life:
                    self._finish(Phase.FAILED)
                    break
            else:
                apps = [
                    group.create_task(self._live(self.pod[each.name]))
                    for each in self.pod.spec.containers
                ]
                ended_well = all(await asyncio.gather(*apps))
                self._finish(Phase.SUCCEEDED if ended_well else Phase.FAILED)
            for sidecar in sidecars:
                sidecar.cancel()

    def _finish(self, phase: Phase) -> None:
        self.pod.phase = phase
        self._node.journal.ring()

    async def _live(self, state: ContainerState) -> bool:
        """Run a container as often as its policy says; whether it ended well."""
        if state.spec.runs_to_completion and state.stage is Stage.TERMINATED:
            return True
        while True:
            if not state.running:
                await self._start(state)
            killed = await self._work(state)
            self._node.journal.ring()
            if not self._starts_again(state):
                return state.exit_code == 0
            if not killed:
                reason = "back-off restarting failed container"
                state.wait("CrashLoopBackOff", reason)
                await asyncio.sleep(self._node.retry_seconds())

    def _starts_again(self, state: ContainerState) -> bool:
        policy = self.pod.spec.restart_policy
        if state.spec.sidecar:
            return True
        if state.spec.init:
            return bool(state.exit_code) and policy != "Never"
        return policy == ALWAYS or (policy == "OnFailure" and bool(state.exit_code))

    async def _work(self, state: ContainerState) -> bool:
        """Let a container run until it ends; whether it was killed."""
        work = asyncio.ensure_future(self._node.workload(self.pod.spec, state))
        self._running[state.spec.name] = work
        self._node.journal.ring()
        try:
            state.end(await work)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            state.end(KILLED)
            return True
        finally:
            del self._running[state.spec.name]
        return False

    async def _start(self, state: ContainerState) -> None:
        """Tries until it runs."""
        while True:
            async with self._turn:
                problem = await self._try_start(state)
            if not problem:
                return
            state.wait("CreateContainerConfigError", problem)
            state.attempts += 1
            self._event("Warning", "Failed", f"Error: {problem}", state)
            await asyncio.sleep(self._node.retry_seconds())

    async def _try_start(self, state: ContainerState) -> str:
        """Start a container; returns what prevents it."""
        while True:
            await self._node.up.wait()
            problem = await self._ask_plugins(state)
            if self._node.up.is_set():
                break
        if problem:
            return problem
        state.run(self._node.allocator.granted(self.pod.spec, state.spec))
        state.attempts += 1
        if not state.spec.init:
            self.pod.phase = Phase.RUNNING
        self._event("Normal", "Created", f"Container created: {state.spec.name}", state)
        self._event("Normal", "Started", f"Container started: {state.spec.name}", state)
        return ""

    async def _ask_plugins(self, state: ContainerState) -> str:
        try:
            for call in self._node.allocator.before_start(self.pod.spec, state.spec):
                await self._node.pre_start(call)
        except StartRefused as error:
            return str(error)
        except PluginFailed as error:
            return pre_start_text(str(error))
        return ""

    def _event(self, kind: str, reason: str, message: str, state: ContainerState) -> None:
        self._node.journal.event(kind, reason, message, self.pod.spec, state.spec)
