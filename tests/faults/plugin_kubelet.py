"""The kubelet stand-in as a process that can be killed, frozen, and told to misbehave.

    kubelet = Kubelet(processes, folder)      # python -m tests.faults.plugin_kubelet
    kubelet.start()
    kubelet.ask("fault", refuse="not today")
    assert kubelet.view().offered == {…}
    kubelet.kill()                            # -9; `start` begins anew from its checkpoint

Told over a unix socket beside its folder: a line of JSON each way, a connection an order. Orders
that may take long (a pod's admission waits for plugins) are begun and answered at once.
"""

import argparse
import asyncio
import contextlib
import inspect
import json
import random
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from simulator.kubelet.standin import KubeletStandIn
from tests.support import Process, Processes, eventually, python_module

ANSWER_SECONDS: Final = 60.0
MAX_LINE: Final = 8 << 20

Devices = dict[str, tuple[bool, int | None]]
"""Health and NUMA node of devices by id."""


@dataclass(frozen=True, slots=True)
class View:
    """What a kubelet knows at one moment.

    Args:
        offered: Devices by id, by resource; of plugins that are there, and of no empty resource.
        lost: Resources whose plugin is gone, by their capacity.
        capacity: What the node's status says.
        allocatable: The same.
        ledger: Device ids by pod UID, container and resource, with a digest of what was answered.
        running: Names of pods whose containers run.
        failed: Pods that were refused, and why.
        calls: How often each method was called in this life.
        alive: How many streams are followed.
    """

    offered: Mapping[str, Devices]
    lost: Mapping[str, int]
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    ledger: Mapping[str, tuple[tuple[str, ...], str]]
    running: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)
    calls: Mapping[str, int] = field(default_factory=dict)
    alive: int = 0


class KubeletGone(Exception):
    """It doesn't answer: it was killed, or it is frozen."""


