"""Mappings from an API server: how long until they serve, what they weigh, what changes cost.

`late ms` is how long the second of two changes takes that come after some quiet.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.sync_client import Measured

Row = tuple[str, ...]
HEADINGS = (
    "mappings",
    "namespaces",
    "sync s",
    "CPU s",
    "MiB over empty",
    "loop held ms",
    "core at 1 000/s",
    "indexes/s",
    "changes/s",
    "late ms",
)
NUMBER = 100_000
CHANGES = 5_000
"""At 1 000 a second; ten times as many at full speed."""


def rows() -> Iterator[Row]:
    """A row a way to spread them: all in one namespace, or over a thousand."""
    empty = _measure(0, 1, 0)
    for namespaces in (1, 1000):
        found = _measure(NUMBER, namespaces, CHANGES)
        yield (
            f"{NUMBER}",
            f"{namespaces}",
            f"{found.sync:.2f}",
            f"{found.sync_cpu:.2f}",
            f"{found.resident - empty.resident:.1f}",
            f"{found.held * 1e3:.0f}",
            f"{found.load:.0%}",
            f"{found.indexes:.0f}",
            f"{found.changes:.0f}",
            f"{found.late * 1e3:.1f}",
        )


def _measure(number: int, namespaces: int, changes: int) -> Measured:
    with (
        tempfile.TemporaryDirectory(prefix="accelbind-bench-") as folder,
        serving(number, namespaces) as port,
    ):
        file = Path(folder, "kubeconfig")
        file.write_text(kubeconfig(f"http://127.0.0.1:{port}"))
        told = subprocess.run(
            [sys.executable, "-m", "benchmarks.sync_client", file, str(changes)],
            check=True,
            capture_output=True,
            text=True,
        )
    return Measured(**json.loads(told.stdout))


@contextmanager
def serving(number: int, namespaces: int) -> Iterator[int]:
    """Runs an API server of so many mappings; its port."""
    arguments = [sys.executable, "-m", "benchmarks.sync_server", str(number), str(namespaces)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline()) if process.stdout else 0
        finally:
            process.kill()


def kubeconfig(server: str) -> str:
    """A kubeconfig that leads to a server."""
    return json.dumps(
        {
            "current-context": "bench",
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "clusters": [{"name": "bench", "cluster": {"server": server}}],
            "users": [{"name": "bench", "user": {"token": "bench"}}],
        }
    )
