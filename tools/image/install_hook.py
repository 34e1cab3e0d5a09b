"""Puts the OCI hook where the host's runtime finds it: the work of the image hook-installer.

    python3 -I install_hook.py SOURCE TARGET

The host may start the hook at any moment, also while this runs. So the folder is made whole beside
the old one, synced, and takes its place in one step (renameat2, RENAME_EXCHANGE). Where the file
system can't exchange, the old folder makes room first, and a hook that starts in between fails; the
kubelet tries that container again. A folder that is the same already stays.
"""

import contextlib
import ctypes
import errno
import filecmp
import os
import shutil
import sys
from pathlib import Path

AT_FDCWD = -100
RENAME_EXCHANGE = 2
STAGED = ".new"
"""Ending of a folder beside the target that isn't ready yet, or is left from a run that broke."""


def install(source: Path, target: Path) -> bool:
    """Makes the target the same as the source.

    Args:
        source: the folder of the hook.
        target: where it goes; its parent is made if it isn't there.

    Returns:
        Whether there was anything to do.

    Raises:
        OSError: the host's folder can't be written.
    """
    if _same(source, target):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_name(f".{target.name}{STAGED}")
    shutil.rmtree(staged, ignore_errors=True)
    shutil.copytree(source, staged, symlinks=True)
    _sync(staged)
    _swap(staged, target)
    shutil.rmtree(staged, ignore_errors=True)
    return True


def _same(one: Path, other: Path) -> bool:
    """Whether two folders have the same files, contents and modes."""
    files = [_files(one), _files(other)]
    return files[0] == files[1] and all(
        filecmp.cmp(one / name, other / name, shallow=False) for name in files[0]
    )


def _files(folder: Path) -> dict[str, int]:
    return {
        path.relative_to(folder).as_posix(): path.stat().st_mode
        for path in folder.rglob("*")
        if path.is_file()
    }


def _sync(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        if path.is_file() or path.is_dir():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _swap(staged: Path, target: Path) -> None:
    if not target.exists():
        staged.rename(target)
        return
    library = ctypes.CDLL(None, use_errno=True)
    paths = (os.fsencode(staged), os.fsencode(target))
    exchange = getattr(library, "renameat2", None)
    if exchange and not exchange(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE):
        return
    code = ctypes.get_errno() if exchange else errno.ENOSYS
    if code not in {errno.ENOSYS, errno.EINVAL}:
        raise OSError(code, os.strerror(code), str(target))
    aside = target.with_name(f".{target.name}.old")
    shutil.rmtree(aside, ignore_errors=True)
    target.rename(aside)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, aside, ignore_errors=True)
        staged.rename(target)


def main() -> int:
    """Installs, and says what was done."""
    if len(sys.argv) != 3:
        sys.stderr.write("usage: install_hook.py SOURCE TARGET\n")
        return 2
    source, target = map(Path, sys.argv[1:])
    try:
        done = install(source, target)
    except OSError as problem:
        sys.stderr.write(
            f"error: the hook can't be put into {target}: {problem}; the container must run as root"
            " and mount the host's folder there for writing\n"
        )
        return 1
    sys.stdout.write(f"{target}: {'installed' if done else 'already there'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
