"""Disks that are full: small file systems of a test's own, and what fills them."""

import contextlib
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path


def fill(path: Path, chance: random.Random) -> str:
    """Fills a file system with one file, or takes that away again."""
    if path.exists():
        unfill(path)
        return f"there is room again beside {path.name}"
    if chance.random() < 0.3:
        return ""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 512)
    return f"{path.parent.name} is full"


def fill_inodes(path: Path, chance: random.Random) -> str:
    """Takes all inodes of a file system, or gives them back."""
    if path.exists():
        unfill(path)
        return "there is room for sockets again"
    if chance.random() < 0.3:
        return ""
    with contextlib.suppress(OSError):
        path.mkdir()
        for number in range(100_000):
            (path / str(number)).touch()
    return "there is no room for sockets"


def unfill(path: Path) -> None:
    """Takes what fills a file system away."""
    if path.is_dir():
        for each in path.iterdir():
            each.unlink()
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def mounted(path: Path, options: str) -> Iterator[bool]:
    """A small file system of its own at a path; gives whether there could be one."""
    path.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    done = False
    with contextlib.suppress(OSError):
        done = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", "-l", str(path)], check=True)  # noqa: S607 - as above
