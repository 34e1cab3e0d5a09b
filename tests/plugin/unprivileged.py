"""Processes that have neither root's powers nor more of the file system than they are given."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support import REPOSITORY, ROOT_IS_NEEDED, require

BECOME_NOBODY = (
    *("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"),
    *("--bounding-set=-all", "--no-new-privs"),
)


NEEDED = [Path(each).resolve() for each in (sys.base_prefix, sys.prefix, REPOSITORY)]
"""What the product's processes read: the interpreter, the environment and the clone."""


def as_nobody(
    command: Sequence[str | Path], *, scratch: Path, writable: Sequence[Path] = ()
) -> list[str]:
    """A command line that runs another one as a user without any rights.

    Who isn't root already has no rights; then the command is left as it is.

    Args:
        command: What to run.
        scratch: An empty folder.
        writable: If there are any, all other file systems' roots are read-only for it.
    """
    if os.geteuid() != 0:
        if writable:
            pytest.skip(f"{ROOT_IS_NEEDED}: make a root file system read-only")
        return [str(each) for each in command]
    require("setpriv")
    unshare = require("unshare")
    if subprocess.run([unshare, "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("there are no mount namespaces here")
    closed = [path for path in NEEDED if not _is_open(path)]
    if closed:
        pytest.skip(f"{closed[0]} itself is closed to other users")
    steps = [*_opening(scratch), *_read_only_except(writable)]
    script = "\n".join(("set -e", "umask 022", *map(shlex.join, steps), 'exec "$@"'))
    in_script = [*BECOME_NOBODY, *(str(each) for each in command)]
    return [unshare, "-m", "--propagation", "private", "sh", "-c", script, "sh", *in_script]


def _is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & 0o001)


def _opening(scratch: Path) -> Iterator[tuple[str, ...]]:
    """Let others enter the clone, its environment and the interpreter, and nothing beside them.

    Folders on the way there may be root's alone, as /root is.
    """
    closed_by_path = {}
    for path in NEEDED:
        way = [each for each in path.parents if not _is_open(each)]
        if way:
            closed_by_path[path] = way[-1]
    kept = {path: scratch / str(number) for number, path in enumerate(closed_by_path)}
    for path, place in kept.items():
        yield "mkdir", "-p", str(place)
        yield "mount", "--bind", str(path), str(place)
    for closed in set(closed_by_path.values()):
        yield "mount", "-t", "tmpfs", "-o", "mode=755", "none", str(closed)
    for path, place in kept.items():
        yield "mkdir", "-p", str(path)
        yield "mount", "--bind", str(place), str(path)


def _read_only_except(writable: Sequence[Path]) -> Iterator[tuple[str, ...]]:
    for folder in map(str, writable):
        yield "mount", "--bind", folder, folder
    if writable:
        yield "mount", "-o", "remount,bind,ro", "/"


def open_to_all(folder: Path) -> None:
    """Let everybody read a folder and what is in it."""
    for each in (folder, *folder.rglob("*")):
        if not each.is_symlink():
            each.chmod(each.stat().st_mode | (0o555 if each.is_dir() else 0o444))
