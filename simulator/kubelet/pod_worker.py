"""The life of a pod: init containers in order, then the app containers.

    waiting ──PreStartContainer──▶ running ──killed, or the end of a plain init container──▶ ended
       ▲ │ an error: CreateContainerConfigError, an event,                                    │
       │ └── and again after the retry interval                                               │
       └───────────────────────── a killed container ◀────────────────────────────────────────┘

Containers have no processes: a plain init container ends at once, the others run until they are
killed, and start again whatever the restart policy. While the kubelet is stopped, containers run on
and nothing is started.
"""

import asyncio
import contextlib
import random
from dataclasses import dataclass
from typing import Final

from simulator.kubelet.device_manager import DeviceManager, StartRefused
from simulator.kubelet.devices import Granted
from simulator.kubelet.pods import (
    ContainerState,
    Journal,
    Phase,
    PodState,
    Stage,
)

KILLED: Final = 137
"""The exit code of a container that was killed (128 + SIGKILL)."""


@dataclass(frozen=True, slots=True)
class Node:
    """The parts of a node that a pod's worker uses."""

    devices: DeviceManager
    journal: Journal
    up: asyncio.Event
    """Set while the kubelet runs."""
    retry_seconds: float | None

    async def pause(self) -> None:
        by_chance = random.uniform(10, 20)  # noqa: S311 - jitter
        await asyncio.sleep(by_chance if self.retry_seconds is None else self.retry_seconds)


class PodWorker:
    """Runs one admitted pod; the only writer of its record."""

    def __init__(self, pod: PodState, node: Node) -> None:
        """Start to run a pod."""
        self._pod = pod
        self._node = node
        self._journal = node.journal
        self._turn = asyncio.Lock()
        self._task = asyncio.create_task(self._run(), name=f"pod {pod.spec.name}")

    async def stop(self) -> None:
        """Stop all its containers, for good."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for state in self._pod:
                if state.spec.runs_to_completion:
                    if state.stage is not Stage.TERMINATED:
                        await self._start(state)
                        state.end(0)
                        self._journal.ring()
                else:
                    group.create_task(self._keep_running(state))
                    if state.spec.sidecar:
                        await self._journal.until(lambda state=state: bool(state.started))  # type: ignore[misc]

    async def _keep_running(self, state: ContainerState) -> None:
        while True:
            if not state.running:
                await self._start(state)
            await state.killed.wait()
            state.end(KILLED)
            self._journal.ring()

    async def _start(self, state: ContainerState) -> None:
        while True:
            async with self._turn:
                problem = await self._try_start(state)
            if not problem:
                return
            state.wait("CreateContainerConfigError", problem)
            state.attempts += 1
            self._event("Warning", "Failed", f"Error: {problem}", state)
            await self._node.pause()

    async def _try_start(self, state: ContainerState) -> str:
        """Start a container; returns what prevents it."""
        while True:
            await self._node.up.wait()
            problem, given = "", Granted()
            try:
                await self._node.devices.pre_start(self._pod.spec, state.spec)
                given = self._node.devices.granted(self._pod.spec, state.spec)
            except StartRefused as error:
                problem = str(error)
            if self._node.up.is_set():  # else it was cut off, and is repeated
                break
        if problem:
            return problem
        state.run(given)
        state.attempts += 1
        if not state.spec.init:
            self._pod.phase = Phase.RUNNING
        self._event("Normal", "Created", f"Container created: {state.spec.name}", state)
        self._event("Normal", "Started", f"Container started: {state.spec.name}", state)
        return ""

    def _event(self, kind: str, reason: str, message: str, state: ContainerState) -> None:
        self._journal.event(kind, reason, message, self._pod.spec, state.spec.field_path)
