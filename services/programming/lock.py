"""One at a time on a card: a lock between processes and between threads.

It is an flock on a file per card, in a folder that all who program on the host share. Who is about
to take a card away announces that in the file, so that nobody is given a part of it.
"""

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from services.process.errors import DeviceBusy, HardwareError

LOCKS: Final = "locks"
"""The folder of locks, below the one that all who program on a host share."""

_SUFFIX: Final = ".lock"

RETRY_SECONDS: Final = 0.05
"""Between two attempts, since flock has no deadline."""

_UNSAFE: Final = re.compile(r"[^0-9A-Za-z.:-]")


@contextmanager
def card_lock(
    folder: Path, card: str, *, seconds: float, takes_away: bool = False
) -> Iterator[None]:
    """Hold the lock with the name of a card (`Card.lock`); wait at most these seconds.

    `takes_away` announces that the card is about to vanish.
    """
    path = folder / f"{_UNSAFE.sub('_', card)}{_SUFFIX}"
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        reason = error.strerror or str(error)
        raise HardwareError(
            f"the lock {path} can't be opened by user {os.geteuid()}: {reason}; without locks two"
            " could program a card at once: let it be written, or name another --state-dir"
        ) from error
    try:
        _acquire(descriptor, card, path, time.monotonic() + seconds)
        os.ftruncate(descriptor, int(takes_away))
        yield
    finally:
        # The file stays: removing it would let two processes lock the card at once.
        os.close(descriptor)


def known_cards(folder: Path) -> list[str]:
    """The cards that have a lock; none if the locks can't be read."""
    with suppress(OSError):
        return sorted(each.stem for each in folder.glob(f"*{_SUFFIX}"))
    return []


def is_locked(folder: Path, card: str) -> bool:
    """Whether somebody works on a card; not so if its lock can't be read."""
    with suppress(OSError):
        return _is_locked(f"{folder / card}{_SUFFIX}")
    return False


def leaving_cards(folder: Path) -> frozenset[str]:
    """The cards that somebody is about to take away; none if the locks can't be read."""
    leaving = set()
    with suppress(OSError), os.scandir(folder) as entries:
        for each in entries:
            with suppress(OSError):
                if each.stat(follow_symlinks=False).st_size and _is_locked(each.path):
                    leaving.add(each.name.removesuffix(_SUFFIX))
    return frozenset(leaving)


def _is_locked(path: str) -> bool:
    # Who announced it may have been killed.
    with open(path, "rb") as file:  # noqa: PTH123 - a path of `scandir`
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _acquire(descriptor: int, card: str, path: Path, deadline: float) -> None:
    while True:
        try:
            # The kernel releases it when this process ends, however that happens.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() < deadline:
                time.sleep(RETRY_SECONDS)
                continue
            text = f"card {card} is busy: another process works on it (lock {path})"
            raise DeviceBusy(text) from error
        except OSError as error:  # a folder on a file system without locks
            raise HardwareError(f"the lock {path} can't be taken: {error.strerror}") from error
        return
