"""What is in a port and it can't tell: which OpenCL program, or that nobody knows.

All OpenCL programs show the same AFU id. So after a verified programming it is written down what
was programmed, with what would make that untrue: the boot of the machine, the port's folder in
sysfs, which is another one once its driver or its card has been away, and the id that it showed:
tools that keep no records may have programmed another function since. A record that can't be read
is none. None outlives mode regiondevel, in which containers programme by themselves.

Before a port is programmed it is recorded that what it shows is not known to be in it: `UNKNOWN`
stays if the hardware refuses, or this is interrupted, for as long as the port goes on showing that.
"""

import json
import re
from pathlib import Path
from typing import Final

from services.atomic import replace_file
from services.domain.errors import HardwareError

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

UNKNOWN: Final = ""
"""Recorded in place of a program: whatever the port shows, it has to be programmed anew."""

_UNSAFE: Final = re.compile(r"[^0-9A-Za-z.:-]")
_MOST: Final = 4096


FOLDER: Final = "records"
"""Where they are below the folder that all who program on a host share."""


class Records:
    """The records of a host's ports.

    Args:
        folder: Where they are; made when the first is written.
        boot_id: The kernel's file about the boot.
    """

    def __init__(self, folder: Path, boot_id: Path = BOOT_ID) -> None:
        self._folder = folder
        self._boot_id = boot_id

    def has_any(self) -> bool:
        """Whether anything is written down, true or not; on a node without OpenCL nothing is."""
        try:
            return next(self._folder.iterdir(), None) is not None
        except OSError:
            return False

    def read(self, port: str, inode: int, shown: str) -> str | None:
        """What is recorded to be in a port.

        Args:
            port: What tells the port from others on the host.
            inode: The number of its folder in sysfs.
            shown: The AFU id that it shows, canonical.

        Returns:
            The id of an OpenCL program, or `UNKNOWN`; None if nothing is recorded that is still
            true.
        """
        try:
            with self._path(port).open("rb") as file:
                found = json.loads(file.read(_MOST))
        except (OSError, ValueError):
            return None
        if not isinstance(found, dict):
            return None
        program = found.pop("program", None)
        true = found == {"boot": self._boot(), "inode": inode, "shown": shown}
        return program if true and isinstance(program, str) else None

    def write(self, port: str, inode: int, shown: str, program: str) -> None:
        """Records what is in a port now.

        Raises:
            HardwareError: It can't be written.
        """
        record = {"boot": self._boot(), "inode": inode, "shown": shown, "program": program}
        try:
            self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            replace_file(self._path(port), json.dumps(record).encode(), mode=0o600)
        except OSError as error:
            raise HardwareError(self._failed(error)) from error

    def forget(self, port: str) -> None:
        """Removes what is recorded of a port.

        Raises:
            HardwareError: It can't be removed, so that what is there might count later.
        """
        try:
            self._path(port).unlink(missing_ok=True)
        except OSError as error:
            raise HardwareError(self._failed(error)) from error

    def forget_all(self) -> None:
        """Removes all records: somebody who writes none may have programmed since.

        Raises:
            HardwareError: One can't be removed.
        """
        try:
            for path in list(self._folder.iterdir()):
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            return
        except OSError as error:
            raise HardwareError(self._failed(error)) from error

    def _path(self, port: str) -> Path:
        return self._folder / f"{_UNSAFE.sub('_', port)}.json"

    def _boot(self) -> str:
        try:
            return self._boot_id.read_text(encoding="ascii").strip()
        except OSError as error:
            raise HardwareError(f"{self._boot_id} can't be read: {error.strerror}") from error

    def _failed(self, error: OSError) -> str:
        reason = error.strerror or str(error)
        return f"records of OpenCL programs can't be kept in {self._folder}: {reason}"
