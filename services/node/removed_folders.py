"""Ends a process whose mounted folders were removed on the host.

A mounted folder that is deleted on the host stays the deleted one until the container ends. Nothing
can be written there, and only another container gets the new folder.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

from services.process.errors import HardwareError

CHECK_SECONDS: Final = 1.0


class RemovedFolder:
    """A folder that is mounted, or not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._had_links = False

    def check(self) -> bool:
        """Whether the folder is mounted here and was deleted on the host."""
        # It has no links then. One that is just being deleted here is gone at the second look.
        # Some file systems never count any.
        with contextlib.suppress(OSError):
            links = [self.path.stat().st_nlink for _ in range(2)]
            self._had_links |= links[0] > 0
            return self._had_links and not any(links)
        return False


async def end_if_removed(paths: Iterable[Path]) -> NoReturn:
    """Check folders until cancelled.

    Raises:
        HardwareError: One was removed.
    """
    folders = [RemovedFolder(path) for path in paths]
    while True:
        for folder in folders:
            if folder.check():
                raise HardwareError(
                    f"{folder.path} was removed on the host, and this container still has the"
                    " removed folder mounted: only a restarted container gets the new one"
                )
        await asyncio.sleep(CHECK_SECONDS)
