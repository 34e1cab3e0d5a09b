"""Records of what accelbind has programmed into ports, a file each.

    file of a port    what it says
    absent            nothing: accelbind has not programmed the port
    empty             programming has begun, and has not succeeded
    JSON              what was programmed and verified

A record **counts** in the same boot, while the port has the same folder in sysfs and shows the same
id. Who programs empties it before the work and writes it afterwards, under the card's lock.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from services.bitstreams.model import UserClock
from services.process.errors import HardwareError
from services.process.files import open_regular, replace_file
from services.process.json import UNREADABLE

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

FOLDER: Final = "ports"
"""Where records are, below the folder that all who program on a host share. Older versions have
theirs in `records`: those don't count."""

_SUFFIX: Final = ".json"
_MAX_BYTES: Final = 4096
_ABSENT: Final = (FileNotFoundError, NotADirectoryError)


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
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for each in entries:
                with contextlib.suppress(OSError):  # replaced meanwhile
                    if not each.stat(follow_symlinks=False).st_size:
                        empty.add(each.name.removesuffix(_SUFFIX))
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
            with contextlib.suppress(*_ABSENT):
                for path in self._folder.iterdir():
                    with contextlib.suppress(FileNotFoundError):
                        if not keep_empty or path.lstat().st_size:
                            path.unlink()
        except OSError as error:
            raise self._failed(error) from error

    def _path(self, port: str) -> Path:
        return self._folder / f"{port}{_SUFFIX}"

    def _boot(self) -> str:
        return self._boot_id.read_text(encoding="ascii").strip()

    def _failed(self, error: OSError) -> HardwareError:
        reason = error.strerror or str(error)
        where = error.filename or self._folder
        return HardwareError(f"records of what is in ports can't be kept: {where}: {reason}")
