"""One at a time on a card: a lock between processes and between threads.

It is an flock on a file per card, in a folder that all who program on the host share.
"""

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from services.process.errors import DeviceBusy, HardwareError

LOCKS: Final = "locks"
"""The folder of locks, below the one that all who program on a host share."""

RETRY_SECONDS: Final = 0.05
"""Between two attempts, since flock has no deadline."""

_UNSAFE: Final = re.compile(r"[^0-9A-Za-z.:-]")


@contextmanager
def card_lock(folder: Path, card: str, *, seconds: float) -> Iterator[None]:
    """Hold the lock of a card, identified as by `lock_of`; wait for it at most these seconds."""
    path = folder / f"{_UNSAFE.sub('_', card)}.lock"
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
        yield
    finally:
        # The file stays: removing it would let two processes lock the card at once.
        os.close(descriptor)


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
