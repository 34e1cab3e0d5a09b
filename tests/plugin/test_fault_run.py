"""The plugin through a storm of faults: after each, the kubelet knows the truth and nothing leaks.

`make test` has five seconds of it in mode `af`; `make soak` 30 minutes of each mode. A failure
shows the seed and all steps: `make soak SEED=…` does them again.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.plugin_api import ApiServer
from tests.faults.plugin_chaos import FLAGGED, Storm
from tests.faults.plugin_process import Held, Plugin
from tests.faults.plugin_storm import stormy
from tests.support import Processes, soak, soaking

MIB = 1024
ROUND_SECONDS = 5.0
GROWTH_MIB = 6.0 if soaking() else 24.0
"""What the plugin's own memory may grow after the warm-up, however long the run is; in a short one
on a busy machine it may be all of it."""


def weather(made: Storm, processes: Processes, seconds: float) -> list[Held]:
    """The whole run; what the plugin held at each quiet point."""
    for _ in range(3):
        made.model.add()
    made.kubelet.start()
    flags = ["--mode", made.mode]
    if made.api is not None:
        made.api.start()
        flags += ["--kubeconfig", str(made.api.kubeconfig)]
    made.plugin = Plugin(processes, made.folder, *flags)
    made.plugin.ready_for_signals()
    made.settle()
    held = [made.check()]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        made.rage(min(ROUND_SECONDS, max(1.0, seconds / 4)))
        made.settle()
        made.last_word()
        held.append(made.check())
        if made.mode != "units":
            made.stand()
    made.settle()
    held.append(made.check())
    return held


def told(made: Storm, held: list[Held], seed: int) -> str:
    first, last = held[0], held[-1]
    memory = [f"{each.anonymous / MIB:.1f}" for each in held[:: max(1, len(held) // 10)]]
    return (
        f"seed {seed}: {made.steps} steps, {made.restarts} restarts, {len(held)} quiet points,"
        f" own memory {' '.join(memory)} MiB,"
        f" {first.threads} → {last.threads} threads,"
        f" {sum(first.descriptors.values())} → {sum(last.descriptors.values())} descriptors"
    )


def growth(held: list[Held]) -> float:
    """MiB that the plugin's own memory grew after the first third of the quiet points."""
    warm = held[max(1, len(held) // 3)]
    return (held[-1].anonymous - warm.anonymous) / MIB


def storm(
    folder: Path,
    processes: Processes,
    mode: str,
    figure: Callable[[str], None],
    *,
    kills: bool = False,
) -> None:
    length = soak(short=5, full=1800)
    with stormy(folder, processes, mode, length.seed) as made:
        made.kills = kills
        if mode == FLAGGED:
            made.api = ApiServer(processes, folder / "api")
        held = weather(made, processes, length.seconds)
        figure(told(made, held, length.seed))
        assert kills or growth(held) < GROWTH_MIB


@pytest.mark.long
@pytest.mark.timeout(0)
def test_the_kubelet_knows_the_truth_after_every_storm(
    short_dir: Path, processes: Processes, figure: Callable[[str], None]
) -> None:
    storm(short_dir, processes, "af", figure)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_a_plugin_that_is_killed_at_any_moment_comes_back_with_the_same_view(
    short_dir: Path, processes: Processes, figure: Callable[[str], None]
) -> None:
    storm(short_dir, processes, "af", figure, kills=True)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("mode", ["region", "regiondevel", "units", "bdf", FLAGGED])
def test_it_does_so_in_every_mode_and_whatever_becomes_of_the_api_server(
    short_dir: Path, processes: Processes, figure: Callable[[str], None], mode: str
) -> None:
    storm(short_dir, processes, mode, figure)
