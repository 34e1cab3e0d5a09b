"""A node on which everything goes wrong at random, and the quiet points between.

A `Storm` has the cards' model, the kubelet, the plugin and a source of chance. `rage` does random
things for some seconds; `settle` puts everything right and waits until the kubelet's view equals
the truth; `check` then looks at what the plugin holds. Each step stands in the log, which a failure
shows with the seed.
"""

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from services.kubelet.sockets import plugins_folder
from simulator.card_faults import Fault
from tests.faults.plugin_api import ApiServer
from tests.faults.plugin_kubelet import Kubelet, KubeletGone, View
from tests.faults.plugin_model import MOST_CARDS, SURE, SURE_HANGS, Model
from tests.faults.plugin_process import Held, Plugin
from tests.hanging import Hang
from tests.support import eventually, soaking

QUIET_SECONDS: Final = 120.0
"""Within which all must be as it should be; the machine may be busy with others."""

MOST_PODS: Final = 4
KERNEL_UEVENT: Final = Path("/sys/class/mem/null/uevent")
"""Writing to it makes the kernel send an event that is about no card."""

ANNOTATED: Final = ("af", "region", "regiondevel", "")
FLAGGED: Final = "af"
"""The mode in which a plugin is started that follows the annotation."""

FDS_A_SERVER: Final = 2
"""Descriptors of a registered resource: its socket, and the connection from the kubelet."""

TASKS: Final = 40
TASKS_A_SERVER: Final = 20
"""Tasks of the process, and of a registered resource; gRPC has one for each of its methods."""

SLACK: Final = 4 if soaking() else 8
"""Descriptors and threads that come and go: a look at a file, a probe, gRPC's own."""


@dataclass(frozen=True, slots=True)
class Powers:
    """What this machine lets a test do: make reads hang, make the kernel send uevents."""

    hang: bool
    uevents: bool


