"""The life of a pod: its claims prepared, init containers in order, then the app containers.

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
from pathlib import Path
from typing import Final

from simulator.kubelet.cdi import Unresolvable, injected
from simulator.kubelet.claims import ClaimManager, PrepareFailed
from simulator.kubelet.device_manager import DeviceManager, StartRefused
from simulator.kubelet.devices import Granted
from simulator.kubelet.pods import (
    ContainerSpec,
    ContainerState,
    Journal,
    Phase,
    PodSpec,
    PodState,
    Stage,
)

KILLED: Final = 137
"""The exit code of a container that was killed (128 + SIGKILL)."""


@dataclass(frozen=True, slots=True)
class Node:
    """The parts of a node that a pod's worker uses."""

    devices: DeviceManager
    claims: ClaimManager
    journal: Journal
    up: asyncio.Event
    """Set while the kubelet runs."""
    retry_seconds: float | None
    cdi_dir: Path

    def given(self, pod: PodSpec, container: ContainerSpec) -> Granted:
        """Variables and devices that a container starts with (Unresolvable if it can't)."""
        granted = self.devices.granted(pod, container)
        ids = self.claims.cdi_devices(pod, container)
        return injected(granted, ids, self.cdi_dir) if ids else granted

    async def pause(self, shortest: float, longest: float) -> None:
        by_chance = random.uniform(shortest, longest)  # noqa: S311 - jitter
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

    async def _prepare(self) -> None:
        while True:
            await self._node.up.wait()
            try:
                await self._node.claims.prepare(self._pod.spec)
            except PrepareFailed as error:
                if not self._node.up.is_set():
                    continue
                text = f"Failed to prepare dynamic resources: {error}"
                reason = "FailedPrepareDynamicResources"
                self._journal.event("Warning", reason, text, self._pod.spec)
                await self._node.pause(60, 90)
            else:
                return

    async def _run(self) -> None:
        if self._pod.spec.claims:
            await self._prepare()
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
            await self._node.pause(10, 20)

    async def _try_start(self, state: ContainerState) -> str:
        """Start a container; returns what prevents it."""
        while True:
            await self._node.up.wait()
            problem, given = "", Granted()
            try:
                await self._node.devices.pre_start(self._pod.spec, state.spec)
                given = self._node.given(self._pod.spec, state.spec)
            except (StartRefused, Unresolvable) as error:
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
