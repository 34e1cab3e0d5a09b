"""What all who program on a host share, below `--state-dir`: a lock per card, a record per port.

A lock is an flock between processes and between threads. Who is about to rebind a card's driver
announces that in the lock's file, so that nobody is given a part of the card.

    record of a port    what it says
    absent              nothing is known: not programmed, or a workload could have since
    empty               programming has begun, and has not succeeded
    JSON                what was programmed and verified

A record **counts** in the same boot, while the port has the same folder in sysfs and shows the same
id. Who programs empties it before the work and writes it afterwards, under the card's lock.
"""

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from services.bitstreams.model import UserClock
from services.process.errors import DeviceBusy, HardwareError
from services.process.files import open_regular, replace_file
from services.process.json import UNREADABLE

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

RETRY_SECONDS: Final = 0.05
"""Between two attempts to lock, since flock has no deadline."""

_LOCK: Final = ".lock"
_UNSAFE: Final = re.compile(r"[^0-9A-Za-z.:-]")
_RECORD: Final = ".json"
_MAX_BYTES: Final = 4096
_ABSENT: Final = (FileNotFoundError, NotADirectoryError)


class HostState:
    """The locks and records of a host, in a folder that need not be there yet."""

    def __init__(self, folder: Path, boot_id: Path = BOOT_ID) -> None:
        self._locks = folder / "locks"
        # Older versions have theirs in `records`: those don't count.
        self.records = PortRecords(folder / "ports", boot_id)

    @contextmanager
    def lock_card(self, card: str, *, seconds: float, rebinding: bool = False) -> Iterator[None]:
        """Hold the lock with the name of a card (`Card.lock`); wait at most these seconds.

        `rebinding` announces that the card is about to vanish for a moment.
        """
        path = self._locks / f"{_UNSAFE.sub('_', card)}{_LOCK}"
        try:
            self._locks.mkdir(mode=0o755, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            reason = error.strerror or str(error)
            raise HardwareError(
                f"the lock {path} can't be opened by user {os.geteuid()}: {reason}; without locks"
                " two could program a card at once: let it be written, or name another --state-dir"
            ) from error
        try:
            _acquire(descriptor, card, path, time.monotonic() + seconds)
            os.ftruncate(descriptor, int(rebinding))
            yield
        finally:
            # The file stays: removing it would let two processes lock the card at once.
            os.close(descriptor)

    def known_cards(self) -> list[str]:
        """The cards that have a lock; none if the locks can't be read."""
        with suppress(OSError):
            return sorted(each.stem for each in self._locks.glob(f"*{_LOCK}"))
        return []

    def is_locked(self, card: str) -> bool:
        """Whether somebody works on a card; not so if its lock can't be read."""
        with suppress(OSError):
            return _is_locked(f"{self._locks / card}{_LOCK}")
        return False

    def rebinding_cards(self) -> frozenset[str]:
        """The cards whose driver somebody is rebinding; none if the locks can't be read."""
        found = set()
        with suppress(OSError), os.scandir(self._locks) as entries:
            for each in entries:
                with suppress(OSError):
                    if each.stat(follow_symlinks=False).st_size and _is_locked(each.path):
                        found.add(each.name.removesuffix(_LOCK))
        return frozenset(found)


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


class PortRecord(msgspec.Struct, frozen=True):
    """The content of a port, and the conditions under which it is still there."""

    boot: str
    """The boot's id."""
    inode: int
    """Of the port's folder in sysfs."""
    shown: str
    """The AFU id that the port showed afterwards."""
    function: str
    """The AFU id or the id of the OpenCL program; empty if neither identifies what was
    programmed."""
    clock: UserClock | None = None
    """The user clock that it asks for."""


class PortRecords:
    """The records of a host's ports, by `record_key`, in a folder that need not be there yet."""

    def __init__(self, folder: Path, boot_id: Path = BOOT_ID) -> None:
        self._folder = folder
        self._boot_id = boot_id

    def read(self, port: str, inode: int, shown: str) -> PortRecord | None:
        """The record of a port that has a folder and shows an id; None if none counts."""
        try:
            with open_regular(self._path(port)) as file:
                record = msgspec.json.decode(file.read(_MAX_BYTES), type=PortRecord)
            boot = self._boot()
        except (OSError, *UNREADABLE):
            return None
        # Reloading the driver makes another folder, and so another inode.
        is_current = (record.boot, record.inode, record.shown) == (boot, inode, shown)
        return record if is_current else None

    def unfinished(self) -> frozenset[str]:
        """The ports whose records are empty; none if the records can't be listed."""
        empty = set()
        with suppress(OSError), os.scandir(self._folder) as entries:
            for each in entries:
                with suppress(OSError):  # replaced meanwhile
                    if not each.stat(follow_symlinks=False).st_size:
                        empty.add(each.name.removesuffix(_RECORD))
        return frozenset(empty)

    def empty(self, port: str) -> None:
        """Empty the record of a port; if that fails, the port must not be programmed."""
        # Truncating needs no space on a full disk, and whatever happens next leaves it empty.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            os.close(os.open(self._path(port), flags, 0o600))
        except OSError as error:
            raise self._failed(error) from error

    def write(
        self, port: str, inode: int, shown: str, function: str, clock: UserClock | None = None
    ) -> None:
        """Record what was programmed into a port and verified; if that fails, it stays empty."""
        try:
            record = PortRecord(self._boot(), inode, shown, function, clock)
            replace_file(self._path(port), msgspec.json.encode(record), mode=0o600)
        except OSError as error:
            raise self._failed(error) from error

    def delete_all(self, *, keep_empty: bool = False) -> None:
        """Delete every record, also the empty ones unless they are to be kept."""
        try:
            with suppress(*_ABSENT):
                for path in self._folder.iterdir():
                    with suppress(FileNotFoundError):
                        if not keep_empty or path.lstat().st_size:
                            path.unlink()
        except OSError as error:
            raise self._failed(error) from error

    def _path(self, port: str) -> Path:
        return self._folder / f"{port}{_RECORD}"

    def _boot(self) -> str:
        return self._boot_id.read_text(encoding="ascii").strip()

    def _failed(self, error: OSError) -> HardwareError:
        reason = error.strerror or str(error)
        where = error.filename or self._folder
        return HardwareError(f"records of what is in ports can't be kept: {where}: {reason}")
