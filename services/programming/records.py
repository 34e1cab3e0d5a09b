"""What is in a port beyond what it shows: an OpenCL program, or that its content is unknown.

`Records.read` answers for one port, in this order:

1. The last programming failed or was interrupted: unknown. This holds whatever the port shows now,
   also after its driver was reloaded, its card was away or the host was rebooted, until a function
   has been programmed and verified.
2. The node has a mark of mode regiondevel (`distrust`): unknown, unless a function was programmed
   and verified under the mark's token.
3. An OpenCL program was recorded. All OpenCL programs show the same AFU ID.
4. Otherwise nothing is recorded, and what the port shows is in it.

What was programmed (2 and 3) counts only while it cannot have changed: in the same boot, with the
same folder in sysfs (reloading the driver makes another one), and while the port shows the same ID.
A record that cannot be read says that the content is unknown.

Two folders hold this. The first one holds a record per port, for the current boot. The second one
should survive reboots: it holds an empty file per port whose content is unknown. The mark is in the
second one and in the folder above the records.
"""

import contextlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from services.process.errors import HardwareError
from services.process.files import replace_file
from services.programming.distrust import Mark, read_marks

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

UNKNOWN: Final = ""
"""Recorded instead of a program: whatever the port shows, it must be reprogrammed."""

FOLDER: Final = "records"
"""Where records are, below the folder that all who program on a host share."""

UNKNOWN_FOLDER: Final = "unknown"
"""Below the durable folder: a file for each port whose content is unknown."""

_UNSAFE: Final = re.compile(r"[^0-9A-Za-z.:-]")
_MOST: Final = 4096


@dataclass(frozen=True, slots=True)
class Saved:
    """What was recorded of a port at one moment, to be restored later."""

    content: bytes | None
    """The bytes of its record; None if there was none, or none that could be read."""
    unknown: bool
    """Whether its content was unknown."""


class Records:
    """The records of a host's ports.

    Args:
        folder: Where they are; made when the first is written.
        boot_id: The kernel's file about the boot.
        durable_dir: What should survive reboots; by default the folder above.
    """

    def __init__(
        self, folder: Path, boot_id: Path = BOOT_ID, *, durable_dir: Path | None = None
    ) -> None:
        self._folder = folder
        self._boot_id = boot_id
        self._durable_dir = folder.parent if durable_dir is None else durable_dir

    def has_any(self) -> bool:
        """Whether anything is recorded, true or not."""
        return (
            self._mark() is not None
            or _has_files(self._folder)
            or _has_files(self._durable_dir / UNKNOWN_FOLDER)
        )

    def read(self, port: str, inode: int, shown: str) -> str | None:
        """What is recorded to be in a port.

        Args:
            port: Identifies the port on the host.
            inode: The number of its folder in sysfs.
            shown: The AFU id that it shows, canonical.

        Returns:
            The id of an OpenCL program, or `UNKNOWN`; None if what it shows is in it.
        """
        mark, record = self._mark(), self._load(port)
        if _exists(self._unknown(port)) or (record and record.get("program") == UNKNOWN):
            return UNKNOWN
        otherwise = None if mark is None else UNKNOWN
        if not record:
            return otherwise
        program, since = record.pop("program", None), record.pop("since", None)
        is_current = record == {"boot": self._boot(), "inode": inode, "shown": shown}
        if not is_current or (mark is not None and (not since or since != mark.since)):
            return otherwise
        return program if isinstance(program, str) else None

    def save(self, port: str) -> Saved:
        """What is recorded of a port now, to be restored by `restore`."""
        record = self._load(port)
        try:
            content = self._path(port).read_bytes()
        except OSError:
            content = None
        is_unknown = _exists(self._unknown(port)) or bool(
            record and record.get("program") == UNKNOWN
        )
        return Saved(content, is_unknown)

    def restore(self, port: str, saved: Saved) -> None:
        """Restore what was recorded, after a programming that never reached the hardware.

        If it can't be restored, the content of the port stays unknown.
        """
        if saved.unknown:
            return
        with contextlib.suppress(OSError):
            if saved.content is None:
                _remove(self._path(port))
            else:
                replace_file(self._path(port), saved.content, mode=0o600)
            _remove(self._unknown(port))

    def distrust(self, port: str, inode: int, shown: str) -> None:
        """Record that the content of a port is unknown.

        Raises:
            HardwareError: Neither folder takes it, so the port must not be programmed.
        """
        failure = _try(lambda: self._write(port, self._record(inode, shown, UNKNOWN)))
        if failure is not None:  # a full disk may still let a file be emptied
            failure = _try(lambda: _make_empty(self._path(port)))
        durable_failure = _try(lambda: _make_empty(self._unknown(port)))
        if failure is not None and durable_failure is not None:
            raise HardwareError(self._failed(failure)) from failure

    def write(self, port: str, inode: int, shown: str, program: str | None) -> None:
        """Record what has just been programmed into a port and verified.

        Args:
            port: Identifies the port on the host.
            inode: The number of its folder in sysfs.
            shown: The AFU id that it shows, canonical.
            program: The id of an OpenCL program; None for another function.

        Raises:
            HardwareError: It can't be written; the content of the port stays unknown.
        """
        mark = self._mark()
        try:
            if program is None and mark is None:
                _remove(self._path(port))
            else:
                self._write(port, self._record(inode, shown, program, mark))
            _remove(self._unknown(port))
        except OSError as error:
            raise HardwareError(self._failed(error)) from error

    def _mark(self) -> Mark | None:
        return read_marks(self._durable_dir, self._folder.parent)

    def _record(
        self, inode: int, shown: str, program: str | None, mark: Mark | None = None
    ) -> bytes:
        boot = self._boot()
        if boot is None:
            raise HardwareError(f"{self._boot_id} can't be read")
        record = {"boot": boot, "inode": inode, "shown": shown, "program": program}
        if mark is not None:
            record["since"] = mark.since
        return json.dumps(record).encode()

    def _write(self, port: str, content: bytes) -> None:
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace_file(self._path(port), content, mode=0o600)

    def _load(self, port: str) -> dict[str, Any] | None:
        """The record of a port; one of unknown content if it cannot be read, None if none."""
        try:
            with self._path(port).open("rb") as file:
                found = json.loads(file.read(_MOST))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, RecursionError):
            return {"program": UNKNOWN}
        is_record = isinstance(found, dict) and isinstance(found.get("program"), str | None)
        return found if is_record else {"program": UNKNOWN}

    def _path(self, port: str) -> Path:
        return self._folder / f"{_UNSAFE.sub('_', port)}.json"

    def _unknown(self, port: str) -> Path:
        return self._durable_dir / UNKNOWN_FOLDER / _UNSAFE.sub("_", port)

    def _boot(self) -> str | None:
        try:
            return self._boot_id.read_text(encoding="ascii").strip()
        except OSError:
            return None

    def _failed(self, error: Exception) -> str:
        reason = getattr(error, "strerror", None) or str(error)
        return f"records of what is in ports can't be kept in {self._folder}: {reason}"


def _try(call: Callable[[], None]) -> Exception | None:
    try:
        call()
    except (OSError, HardwareError) as error:
        return error
    return None


def _make_empty(path: Path) -> None:
    """Make a file empty, which takes no space on a full disk.

    An empty record is unreadable, which means that the content is unknown.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(path, flags, 0o600))


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()


def _exists(path: Path) -> bool:
    """Whether a file is there, or may be: it cannot be read."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _has_files(folder: Path) -> bool:
    try:
        return next(folder.iterdir(), None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
