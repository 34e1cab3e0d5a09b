"""Names that a driver gives out by number: `dfl-port.3`, `region12`."""

import re
from collections.abc import Iterable


class Numbered:
    """The names of one kind.

    Args:
        before: What they have before the number.
    """

    def __init__(self, before: str) -> None:
        self._folders = re.compile(rf"/({re.escape(before)}[0-9]{{1,9}})(?=/)")

    def is_one(self, name: str) -> bool:
        """Whether a name is of this kind."""
        return self.among([name]) == [name]

    def among(self, names: Iterable[str]) -> list[str]:
        """Those of this kind among the names in a folder, by number.

        All are looked at in one go: one by one they would take ten times as long.
        """
        found: list[str] = self._folders.findall(f"/{'/'.join(names)}/")
        if len(found) > 1:
            found.sort()
            found.sort(key=len)
        return found

    def is_on(self, path: str) -> bool:
        """Whether a part of a path is of this kind."""
        return self._folders.search(f"/{path}/") is not None
