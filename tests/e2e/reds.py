"""What `accelbind doctor` finds wrong."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.e2e.api import Json, accelbind
from tests.e2e.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Red:
    """A red line: the check's id, what it found, and what to do."""

    check: str
    what: str
    todo: str

    def __str__(self) -> str:
        return f"{self.check}: {self.what} → {self.todo}"


def run_doctor(cluster: Cluster, *flags: str) -> list[Json]:
    whole = ("--cluster", "--api-server", cluster.settings.api_server)
    printed = accelbind("doctor", *whole, *flags, "--output", "json", codes=(0, 1, 2))
    found: list[Json] = json.loads(printed)["checks"]
    return found


def red_lines(checks: Iterable[Json]) -> Iterator[Red]:
    for check in checks:
        for line in check["lines"]:
            if line["state"] == "failed":
                yield Red(check["id"], line["what"], line["todo"])
