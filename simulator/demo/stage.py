"""Starts the demo's processes and stops them, whatever happens."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from services.process.errors import ExternalFailure
from simulator.polling import poll_until

T = TypeVar("T")

STOP_SECONDS = 30.0

LONGEST = 40
"""Characters for the folder; a node's sockets add up to 60, and 107 is the kernel's limit."""


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is removed at the end; its path leaves room for the names of unix sockets."""
    usual = tempfile.gettempdir()
    parent = usual if len(os.fsencode(usual)) + len("/accelbind-12345678") <= LONGEST else "/tmp"  # noqa: S108 - mkdtemp makes it ours
    folder = Path(tempfile.mkdtemp(prefix="accelbind-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class Part:
    name: str
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])


@dataclass(slots=True)
class Stage:
    """The processes, in the order of their start."""

    folder: Path
    parts: list[Part] = field(default_factory=list)
    interrupted: threading.Event = field(default_factory=threading.Event)
    """Set by a signal that asks for the end; noticed between starts and polls."""

    def start(self, name: str, module: str, *arguments: str | Path) -> Part:
        """Start `python -m module arguments`; the name is unique and names its log."""
        self._check()
        log = self.folder / "logs" / f"{name}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(self.folder),
                start_new_session=True,  # Ctrl-C reaches only the demo, which stops all in order
            )
        part = Part(name, log, process)
        self.parts.append(part)
        return part

    def _check(self) -> None:
        if self.interrupted.is_set():
            raise KeyboardInterrupt

    def announced(self, file: Path, what: str) -> dict[str, Any]:
        """The JSON, such as ports, that a process writes to a file once it serves."""

        def read() -> dict[str, Any] | None:
            return json.loads(file.read_text()) if file.exists() else None

        return self.until(read, f"{what} to serve")

    def keep(self) -> None:
        """Wait for a signal that asks for the end; ExternalFailure if a process ends before."""
        while not self.interrupted.wait(1):
            if ended := next((part for part in self.parts if part.ended), None):
                raise ExternalFailure(f"{ended.name} ended with {ended.process.returncode}")
        self.interrupted.clear()

    def until(self, poll: Callable[[], T | None], what: str) -> T:
        """Poll until something true is returned; ExternalFailure if that takes too long."""

        def checked() -> T | None:
            self._check()
            if value := poll():
                return value
            if ended := next((part for part in self.parts if part.ended), None):
                code = ended.process.returncode
                raise ExternalFailure(f"{ended.name} ended with {code} before {what}")
            return None

        return poll_until(checked, what)

    def stop(self) -> dict[str, int]:
        """Stop all, last started first; exit codes by name."""
        for part in reversed(self.parts):
            if not part.ended:
                part.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                part.process.wait(STOP_SECONDS)
        self.kill()
        return {part.name: part.process.returncode for part in self.parts}

    def kill(self) -> None:
        """Kill what is left of each process's group."""
        for part in self.parts:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(part.process.pid, signal.SIGKILL)
            part.process.wait()


def _environment(folder: Path) -> dict[str, str]:
    """Ours, without what would configure the processes or name another cluster."""
    excluded = ("ACCELBIND_", "KUBECONFIG", "KUBERNETES_SERVICE_")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(excluded)}
    temporary = folder / "tmp"  # of processes that are killed, nothing must stay
    temporary.mkdir(exist_ok=True)
    return ours | {"TMPDIR": str(temporary)}
