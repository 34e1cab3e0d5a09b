"""Processes that have neither root's powers nor more of the file system than they are given."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import require

_SCRIPT = """
set -e
# The interpreter may be where only root may go.
for keep in $KEEP; do
    mkdir -p "$SCRATCH/keep"
    mount --bind "$keep" "$SCRATCH/keep"
    top=/$(echo "$keep" | cut -d/ -f2)
    mount -t tmpfs -o mode=755 none "$top"
    mkdir -p "$keep"
    mount --bind "$SCRATCH/keep" "$keep"
done
if [ -n "$WRITABLE" ]; then
    for folder in $WRITABLE; do mount --bind "$folder" "$folder"; done
    mount -o remount,bind,ro /
fi
exec setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all --no-new-privs "$@"
"""


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
            pytest.skip("a root file system can be made read-only by root alone")
        return [str(each) for each in command]
    require("setpriv")
    unshare = require("unshare")
    if subprocess.run([unshare, "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("there are no mount namespaces here")
    scratch.mkdir(exist_ok=True)
    environment = [
        f"KEEP={_hidden_interpreter()}",
        f"SCRATCH={scratch}",
        f"WRITABLE={' '.join(map(str, writable))}",
    ]
    return [
        *(unshare, "-m", "--propagation", "private", "env", *environment),
        *("sh", "-c", _SCRIPT, "sh", *(str(each) for each in command)),
    ]


def _hidden_interpreter() -> str:
    """The folder of the interpreter, if there is one on the way there that is root's alone."""
    prefix = Path(sys.base_prefix).resolve()
    hidden = any(not each.stat().st_mode & 0o001 for each in prefix.parents)
    return str(prefix) if hidden else ""


def open_to_all(folder: Path) -> None:
    """Let everybody read a folder and what is in it."""
    for each in (folder, *folder.rglob("*")):
        if not each.is_symlink():
            each.chmod(each.stat().st_mode | (0o555 if each.is_dir() else 0o444))
