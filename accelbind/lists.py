"""Objects of a cluster as JSON, and lists of them, some of which may not be read."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from services.kube.client import FORBIDDEN, BadStatus, ClusterClient
from services.kube.lists import survey_objects

T = TypeVar("T")

Json: TypeAlias = dict[str, Any]


def part(item: Json, *names: str) -> Json:
    """An object within one, by the names that lead there; empty if there is none."""
    for name in names:
        found = item.get(name)
        item = found if isinstance(found, dict) else {}
    return item


@dataclass(slots=True)
class Reader:
    """Reads lists of a cluster, and remembers which may not be read."""

    client: ClusterClient
    problems: list[str] = field(default_factory=list)

    async def listed(
        self, path: str, read: Callable[[Json], T | None], *, labels: str = "", what: str = ""
    ) -> list[T] | None:
        """The objects of a list; None if they may not be listed, which is a problem of `what`."""
        try:
            return await survey_objects(self.client, path, read, labels=labels)
        except BadStatus as error:
            if error.status != FORBIDDEN:
                raise
            self.problems.append(f"{what}: {error}" if what else str(error))
            return None