@dataclass
class Storm:
    """Faults at random, and what must hold after them.

    `folder` has the cards in `root`, the kubelet in `k`, CDI files in `cdi`. If there is an `api`
    server, the node's annotation says the mode. `kills` also kills the plugin.
    """

    folder: Path
    mode: str
    model: Model
    kubelet: Kubelet
    chance: random.Random
    powers: Powers
    plugin: Plugin | None = None
    api: ApiServer | None = None
    kills: bool = False
    log: list[str] = field(default_factory=list)
    pods: dict[str, dict[str, object]] = field(default_factory=dict)
    ledger: dict[str, tuple[tuple[str, ...], bytes]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    steps: int = 0
    restarts: int = 0
    named: int = 0
    baseline: Held | None = None
    began: float = field(default_factory=time.monotonic)

    def say(self, line: str) -> None:
        """Note a step."""
        self.log.append(f"{time.monotonic() - self.began:8.3f} {line}")

    # The storm -----------------------------------------------------------------------------------

    def rage(self, seconds: float) -> None:
        """Does random things for a while."""
        actions = self._actions()
        weights = [weight for weight, _ in actions]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            _, action = self.chance.choices(actions, weights)[0]
            with contextlib.suppress(KubeletGone):
                told = action()
                if told:
                    self.say(told)
            self.steps += 1
            pause = self.chance.choice((0, 0.01, 0.05, 0.3))
            time.sleep(self.chance.uniform(0, pause))  # a fault comes at any moment

    def _actions(self) -> list[tuple[int, Callable[[], str]]]:
        """What may happen, and how often one of it happens against the others."""
        model, chance, one_of = self.model, self.chance, self._one_of
        actions: list[tuple[int, Callable[[], str]]] = [
            (4, self._restart),
            (1, self._restart_often),
            (2, self._kill_kubelet),
            (2, self._freeze),
            (2, lambda: self._fault(refuse=chance.choice(("", "not in the mood", "ü" * 5000)))),
            (2, lambda: self._fault(hang=chance.random() < 0.5)),
            (1, lambda: self._fault(version=chance.choice(("v1beta1", "v2")))),
            (3, lambda: one_of(sorted(self.kubelet.view().offered), self._cut)),
            (2, self._delete_sockets),
            (1, self._remove_folder),
            (2, lambda: self._order("stop")),
            (4, self._admit),
            (3, lambda: one_of(sorted(self.pods), self._end_pod)),
            (2, self._no_cdi_folder),
        ]
        if self.mode != "units":
            actions += [
                (4, lambda: model.add() if len(model.physical()) < MOST_CARDS else ""),
                (4, lambda: one_of(model.physical(), model.remove)),
                (
                    3,
                    lambda: one_of(
                        sorted({*model.physical()} & {*model.with_ports()}), model.split
                    ),
                ),
                (3, lambda: one_of(model.virtual(), model.join)),
                (5, lambda: one_of(model.with_ports(), model.program)),
                (10, lambda: one_of(model.with_ports(), self._ruin)),
                (5, lambda: one_of(list(model.cards), self._mend)),
                (2, lambda: one_of(model.with_ports(), self.flap)),
            ]
        if self.powers.hang:
            actions.append((5, lambda: one_of(model.with_ports(), self._hang)))
        if self.powers.uevents:
            actions.append((1, self._flood))
        if self.kills:
            actions.append((4, self._kill_plugin))
        if (api := self.api) is not None:
            actions += [
                (3, lambda: self._annotate(api)),
                (2, lambda: _did(api.freeze, "the API server is frozen")),
                (1, lambda: _did(api.kill, "the API server is killed")),
                (3, lambda: _did(api.mend, "the API server answers")),
            ]
        return actions

    def _one_of(self, found: list[str], act: Callable[[str], str]) -> str:
        """Does something to one of what there is."""
        return act(self.chance.choice(found)) if found else ""

    # Cards

    def _ruin(self, address: str) -> str:
        return self.model.ruin(address, self.chance.choice(list(Fault)))

    def _hang(self, address: str) -> str:
        return self.model.hang(address, self.chance.choice(list(Hang)))

    def _mend(self, address: str) -> str:
        self.model.mend(address)
        return f"{address} is mended"

    def flap(self, address: str) -> str:
        """Break a card several times, and mend it each time."""
        times = self.chance.randrange(2, 8)
        for _ in range(times):
            self.model.ruin(address, self.chance.choice(SURE))
            self.model.mend(address)
        return f"{address} flaps {times} times"

    # The kubelet

    def _order(self, order: str) -> str:
        self.kubelet.ask(order)
        return f"kubelet: {order}"

    def _restart(self) -> str:
        self.restarts += 1
        return self._order("restart")

    def _restart_often(self) -> str:
        times = self.chance.randrange(3, 9)
        for _ in range(times):
            self._restart()
            time.sleep(self.chance.uniform(0, 0.2))  # several a second, at any moment of any call
        return f"the kubelet restarts {times} times"

    def _kill_kubelet(self) -> str:
        self.kubelet.kill()
        self.say("the kubelet is killed")
        if self.chance.random() < 0.5:
            return ""
        self._ensure_kubelet()
        return "the kubelet is started again"

    def _freeze(self) -> str:
        self.kubelet.freeze()
        time.sleep(self.chance.choice((0.1, 0.5, 2)))  # as long as it may stay frozen
        self.kubelet.thaw()
        return "the kubelet was frozen for a while"

    def _fault(self, **fault: object) -> str:
        self.kubelet.ask("fault", **fault)
        return f"registrations: {str(fault)[:60]}"

    def _cut(self, resource: str) -> str:
        with contextlib.suppress(AssertionError):  # it was lost meanwhile
            self.kubelet.ask("cut_stream", resource=resource)
        return f"the stream of {resource} is cut"

    def _delete_sockets(self) -> str:
        own = self.chance.random() < 0.2
        with contextlib.suppress(AssertionError):  # there is no folder
            self.kubelet.ask("delete_sockets", own=own)
        return "all sockets are deleted" if own else "the plugins' sockets are deleted"

    def _remove_folder(self) -> str:
        with contextlib.suppress(AssertionError):  # there is none, or one has been made in it
            self.kubelet.ask("remove_folder")
        for name in list(self.pods):  # the checkpoint is gone with it, and so is who has what
            self._end_pod(name)
        return "the folder is removed"

    def _annotate(self, api: ApiServer) -> str:
        mode = self.chance.choice(ANNOTATED)
        api.annotate(mode)
        self.mode = mode or FLAGGED
        return f"the node's annotation says {mode or 'nothing'}"

    # Pods

    def _admit(self) -> str:
        offered = self.kubelet.view().offered
        if not offered or len(self.pods) >= MOST_PODS:
            return ""
        resource = self.chance.choice(sorted(offered))
        self.named += 1
        pod = make_pod(f"p{self.named}", resource, self.chance.randrange(1, 3))
        self.pods[f"p{self.named}"] = pod
        self.kubelet.ask("admit", pod=pod)
        return f"pod p{self.named} wants {resource}"

    def _end_pod(self, name: str) -> str:
        self.kubelet.ask("delete", uid=f"uid-{name}")
        self._forget(name)
        return f"pod {name} ends"

    def _forget(self, name: str) -> None:
        self.pods.pop(name, None)
        self.ledger = {key: each for key, each in self.ledger.items() if not _of(key, name)}

    # The machine

    def _kill_plugin(self) -> str:
        """Kill the plugin at any moment, also in the middle of writing a file."""
        assert self.plugin is not None
        self.plugin = self.plugin.killed()
        with contextlib.suppress(OSError):
            (self.folder / "cdi/.accelbind-fpga.json.new").write_text('{"cdiVersion": "0.5.0", "d')
        return "the plugin is killed and started again"

    def _flood(self) -> str:
        with KERNEL_UEVENT.open("w") as file:
            for _ in range(3000):
                file.write("change\n")
                file.flush()
        return "3000 uevents"

    def _no_cdi_folder(self) -> str:
        """Something else is in the place of the folder of CDI files for a while."""
        folder = self.folder / "cdi"
        if not folder.is_dir():
            return ""
        aside = self.folder / "cdi.aside"
        folder.rename(aside)
        folder.write_text("in the way")
        self.model.add() if len(self.model.cards) < MOST_CARDS else None
        time.sleep(self.chance.uniform(0, 0.3))  # as long as it may be in the way
        folder.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            aside.rename(folder)
            return "the CDI folder was away"
        for path in aside.iterdir():  # the plugin has made another one meanwhile
            path.unlink()
        aside.rmdir()
        return "the CDI folder was made anew"

    # Quiet ---------------------------------------------------------------------------------------

    def _ensure_kubelet(self) -> None:
        self.kubelet.thaw()
        if self.kubelet.running:
            return
        self.kubelet.start()
        for pod in self.pods.values():
            self.kubelet.ask("adopt", pod=pod)

    def settle(self) -> View:
        """Put all right, and wait until the kubelet's view is the truth."""
        self.model.mend_all()
        if self.api is not None:
            self.api.mend()
        self._ensure_kubelet()
        self.kubelet.ask("fault", refuse="", hang=False, version="v1beta1")
        if not plugins_folder(self.kubelet.folder).joinpath("kubelet.sock").exists():
            self.kubelet.ask("restart")
        if self.kubelet.ask("stopped"):
            self.kubelet.ask("start")
        self.say("all is put right")
        self.await_truth()
        view = self.kubelet.view()
        for name in view.failed & set(self.pods):
            self._end_pod(name)
        return view

    def await_truth(self) -> None:
        """Wait until the kubelet's view is what the model says."""
        assert self.plugin is None or self.plugin.process.running, "the plugin has ended"
        began = time.monotonic()
        eventually(self._as_it_is, timeout=QUIET_SECONDS, interval=0.05, what="the truth")
        self.say(f"quiet after {time.monotonic() - began:.2f} s")

    def _as_it_is(self) -> bool:
        self.model.clear_registers()
        view, truth = self.kubelet.view(), self.model.offered(self.mode)
        _same(view.offered, truth, "what is offered")
        capacity = {resource: count for resource, count in view.capacity.items() if count}
        _same(capacity, {each: len(devices) for each, devices in truth.items()}, "capacity")
        well = {each: sum(good for good, _ in devices.values()) for each, devices in truth.items()}
        allocatable = {resource: count for resource, count in view.allocatable.items() if count}
        _same(allocatable, {each: count for each, count in well.items() if count}, "allocatable")
        for key, entry in self.ledger.items():
            _same(view.ledger.get(key), entry, f"what {key} has")
        self.ledger |= {
            key: entry for key, entry in view.ledger.items() if any(_of(key, p) for p in self.pods)
        }
        return True

    def stand(self) -> None:
        """Break some cards and wait until the kubelet knows just that."""
        for address in self.model.with_ports():
            if self.chance.random() < 0.4:
                self.say(self.model.ruin(address, self.chance.choice(SURE)))
            elif self.powers.hang and self.chance.random() < 0.3:
                self.say(self.model.hang(address, self.chance.choice(SURE_HANGS)))
        self.await_truth()
        if self.kills:
            self.say(self._kill_plugin())
            self.settle()  # what is broken when a plugin starts is not offered before

    def last_word(self) -> None:
        """One thing more goes wrong, after which nothing happens that would put it right."""
        assert self.plugin is not None
        words: dict[str, Callable[[], object]] = {
            "streams are cut": self._cut_all,
            "the plugins' sockets are deleted": lambda: self.kubelet.ask("delete_sockets"),
            "the kubelet restarts": lambda: self.kubelet.ask("restart"),
            "the folder is made anew": lambda: (self._remove_folder(), self._restart()),
        }
        plugin, before = self.plugin, {*self.plugin.sockets()}
        if not self.words:
            self.words = self.chance.sample(sorted(words), len(words))
        word = self.words.pop()
        words[word]()
        self.say(f"last of all, {word}")
        if before:
            some = bool(self.model.offered(self.mode))
            eventually(
                lambda: (plugin.sockets() or not some) and not before & {*plugin.sockets()},
                timeout=QUIET_SECONDS,
                what=f"another registration after {word}",
            )
        self.await_truth()

    def _cut_all(self) -> None:
        for resource in sorted(self.kubelet.view().capacity):  # also those that have no devices
            self._cut(resource)

    def check(self) -> Held:
        """What the plugin holds at a quiet point: no more than its resources need."""
        assert self.plugin is not None
        eventually(self._holds_no_more, timeout=QUIET_SECONDS, interval=0.3, what="no leak")
        held = self.plugin.held()
        if self.baseline is None:
            self.baseline = held
        return held

    def _holds_no_more(self) -> bool:
        plugin = self.plugin
        assert plugin is not None
        plugin.process.assert_running()
        held = plugin.held()
        _same(plugin.sockets(), held.listening, "sockets in the folder are those served:")
        _same(plugin.errors(), [], "mistakes")
        _same([name for name in plugin.cdi_files() if name.startswith(".")], [], "halves of files")
        if self.mode != "units":
            truth = self.model.offered(self.mode)
            prefix = "regiondevel-" if self.mode == "regiondevel" else ""
            ids = {f"{prefix}{key}" for devices in truth.values() for key in devices}
            _same(plugin.cdi_devices(), ids, "the devices in CDI files")
        if self.baseline is None:
            return True
        servers = len(held.listening) - len(self.baseline.listening)
        assert sum(held.descriptors.values()) <= (
            sum(self.baseline.descriptors.values()) + FDS_A_SERVER * servers + SLACK
        ), (held, self.baseline)
        assert held.threads <= self.baseline.threads + SLACK, (held, self.baseline)
        assert sum(held.tasks.values()) <= TASKS + TASKS_A_SERVER * len(held.listening), held.tasks
        return True


def _did(act: Callable[[], None], words: str) -> str:
    act()
    return words


def _same(found: object, wanted: object, what: str) -> None:
    assert found == wanted, f"{what} is {found}, not {wanted}"


def _of(key: str, pod: str) -> bool:
    return key.startswith(f"uid-{pod} ")


def make_pod(name: str, resource: str, count: int) -> dict[str, object]:
    """A pod whose one container asks for devices, as if its containers had run already."""
    amount = {resource: str(count)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {
            "nodeName": "n1",
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "resources": {"limits": amount, "requests": amount},
                }
            ],
        },
        "status": {"containerStatuses": [{"name": "c", "restartCount": 0, "state": {}}]},
    }
