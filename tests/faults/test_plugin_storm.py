"""The plugin through a storm of faults: after each, the kubelet knows the truth and nothing leaks.

`make test` has four seconds of it in mode `af`, in which the plugin is killed too; `make soak` 30
minutes of each mode. A failure shows the seed and all steps: `make soak SEED=…` does them again.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from simulator.cards import Rack
from simulator.kubelet.standin import KubeletStandIn
from tests.faults.plugin_model import Model
from tests.faults.plugin_storm import Storm, shown_if_it_fails
from tests.support import Processes, soak

ROUND_SECONDS = 5.0
GROWTH_MIB = 6.0
"""What the plugin's own memory may grow after the first third, however long the run is."""

pytestmark = pytest.mark.timeout(0)


@pytest.mark.parametrize(
    ("mode", "kills"),
    [
        pytest.param("af", True, marks=pytest.mark.long),
        *(
            pytest.param(mode, False, marks=pytest.mark.soak)
            for mode in ("af", "region", "regiondevel", "units", "bdf")
        ),
    ],
)
async def test_the_kubelet_knows_the_truth_after_every_storm(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    processes: Processes,
    figure: Callable[[str], None],
    *,
    mode: str,
    kills: bool,
) -> None:
    length = soak(short=4, full=1800)
    chance = random.Random(length.seed)  # noqa: S311 - repeatable
    model = Model(rack, chance)
    for _ in range(3):
        model.add()
    storm = Storm(short_dir, mode, model, kubelet, processes, chance, kills)
    with shown_if_it_fails(storm, length.seed):
        await storm.settle()
        memory, until = [storm.own_mib()], time.monotonic() + length.seconds
        while time.monotonic() < until:
            await storm.rage(min(ROUND_SECONDS, length.seconds / 2))
            await storm.settle()
            memory.append(storm.own_mib())
    figure(
        f"seed {length.seed}: {len(storm.steps)} steps, {len(memory)} quiet points, own memory"
        f" {memory[0]:.1f} to {memory[-1]:.1f} MiB"
    )
    if length.seconds > 60 and not kills:
        assert memory[-1] - memory[len(memory) // 3] < GROWTH_MIB
