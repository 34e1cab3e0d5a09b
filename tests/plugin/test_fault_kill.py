"""kill -9 of the plugin at any moment: started again, it offers the same, and nothing is stale."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest

from tests.faults.plugin_chaos import Storm, make_pod
from tests.faults.plugin_process import Plugin
from tests.faults.plugin_storm import calm
from tests.support import Processes, eventually, soak, soaking

KILLS = 30
FEWEST = 3
"""Kills however busy the machine is."""

Moment = Callable[[Storm], str]


@contextlib.contextmanager
def node(folder: Path, processes: Processes, seed: int) -> Iterator[Storm]:
    """A node with cards, a kubelet, a plugin and pods that run."""
    with calm(folder, processes, "af", seed) as made:
        for _ in range(4):
            made.model.add()
        made.kubelet.start()
        start(made, processes)
        made.settle()
        for number, resource in enumerate(sorted(made.kubelet.view().offered)):
            made.pods[f"held{number}"] = pod = make_pod(f"held{number}", resource, 1)
            made.kubelet.ask("admit", pod=pod)
        eventually(lambda: made.kubelet.view().running == set(made.pods), what="the pods")
        made.await_truth()
        assert made.ledger
        yield made


def start(made: Storm, processes: Processes) -> None:
    made.plugin = Plugin(processes, made.folder, "--mode", made.mode)


# Moments -----------------------------------------------------------------------------------------


def any_moment(made: Storm) -> str:
    seconds = made.chance.uniform(0, 1.5)
    time.sleep(seconds)  # the moment is chance's: while it starts, registers, or serves
    return f"{seconds:.3f} s after its start"


def while_it_registers(made: Storm) -> str:
    before = made.kubelet.view().calls.get("Register", 0)
    made.kubelet.ask("restart")
    eventually(lambda: made.kubelet.view().calls.get("Register", 0) > before, interval=0)
    return "while it registers"


def while_a_registration_hangs(made: Storm) -> str:
    made.kubelet.ask("fault", hang=True)
    while_it_registers(made)
    return "while a registration hangs"


def while_it_allocates(made: Storm) -> str:
    ready(made)
    resource = made.chance.choice(sorted(made.kubelet.view().offered))
    made.named += 1
    made.kubelet.ask("admit", pod=make_pod(f"late{made.named}", resource, 1))
    time.sleep(made.chance.choice((0, 0.001, 0.003)))  # within a call that takes so long
    return "while it allocates"


def while_files_change(made: Storm) -> str:
    ready(made)
    made.model.add() if len(made.model.cards) < 6 else made.model.remove(made.model.physical()[-1])
    time.sleep(made.chance.uniform(0, 0.06))  # as long as a look and the writing of a file take
    return "while cards come and go, and their file is written"


def while_it_streams(made: Storm) -> str:
    ready(made)
    made.flap(made.chance.choice(made.model.with_ports()))
    return "while it streams"


def with_broken_cards(made: Storm) -> str:
    ready(made)
    made.await_truth()
    made.stand()
    file = made.folder / "k/device-plugins/accelbind/offered.json"
    known = {key for devices in made.model.offered(made.mode).values() for key in devices}
    eventually(lambda: {each["id"] for each in json.loads(file.read_bytes())["devices"]} == known)
    return "while cards are broken"


MOMENTS: tuple[Moment, ...] = (
    any_moment,
    any_moment,
    while_it_registers,
    while_a_registration_hangs,
    while_it_allocates,
    while_files_change,
    while_it_streams,
    with_broken_cards,
    with_broken_cards,
)


def ready(made: Storm) -> None:
    """Waits until it has registered something, so that there is something to kill."""
    eventually(lambda: made.kubelet.view().offered, timeout=60)


# The test ----------------------------------------------------------------------------------------


def test_a_kubelet_that_freezes_is_found_again_once_it_goes_on(
    short_dir: Path, processes: Processes
) -> None:
    with node(short_dir, processes, 1) as made:
        made.kubelet.freeze()
        made.model.remove(made.model.physical()[0])
        made.model.add()
        made.kubelet.thaw()
        made.await_truth()


@pytest.mark.long
@pytest.mark.timeout(0)
def test_killed_at_any_moment_it_comes_back_with_the_same_view_and_nothing_stale(
    short_dir: Path, processes: Processes, figure: Callable[[str], None]
) -> None:
    length = soak(short=5, full=600)
    took: list[float] = []
    with node(short_dir, processes, length.seed) as made:
        until = time.monotonic() + length.seconds
        while len(took) < FEWEST or time.monotonic() < until:
            took.append(kill_and_start(made, processes))
            if len(took) == KILLS and not soaking():
                break
        made.check()
    figure(
        f"seed {length.seed}: {len(took)} kills, the same view {min(took):.2f} to"
        f" {max(took):.2f} s after the next start, median {median(took):.2f} s"
    )


def kill_and_start(made: Storm, processes: Processes) -> float:
    """One kill; the seconds from the next start to the same view."""
    assert made.plugin is not None
    moment = made.chance.choice(MOMENTS)
    broken = moment is with_broken_cards
    made.say(moment(made))
    made.plugin.process.kill()
    made.kubelet.ask("fault", hang=False)
    if not broken:
        made.model.mend_all()
    stale = {*made.plugin.sockets(), *leave_halves(made)}
    began = time.monotonic()
    start(made, processes)
    made.await_truth()
    seconds = time.monotonic() - began
    made.say(f"the same view after {seconds:.2f} s")
    eventually(lambda: not [path for path in stale if Path(path).exists()], what="nothing stale")
    eventually(lambda: made.plugin and made.plugin.cdi_devices() == ids(made), what="the CDI file")
    made.model.mend_all()
    made.await_truth()
    view = made.kubelet.view()
    assert set(made.pods) <= view.running, "pods run on"
    for name in [each for each in {*view.running, *view.failed} if each.startswith("late")]:
        made.kubelet.ask("delete", uid=f"uid-{name}")
    return seconds


def leave_halves(made: Storm) -> list[str]:
    """What a plugin leaves that is killed in the middle of writing a CDI file."""
    half = made.folder / "cdi/.accelbind-fpga.json.new"
    half.write_text('{"cdiVersion": "0.5.0", "dev')
    return [str(half)]


def ids(made: Storm) -> set[str]:
    return {key for devices in made.model.offered(made.mode).values() for key in devices}
