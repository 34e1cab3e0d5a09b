"""The plugin as a process, and what it holds: descriptors, threads, tasks, memory, files."""

import contextlib
import json
import os
import re
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.kubelet.sockets import plugins_folder
from tests.support import Process, Processes, eventually

PROBE: Final = Path(__file__).parent / "probe"
SCAN_INTERVAL: Final = 0.1


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds at one moment."""

    descriptors: Mapping[str, int]
    listening: tuple[str, ...]
    """Paths of the sockets on which it listens, in the kubelet's folder."""
    threads: int
    anonymous: int
    """Resident memory that is no file's, in KiB."""
    tasks: Mapping[str, int]
    """Of its event loop, by what they run."""


class Plugin:
    """`accelbind plugin` with a probe in it."""

    def __init__(self, processes: Processes, folder: Path, *flags: str | Path) -> None:
        self.folder = folder
        self._processes = processes
        self._flags = flags
        self._told = folder / "told"
        self._ports = folder / "ports"
        self._ports.unlink(missing_ok=True)
        self.process: Process = processes.simulated_plugin(
            *("--root", folder / "root", "--kubelet-dir", folder / "k"),
            *("--node-name", "n1", "--metrics-host", "127.0.0.1", "--metrics-port", "0"),
            *("--ports-file", self._ports, "--scan-interval", str(SCAN_INTERVAL)),
            *("--cdi-dir", folder / "cdi", "--cdi", "--log-format", "json"),
            *("--state-dir", folder / "state"),
            *flags,
            env={"PYTHONPATH": str(PROBE), "PLUGIN_PROBE": str(self._told)},
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def killed(self) -> "Plugin":
        """Another one, after this one was killed whatever it did."""
        self.process.kill()
        return Plugin(self._processes, self.folder, *self._flags)

    def ready_for_signals(self) -> None:
        """Wait until it serves: before that, a signal may end it."""
        self.process.ports(self._ports)

    def held(self) -> Held:
        """What it holds now."""
        self._told.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        told = eventually(self._read_told, what="what the probe tells")
        status = Path(f"/proc/{self.pid}/status").read_text()
        return Held(
            descriptors=self._descriptors(),
            listening=self._listening(),
            threads=_number(status, "Threads"),
            anonymous=_number(status, "RssAnon"),
            tasks=told["tasks"],
        )

    def _read_told(self) -> dict[str, dict[str, int]] | None:
        self.process.assert_running()
        if not self._told.exists():
            return None
        told: dict[str, dict[str, int]] = json.loads(self._told.read_text())
        return told

    def _descriptors(self) -> Counter[str]:
        kinds: Counter[str] = Counter()
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(entry.readlink())
                kinds[re.sub(r":?\[?\d+\]?$", "", target) or target] += 1
        return kinds

    def _listening(self) -> tuple[str, ...]:
        mine = set()
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found = re.fullmatch(r"socket:\[(\d+)\]", str(entry.readlink()))
                mine |= {found[1]} if found else set()
        paths = []
        for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
            fields = line.split()
            accepting = int(fields[3], 16) & 0x10000  # __SO_ACCEPTCON of linux/net.h
            if len(fields) > 7 and fields[6] in mine and accepting:
                paths.append(fields[7])
        return tuple(sorted(paths))

    def sockets(self) -> tuple[str, ...]:
        """Paths of the sockets of its naming in the kubelet's folder."""
        folder = plugins_folder(self.folder / "k")
        return tuple(sorted(str(path) for path in folder.glob("accelbind-*")))

    def cdi_files(self) -> list[str]:
        """Names of all files in the CDI folder."""
        return sorted(path.name for path in (self.folder / "cdi").iterdir())

    def cdi_devices(self) -> set[str]:
        """Ids of the devices that the CDI files describe."""
        found: set[str] = set()
        for path in (self.folder / "cdi").glob("*.json"):
            found |= {device["name"] for device in json.loads(path.read_bytes())["devices"]}
        return found

    def errors(self) -> list[str]:
        """Its log's lines about mistakes, and whatever it wrote that is no line of a log."""
        return [
            line
            for line in self.process.stderr.splitlines()
            if not line.startswith("{")
            or '"internal error"' in line
            or '"level": "critical"' in line
        ]


def _number(status: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    assert found, f"no {name} in the process's status"
    return int(found[1])