class Kubelet:
    """The test's end of the process."""

    def __init__(self, processes: Processes, folder: Path, control: Path) -> None:
        self.folder = folder
        self.process: Process | None = None
        self._processes = processes
        self._control = control
        self._frozen = False

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self.process is not None and self.process.running

    def start(self) -> None:
        """Starts it, from the checkpoint that an earlier one left, and waits until it serves."""
        self._control.unlink(missing_ok=True)
        command = python_module(
            "tests.faults.plugin_kubelet", "--dir", self.folder, "--control", self._control
        )
        self.process = process = self._processes.start(command, name="kubelet")

        def serves() -> bool:
            process.assert_running()
            with contextlib.suppress(KubeletGone):
                self.ask("ping")
                return True
            return False

        eventually(serves, timeout=60, what="the kubelet stand-in")

    def kill(self) -> None:
        """Ends it with SIGKILL; whatever it has on disk stays."""
        if self.process is not None:
            self.process.kill()
        self.process = None
        self._frozen = False

    def freeze(self) -> None:
        """Stops it from answering anybody, with all its connections open."""
        self._signal(signal.SIGSTOP)
        self._frozen = True

    def thaw(self) -> None:
        """Lets it go on."""
        if self._frozen:
            self._signal(signal.SIGCONT)
        self._frozen = False

    def _signal(self, number: int) -> None:
        if self.process is not None and self.process.running:
            self.process.popen.send_signal(number)

    def ask(self, order: str, **values: object) -> Any:
        """Gives an order, and returns what it says."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(ANSWER_SECONDS)
                connection.connect(str(self._control))
                connection.sendall(json.dumps({"order": order, **values}).encode() + b"\n")
                with connection.makefile("rb") as answers:
                    line = answers.readline()
        except OSError as error:
            raise KubeletGone(str(error)) from error
        if not line:
            raise KubeletGone("it ended meanwhile")
        answer = json.loads(line)
        assert "error" not in answer, f"{order}: {answer['error']}"
        return answer["value"]

    def view(self) -> View:
        """What it knows now."""
        told = self.ask("view")
        offered = {
            resource: {key: (healthy, numa) for key, (healthy, numa) in devices.items()}
            for resource, devices in told.pop("offered").items()
        }
        ledger = {key: (tuple(ids), digest) for key, (ids, digest) in told.pop("ledger").items()}
        running = frozenset(told.pop("running"))
        return View(offered=offered, ledger=ledger, running=running, **told)


# The process -------------------------------------------------------------------------------------


class Control:
    """Takes orders for a stand-in."""

    def __init__(self, kubelet: KubeletStandIn) -> None:
        self._kubelet = kubelet
        self._begun: set[asyncio.Task[object]] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: one order."""
        with contextlib.suppress(ConnectionError):
            order = json.loads(await reader.readline() or b"{}")
            try:
                value = await self._obey(order.pop("order", ""), order)
                answer = {"value": value}
            except Exception as error:  # noqa: BLE001 - it is for the test to judge
                answer = {"error": repr(error)}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _obey(self, order: str, values: dict[str, Any]) -> object:
        orders: dict[str, Callable[..., Any]] = {
            "ping": lambda: "pong",
            "view": self._view,
            "stopped": lambda: self._kubelet.devices.registration is None,
            "stop": self._kubelet.stop,
            "start": self._kubelet.start,
            "restart": self._kubelet.restart,
            "cut_stream": self._kubelet.cut_stream,
            "delete_sockets": self._kubelet.delete_sockets,
            "remove_folder": self._kubelet.remove_folder,
            "fault": self._fault,
            "admit": lambda pod: self._begin(self._kubelet.admit(pod)),
            "adopt": lambda pod: self._begin(self._adopt(pod)),
            "delete": lambda uid: self._begin(self._delete(uid)),
            "restart_container": self._restart_container,
        }
        answer = orders[order](**values)
        return await answer if inspect.isawaitable(answer) else answer

    def _fault(self, **values: object) -> None:
        for name, value in values.items():
            setattr(self._kubelet.devices.faults, name, value)
        self._kubelet.journal.ring()

    async def _adopt(self, pod: dict[str, Any]) -> None:
        self._kubelet.adopt(pod)

    async def _restart_container(self, uid: str, name: str) -> None:
        pod = next(pod for pod in self._kubelet.pods if pod.spec.uid == uid)
        await self._kubelet.restart_container(pod, name)

    def _begin(self, step: Any) -> None:
        task = asyncio.ensure_future(step)
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)

    async def _delete(self, uid: str) -> None:
        pods = [pod for pod in self._kubelet.pods if pod.spec.uid == uid]
        for pod in pods:
            await self._kubelet.delete_pod(pod)

    def _view(self) -> dict[str, Any]:
        kubelet = self._kubelet
        devices, resources = kubelet.devices, kubelet.resources
        offered: dict[str, Devices] = {}
        lost: dict[str, int] = {}
        for name, resource in devices.registered.registered.items():
            if resource.options is None or resource.stopped_at is not None:
                lost[name] = resources.capacity.get(name, 0)
                continue
            offered[name] = {
                key: (device.healthy, device.numa_nodes[0] if device.numa_nodes else None)
                for key, device in (resource.devices or {}).items()
            }
        return {
            "offered": {resource: found for resource, found in offered.items() if found},
            "lost": lost,
            "capacity": resources.capacity,
            "allocatable": resources.allocatable,
            "ledger": {
                f"{each.pod_uid} {each.container} {each.resource}": (
                    each.ids,
                    each.response.hex(),
                )
                for each in devices.entries
            },
            "running": [
                pod.spec.name for pod in kubelet.pods if pod.active and all(c.running for c in pod)
            ],
            "failed": {pod.spec.name: pod.message for pod in kubelet.pods if not pod.active},
            "calls": Counter(call.method for call in kubelet.calls),
            "alive": devices.registration.followed if devices.registration else 0,
        }


async def run(folder: Path, control: Path) -> None:
    """Serves until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    chance = random.Random(1)  # noqa: S311 - to be had again, not secret
    kubelet = KubeletStandIn(folder, node_name="n1", retry_seconds=0.05, rng=chance)
    async with kubelet:
        server = await asyncio.start_unix_server(Control(kubelet).answer, control, limit=MAX_LINE)
        async with server:
            await stop.wait()


def main() -> int:
    """Runs the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--control", type=Path, required=True)
    flags = parser.parse_args()
    asyncio.run(run(flags.dir, flags.control))
    return 0


if __name__ == "__main__":
    sys.exit(main())
