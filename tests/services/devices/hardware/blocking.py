"""Files that hang when a test says so: what a driver does that waits for a dead card.

A `Barrier` knows which paths hang; a `Scanner` gets its files from it.
"""

import re
import threading
from collections.abc import Callable
from pathlib import Path

from services.devices.hardware.sysfs import Sysfs
from services.devices.health import Reading
from services.process.problem import Problem


class Barrier:
    """Holds up whoever looks at paths that hang."""

    def __init__(self) -> None:
        self._closed: dict[str, threading.Event] = {}

    def hang(self, part: str) -> None:
        """Have every look hang in which this pattern is found."""
        self._closed[part] = threading.Event()

    def release(self, part: str) -> None:
        """Let go who hangs there, and whoever comes."""
        self._closed.pop(part).set()

    def release_all(self) -> None:
        """Let go everybody."""
        for part in list(self._closed):
            self.release(part)

    def __call__(self, look: str) -> None:
        for part, opened in list(self._closed.items()):
            if re.search(part, look):
                opened.wait()

    def files(self, root: Path) -> Sysfs:
        """The files of a root, behind this barrier."""
        return WatchedFiles(root, self)


class WatchedFiles(Sysfs):
    """Files that announce each look at them: `read …`, `list …`, `look at …`."""

    def __init__(self, root: Path, announce: Callable[[str], None]) -> None:
        super().__init__(root)
        self._announce = announce

    def read(self, path: str) -> Reading:
        self._announce(f"read {path}")
        return super().read(path)

    def names(self, path: str) -> list[str]:
        self._announce(f"list {path}")
        return super().names(path)

    def node_problem(self, name: str) -> Problem | None:
        self._announce(f"look at /dev/{name}")
        return super().node_problem(name)


def threads() -> int:
    """How many threads read cards."""
    return sum(thread.name.startswith("/sys/") for thread in threading.enumerate())
