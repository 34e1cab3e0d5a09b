"""Puts the OCI hook where the host's runtime finds it: the work of the image hook-installer.

    python3 -I install_hook.py SOURCE TARGET

The target is a link to a folder beside it.
"""

import shutil
import sys
from pathlib import Path

VERSIONS = ("a", "b")
"""Endings of the two folders that the target is a link to in turn: `.hook.a`, `.hook.b`."""


def install(source: Path, target: Path) -> None:
    """Make the target the same as the source folder (OSError if the host's can't be written)."""
    target.parent.mkdir(parents=True, exist_ok=True)
    current = target.readlink().name if target.is_symlink() else ""
    folders = [target.with_name(f".{target.name}.{each}") for each in VERSIONS]
    # The other one stays until the next installation, for hooks that are running.
    folder = next(each for each in folders if each.name != current)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder, symlinks=True)
    link = target.with_name(f".{target.name}.link")
    link.unlink(missing_ok=True)
    link.symlink_to(folder.name)
    link.replace(target)  # in one step: the host may start the hook at any moment


def main() -> int:
    if len(sys.argv) != 3:
        sys.stderr.write("usage: install_hook.py SOURCE TARGET\n")
        return 2
    source, target = map(Path, sys.argv[1:])
    try:
        install(source, target)
    except OSError as problem:
        sys.stderr.write(
            f"error: the hook can't be put into {target}: {problem}; the container must run as root"
            " and mount the host's folder there for writing\n"
        )
        return 1
    sys.stdout.write(f"{target}: installed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
