"""A node for fault tests, from its cards to its kubelet; a failure tells its seed and its steps."""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from simulator.cards import Rack
from tests.faults.plugin_chaos import KERNEL_UEVENT, Powers, Storm
from tests.faults.plugin_kubelet import Kubelet
from tests.faults.plugin_model import Model
from tests.hanging import Held
from tests.support import Processes

LAST_WORDS: Final = 80
"""Lines of the plugin's log that a failure shows."""


def may_hang(folder: Path) -> bool:
    """Whether reads can be made to hang here."""
    probe = folder / "probe"
    probe.touch()
    try:
        Held(probe).release()
    except OSError:
        return False
    return True


def may_send_uevents() -> bool:
    """Whether the kernel can be made to send uevents."""
    try:
        KERNEL_UEVENT.write_text("change\n")
    except OSError:
        return False
    return True


@contextlib.contextmanager
def stormy(folder: Path, processes: Processes, mode: str, seed: int) -> Iterator[Storm]:
    """A node on which all may happen that this machine lets happen."""
    (folder / "cdi").mkdir()
    powers = Powers(may_hang(folder), may_send_uevents())
    chance = random.Random(seed)  # noqa: S311 - repeatable
    model = Model(Rack(folder / "root"), chance)
    kubelet = Kubelet(processes, folder / "k", folder / "control")
    made = Storm(folder, mode, model, kubelet, chance, powers)
    try:
        yield made
    except BaseException:
        print(f"seed {seed}, mode {mode}, {powers}", *made.log, *_last_words(made), sep="\n")  # noqa: T201 - for who looks into the failure
        raise
    finally:
        model.mend_all()  # or the folder could not be removed
        kubelet.kill()
        if made.api is not None:
            made.api.kill()
        if made.plugin is not None:
            made.plugin.process.kill()


def _last_words(made: Storm) -> list[str]:
    """The end of what the plugin said, and whether it has ended."""
    if made.plugin is None:
        return []
    process = made.plugin.process
    ended = "runs" if process.running else f"ended with {process.popen.returncode}"
    return ["", f"the plugin {ended}; its last words:", *process.stderr.splitlines()[-LAST_WORDS:]]
