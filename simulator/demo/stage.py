"""Starts the demo's processes and ends them, whatever happens.

Each runs in a session of its own with its output in a file, so that a Ctrl-C reaches the demo
alone, which then ends them in order: SIGTERM, a deadline, SIGKILL for the whole group.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from services.process.errors import WorldError

T = TypeVar("T")

START_SECONDS = 120.0
STOP_SECONDS = 30.0
_LOOK_EVERY = 0.02


class DemoFailed(WorldError):
    """The demo could not go on, or did not see what it should."""


@dataclass(slots=True)
class Part:
    """One process of the demo."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return self.process.poll() is not None

    def tail(self, lines: int = 8) -> str:
        """The end of what it wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@dataclass(slots=True)
class Stage:
    """The processes, in the order in which they were started."""

    folder: Path
    parts: list[Part] = field(default_factory=list)

    def start(self, name: str, module: str, *arguments: str | Path) -> Part:
        """Starts `python -m module arguments`.

        Args:
            name: unique; names its log too.
            module: what to run.
            arguments: its command line.
        """
        log = self.folder / "logs" / f"{name}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(),
                start_new_session=True,
            )
        part = Part(name, log, process)
        self.parts.append(part)
        return part

    def announced(self, file: Path, what: str) -> dict[str, Any]:
        """What a process writes into a file once it serves: JSON, such as its ports."""

        def read() -> dict[str, Any] | None:
            return json.loads(file.read_text()) if file.exists() else None

        return self.until(read, f"{what} to serve")

    def until(self, look: Callable[[], T | None], what: str, seconds: float = START_SECONDS) -> T:
        """Looks until something true comes back.

        Raises:
            DemoFailed: it did not in time, or a process ended meanwhile.
        """
        deadline = time.monotonic() + seconds
        while not (found := look()):
            for part in self.parts:
                if part.ended:
                    raise DemoFailed(
                        f"{part.name} ended with {part.process.returncode}, waiting for {what}"
                    )
            if time.monotonic() > deadline:
                raise DemoFailed(f"waited {seconds:.0f} s in vain for {what}")
            time.sleep(_LOOK_EVERY)
        return found

    def stop(self) -> dict[str, int | str]:
        """Asks all to end, last started first.

        Returns:
            Exit codes by name; a word instead where a process has left others behind.
        """
        for part in reversed(self.parts):
            if not part.ended:
                part.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                part.process.wait(STOP_SECONDS)
        left = {part.name for part in self.parts if _group_lives(part.process.pid)}
        self.kill()
        return {
            part.name: "left processes behind" if part.name in left else part.process.returncode
            for part in self.parts
        }

    def kill(self) -> None:
        """Ends what is left of each process's group at once."""
        for part in self.parts:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(part.process.pid, signal.SIGKILL)
            part.process.wait()


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _environment() -> dict[str, str]:
    """Ours, without what would configure the processes or lead them to another cluster."""
    strange = ("ACCELBIND_", "KUBECONFIG", "KUBERNETES_SERVICE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(strange)}
