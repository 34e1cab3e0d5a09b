"""What `accelbind doctor` finds wrong."""

import json
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.e2e.api import Json
from tests.e2e.cluster import Cluster
from tests.support import accelbind_command, clean_environment

SECONDS = 300


@dataclass(frozen=True, slots=True)
class Red:
    """A red line: the check's id, what it found, and what to do."""

    check: str
    what: str
    todo: str

    def __str__(self) -> str:
        return f"{self.check}: {self.what} → {self.todo}"


def run_doctor(cluster: Cluster, *flags: str) -> list[Json]:
    """The checks of a run of the doctor."""
    kubeconfig = str(cluster.settings.kubeconfig)
    done = subprocess.run(
        accelbind_command(
            "doctor", "--cluster", "--kubeconfig", kubeconfig, *flags, "--output", "json"
        ),
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode in (0, 1, 2), f"accelbind doctor: {done.stderr}"
    found: list[Json] = json.loads(done.stdout)["checks"]
    return found


def red_lines(checks: Iterable[Json]) -> Iterator[Red]:
    """The lines of what has failed."""
    for check in checks:
        for line in check["lines"]:
            if line["state"] == "failed":
                yield Red(check["id"], line["what"], line["todo"])
