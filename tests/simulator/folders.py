"""Folders for trees of tens of thousands of small files, which some disks take long to make."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH = 512 << 20


@contextlib.contextmanager
def fast_folder() -> Iterator[Path]:
    """A folder in memory if there is room for it, else one on disk; gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="ab-", dir=MEMORY if _has_room(MEMORY) else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _has_room(folder: Path) -> bool:
    if not os.access(folder, os.W_OK):
        return False
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize >= ENOUGH
