"""What is in a port beyond what it shows: an OpenCL program, or that its content is unknown.

`Records.read` answers for one port, in this order:

1. The last programming failed or was interrupted: unknown. This holds whatever the port shows now,
   also after its driver was reloaded, its card was away or the host was rebooted, until a function
   has been programmed and verified.
2. The node has a mark of mode regiondevel: unknown, unless a function was programmed and verified
   under the mark's token.
3. An OpenCL program was recorded. All OpenCL programs show the same AFU ID.
4. Otherwise nothing is recorded, and what the port shows is in it.

What was programmed (2 and 3) counts only while it cannot have changed: in the same boot, with the
same folder in sysfs (reloading the driver makes another one), and while the port shows the same ID.
A record that cannot be read, such as an empty one, says that the content is unknown.

Two folders hold this. The first one holds a record per port, for the current boot. The second one
should survive reboots: it holds an empty file per port whose content is unknown. The **mark** is in
the second one and in the folder above the records.

A container of mode regiondevel can load an image that shows any AFU ID. The mark covers every port
of the node, also one whose card is away or that a virtual function has at that moment:

    {"since": null}      mode regiondevel is served: the content of no port is known
    {"since": "5f0c…"}   the mode is over: only what was recorded under this token is known

Without the file the node has never served that mode. A file that cannot be read counts as the first
content. The mark is never removed: FPGAs can keep their content through a warm reboot.
"""

import contextlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from services.process.errors import HardwareError
from services.process.files import replace_file

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

UNKNOWN: Final = ""
"""Recorded instead of a program: whatever the port shows, it must be reprogrammed."""

FOLDER: Final = "records"
"""Where records are, below the folder that all who program on a host share."""

UNKNOWN_FOLDER: Final = "unknown"
"""Below the durable folder: a file for each port whose content is unknown."""

MARK_FILE: Final = "untrusted.json"

_UNSAFE: Final = re.compile(r"[^0-9A-Za-z.:-]")
_MOST: Final = 4096
_ABSENT: Final = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True, slots=True)
class Mark:
    """The node's mark of mode regiondevel."""

    since: str | None = None
    """The token under which programming counts; None while the mode is served."""


def read_marks(*folders: Path) -> Mark | None:
    """The mark of a node that has it in several folders; None if none of them has one.

    Where they differ, writing one of them has failed: then the content of no port is known.
    """
    marks = {mark for mark in map(_read_mark, folders) if mark is not None}
    if not marks:
        return None
    return marks.pop() if len(marks) == 1 else Mark()


def _read_mark(folder: Path) -> Mark | None:
    content = _read_object(folder / MARK_FILE)
    if content is None:
        return None
    since = content.get("since")
    return Mark(since if isinstance(since, str) and since else None)


def write_mark(folder: Path, mark: Mark, *, parents: bool = False) -> None:
    """Write a mark, unless it is there already; the old one stays if that fails (`OSError`).

    With `parents`, missing folders above its folder are made too.
    """
    if _read_mark(folder) == mark and (folder / MARK_FILE).is_file():
        return
    folder.mkdir(mode=0o755, parents=parents, exist_ok=True)
    content = json.dumps({"since": mark.since}).encode() + b"\n"
    replace_file(folder / MARK_FILE, content, mode=0o600)


def closed_mark() -> Mark:
    """A mark for the end of mode regiondevel, with a token that no record has yet."""
    return Mark(os.urandom(16).hex())


@dataclass(frozen=True, slots=True)
class Saved:
    """What was recorded of a port before its content became unknown."""

    content: bytes | None
    """The bytes of its record; None if there was none, or none that could be read."""
    unknown: bool
    """Whether its content was unknown already."""


class Records:
    """The records of a host's ports, in a folder and, by default, the one above it."""

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
        """The OpenCL program in a port, or `UNKNOWN`; None if what it shows is in it."""
        mark, record = self._mark(), self._load(port)
        if self._is_unknown(port, record):
            return UNKNOWN
        now = {"boot": self._boot(), "inode": inode, "shown": shown}
        is_current = now.items() <= record.items()
        since = record.get("since")
        if not is_current or (mark is not None and (not since or since != mark.since)):
            return None if mark is None else UNKNOWN
        return record.get("program")

    def distrust(self, port: str) -> Saved:
        """Record that the content of a port is unknown; what was recorded, for `restore`.

        Files are emptied for that, which takes no space on a full disk. If neither folder takes it,
        it is an error, and the port must not be programmed.
        """
        try:
            content = self._path(port).read_bytes()
        except OSError:
            content = None
        saved = Saved(content, self._is_unknown(port, self._load(port)))
        failures = []
        for path in (self._path(port), self._unknown(port)):
            try:
                _make_empty(path)
            except OSError as error:
                failures.append(error)
        if len(failures) == 2:
            raise HardwareError(self._failed(failures[0])) from failures[0]
        return saved

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

    def write(self, port: str, inode: int, shown: str, program: str | None) -> None:
        """Record what has just been programmed into a port and verified.

        If it can't be written, the content of the port stays unknown.
        """
        mark, boot = self._mark(), self._boot()
        try:
            if program is None and mark is None:
                _remove(self._path(port))
            elif boot is None:
                raise HardwareError(f"{self._boot_id} can't be read")
            else:
                record = {"boot": boot, "inode": inode, "shown": shown, "program": program}
                record |= {} if mark is None else {"since": mark.since}
                self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
                replace_file(self._path(port), json.dumps(record).encode(), mode=0o600)
            _remove(self._unknown(port))
        except OSError as error:
            raise HardwareError(self._failed(error)) from error

    def _mark(self) -> Mark | None:
        return read_marks(self._durable_dir, self._folder.parent)

    def _is_unknown(self, port: str, record: dict[str, Any]) -> bool:
        return record.get("program") == UNKNOWN or _may_exist(self._unknown(port))

    def _load(self, port: str) -> dict[str, Any]:
        """The record of a port, empty if there is none."""
        found = _read_object(self._path(port))
        if found is None:
            return {}
        is_record = isinstance(found.get("program", 0), str | None)
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

    def _failed(self, error: OSError) -> str:
        reason = error.strerror or str(error)
        return f"records of what is in ports can't be kept in {self._folder}: {reason}"


def _read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; empty if it can't be read or is none, None without the file."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_MOST))
    except _ABSENT:
        return None
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _make_empty(path: Path) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(path, flags, 0o600))


def _remove(path: Path) -> None:
    with contextlib.suppress(*_ABSENT):
        path.unlink()


def _may_exist(path: Path) -> bool:
    """Whether a file is there, or may be: it cannot be read."""
    try:
        path.lstat()
    except _ABSENT:
        return False
    except OSError:
        return True
    return True


def _has_files(folder: Path) -> bool:
    try:
        return next(folder.iterdir(), None) is not None
    except _ABSENT:
        return False
    except OSError:
        return True
