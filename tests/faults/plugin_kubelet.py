"""The kubelet stand-in as a process that can be killed, frozen, and told to misbehave.

    kubelet = Kubelet(processes, folder)      # python -m tests.faults.plugin_kubelet
    kubelet.start()
    kubelet.ask("fault", refuse="not today")
    assert kubelet.view().offered == {…}
    kubelet.kill()                            # -9; `start` begins anew from its checkpoint

Told over a unix socket beside its folder, a connection an order. Orders that may take long (a pod's
admission waits for plugins) are begun and answered at once.
"""

import argparse
import asyncio
import contextlib
import inspect
import random
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any, Final

from simulator.kubelet.standin import KubeletStandIn
from tests.support import Process, Processes, eventually, python_module

ANSWER_SECONDS: Final = 60.0

Devices = dict[str, tuple[bool, int | None]]
"""Health and NUMA node of devices by id."""


@dataclass(frozen=True, slots=True)
class View:
    """What a kubelet knows at one moment."""

    offered: Mapping[str, Devices]
    """Devices by resource; of plugins that are there, and of no empty resource."""
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    ledger: Mapping[str, tuple[tuple[str, ...], bytes]]
    """Device ids by pod UID, container and resource, with what was answered."""
    failed: frozenset[str]
    """Names of pods that were refused."""


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
        """Start it, from the checkpoint that an earlier one left, and wait until it serves."""
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

        eventually(serves, what="the kubelet stand-in")

    def kill(self) -> None:
        """End it with SIGKILL; whatever it has on disk stays."""
        if self.process is not None:
            self.process.kill()
        self.process = None
        self._frozen = False

    def freeze(self) -> None:
        """Stop it from answering anybody, with all its connections open."""
        self._signal(signal.SIGSTOP)
        self._frozen = True

    def thaw(self) -> None:
        """Let it go on."""
        if self._frozen:
            self._signal(signal.SIGCONT)
        self._frozen = False

    def _signal(self, number: int) -> None:
        if self.process is not None and self.process.running:
            self.process.popen.send_signal(number)

    def ask(self, order: str, **values: object) -> Any:
        """Give an order, and return what it says."""
        try:
            with Client(str(self._control), "AF_UNIX") as connection:
                connection.send((order, values))
                if not connection.poll(ANSWER_SECONDS):
                    raise KubeletGone("no answer")
                error, value = connection.recv()
        except (OSError, EOFError) as gone:
            raise KubeletGone(str(gone)) from gone
        assert not error, f"{order}: {error}"
        return value

    def view(self) -> View:
        """What it knows now."""
        return View(**self.ask("view"))


# The process -------------------------------------------------------------------------------------


class Control:
    """Takes orders for a stand-in, in a thread."""

    def __init__(self, kubelet: KubeletStandIn, listener: Listener) -> None:
        self._kubelet = kubelet
        self._listener = listener
        self._begun: set[asyncio.Task[object]] = set()

    def answer(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer one order after the other."""
        while True:
            with contextlib.suppress(OSError, EOFError), self._listener.accept() as connection:
                order, values = connection.recv()
                done = asyncio.run_coroutine_threadsafe(self._obey(order, values), loop)
                try:
                    connection.send(("", done.result()))
                except Exception as error:  # noqa: BLE001 - it is for the test to judge
                    connection.send((repr(error), None))

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
            "fault": self._kubelet.set_faults,
            "admit": lambda pod: self._begin(self._kubelet.admit(pod)),
            "adopt": lambda pod: self._begin(self._adopt(pod)),
            "delete": lambda uid: self._begin(self._delete(uid)),
        }
        answer = orders[order](**values)
        return await answer if inspect.isawaitable(answer) else answer

    async def _adopt(self, pod: dict[str, Any]) -> None:
        self._kubelet.adopt(pod)

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
        for name, resource in devices.registered.registered.items():
            if resource.options is not None and not resource.stopped:
                offered[name] = {
                    key: (device.healthy, device.numa_nodes[0] if device.numa_nodes else None)
                    for key, device in (resource.devices or {}).items()
                }
        return {
            "offered": {resource: found for resource, found in offered.items() if found},
            "capacity": resources.capacity,
            "allocatable": resources.allocatable,
            "ledger": {
                f"{each.pod_uid} {each.container} {each.resource}": (each.ids, each.response)
                for each in devices.entries
            },
            "failed": frozenset(pod.spec.name for pod in kubelet.pods if not pod.active),
        }


async def run(folder: Path, control: Path) -> None:
    """Serve until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    chance = random.Random(1)  # noqa: S311 - to be had again, not secret
    kubelet = KubeletStandIn(folder, node_name="n1", retry_seconds=0.05, rng=chance)
    async with kubelet:
        answer = Control(kubelet, Listener(str(control), "AF_UNIX")).answer
        loop = asyncio.get_running_loop()
        threading.Thread(target=answer, args=(loop,), daemon=True).start()
        await stop.wait()


def main() -> int:
    """Run the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--control", type=Path, required=True)
    flags = parser.parse_args()
    asyncio.run(run(flags.dir, flags.control))
    return 0


if __name__ == "__main__":
    sys.exit(main())
