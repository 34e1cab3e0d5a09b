"""A node on which everything goes wrong at random, and the quiet points between.

`rage` does random things for some seconds: to the cards, the kubelet (a stand-in in this process)
and the plugin (a process). `settle` puts everything right, waits until the kubelet's view is what
the model says, and then looks at what the plugin holds. A failure shows the seed and all steps.
"""

import asyncio
import contextlib
import inspect
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from services.kubelet.sockets import plugins_folder, registration_socket
from simulator.kubelet.standin import KubeletStandIn
from tests.faults.plugin_model import Devices, Model
from tests.plugin.support import start_plugin
from tests.support import Process, Processes, eventually_async

QUIET_SECONDS: Final = 120.0
"""Within which all must be as it should be; the machine may be busy with others."""

MOST_DESCRIPTORS: Final = 80
MOST_THREADS: Final = 40
"""What a plugin of six cards holds at a quiet point is far below; a leak grows beyond it."""

Step = Callable[[], str | Awaitable[str]]


@dataclass
class Storm:
    """Faults at random, and what must hold after them.

    `folder` has the cards in `root`, the kubelet in `k`, CDI files in `cdi`. `kills` also kills the
    plugin, whatever it does.
    """

    folder: Path
    mode: str
    model: Model
    kubelet: KubeletStandIn
    processes: Processes
    chance: random.Random
    kills: bool
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plugin = self._start_plugin()

    def _start_plugin(self) -> Process:
        cdi = ("--cdi", "--cdi-dir", self.folder / "cdi")
        return start_plugin(self.processes, self.folder, "--mode", self.mode, *cdi)

    async def rage(self, seconds: float) -> None:
        weights, steps = zip(*self._possible(), strict=True)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            done = self.chance.choices(steps, weights)[0]()
            self.steps.append(await done if inspect.isawaitable(done) else done)
            pause = self.chance.choice((0, 0.01, 0.05, 0.3))
            await asyncio.sleep(self.chance.uniform(0, pause))  # a fault comes at any moment

    def _possible(self) -> Iterator[tuple[int, Step]]:
        """What may happen, and how often one of it happens against the others."""
        model = self.model
        yield 6, self._restart_kubelet
        yield 2, self._stop_kubelet
        yield 6, self._fault
        yield 3, self._cut_stream
        yield 1, self._remove_folder
        if self.kills:
            yield 4, self._kill_plugin
        if self.mode == "units":
            return
        yield 6, model.add
        yield 4, self._of_a_card(model.remove)
        yield 5, self._of_a_card(model.program)
        yield 10, self._of_a_card(model.ruin)
        yield 5, self._of_a_card(model.mend)

    def _of_a_card(self, act: Callable[[str], str]) -> Step:
        def step() -> str:
            return act(self.chance.choice(list(self.model.cards))) if self.model.cards else ""

        return step

    def _kill_plugin(self) -> str:
        self.plugin.kill()
        self.plugin = self._start_plugin()
        return "the plugin is killed and started again"

    async def _restart_kubelet(self) -> str:
        times = self.chance.choice((1, 1, 4))
        for _ in range(times):
            await self.kubelet.restart()
            await asyncio.sleep(self.chance.uniform(0, 0.2))  # several a second, at any moment
        return f"the kubelet restarts {times} times"

    async def _stop_kubelet(self) -> str:
        await self.kubelet.stop()
        return "the kubelet stops"

    def _fault(self) -> str:
        faults: list[dict[str, object]] = [
            {"refuse": "not in the mood"},
            {"refuse": ""},
            {"hang": True},
            {"hang": False},
        ]
        fault = self.chance.choice(faults)
        self.kubelet.set_faults(**fault)
        return f"registrations: {fault}"

    async def _cut_stream(self) -> str:
        offered = sorted(self._offered())
        if not offered:
            return ""
        resource = self.chance.choice(offered)
        with contextlib.suppress(KeyError):  # it was lost meanwhile
            await self.kubelet.cut_stream(resource)
        return f"the stream of {resource} is cut"

    def _remove_folder(self) -> str:
        with contextlib.suppress(OSError):  # there is none, or one has been made in it
            self.kubelet.remove_folder()
        return "the folder is removed"

    # Quiet

    async def settle(self) -> None:
        """Put all right, wait until the kubelet knows the truth, and look at the plugin."""
        for address in self.model.cards:
            self.model.mend(address)
        self.kubelet.set_faults(refuse="", hang=False)
        gone = self.kubelet.devices.registration is None
        # It keeps the capacity of what only a plugin offered that was killed.
        if gone or self.kills or not registration_socket(self.kubelet.folder).exists():
            await self.kubelet.restart()
        self.steps.append("all is put right")
        await eventually_async(self._is_true, QUIET_SECONDS, 0.05, what="the truth")
        await eventually_async(self._holds_no_more, QUIET_SECONDS, 0.1, what="no leak")

    def _offered(self) -> dict[str, Devices]:
        return {
            name: {
                key: (each.healthy, each.numa_nodes[0] if each.numa_nodes else None)
                for key, each in resource.devices.items()
            }
            for name, resource in self.kubelet.devices.registered.registered.items()
            if resource.devices and not resource.stopped
        }

    def _is_true(self) -> bool:
        self.plugin.assert_running()
        truth = self.model.offered(self.mode)
        assert self._offered() == truth
        counts = {name: len(devices) for name, devices in truth.items()}
        for found in (self.kubelet.capacity, self.kubelet.allocatable):
            assert {name: count for name, count in found.items() if count} == counts
        return True

    def _holds_no_more(self) -> bool:
        truth = self.model.offered(self.mode)
        sockets = [*plugins_folder(self.kubelet.folder).glob("accelbind-*.sock")]
        assert len(sockets) == len(truth), "one socket for each resource"
        if self.mode != "units":
            prefix = "regiondevel-" if self.mode == "regiondevel" else ""
            ids = {f"{prefix}{key}" for devices in truth.values() for key in devices}
            assert self._in_cdi_files() == ids
        proc = Path(f"/proc/{self.plugin.pid}")
        assert len([*proc.joinpath("fd").iterdir()]) <= MOST_DESCRIPTORS
        assert len([*proc.joinpath("task").iterdir()]) <= MOST_THREADS
        lines = self.plugin.stderr.splitlines()
        assert [
            each for each in lines if not each.startswith("{") or '"internal error"' in each
        ] == []
        return True

    def _in_cdi_files(self) -> set[str]:
        files = [json.loads(path.read_bytes()) for path in (self.folder / "cdi").glob("*.json")]
        return {device["name"] for file in files for device in file["devices"]}

    def own_mib(self) -> float:
        """The plugin's resident memory that is no file's."""
        status = Path(f"/proc/{self.plugin.pid}/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) / 1024


@contextlib.contextmanager
def shown_if_it_fails(storm: Storm, seed: int) -> Iterator[None]:
    """Print all steps, and the end of the plugin's log, if the block fails."""
    try:
        yield
    except BaseException:
        last = storm.plugin.stderr.splitlines()[-80:]
        print(f"seed {seed}, mode {storm.mode}", *storm.steps, "", *last, sep="\n")  # noqa: T201 - for who looks into the failure
        raise
