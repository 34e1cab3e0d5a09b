"""Reads that really hang: the kernel holds whoever reads a file until it is released.

It uses fanotify (`man 7 fanotify`): a listener that must permit each read of a file or listing of a
folder (FAN_ACCESS_PERM), and never does. The reader, in whichever process, waits in
the kernel as one does for a driver that waits for a dead card: neither O_NONBLOCK nor a signal but
SIGKILL ends it. Releasing it, or the end of the process that holds it, ends it at once.

Needs CAP_SYS_ADMIN in the first user namespace, as root has it outside of containers. Without,
tests give readers a `Sysfs` of their own that waits.
"""

import ctypes
import os
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from simulator.cards import Rack

_FAN_CLOEXEC: Final = 0x1
_FAN_CLASS_CONTENT: Final = 0x4
_FAN_MARK_ADD: Final = 0x1
_FAN_ACCESS_PERM: Final = 0x20000
_FAN_ONDIR: Final = 0x40000000
_AT_FDCWD: Final = -100


class Hang(StrEnum):
    """The parts of a synthetic card whose reads can hang.

    The values are their places below the root, with the names of `Rack.places` in braces.
    """

    CARD_LISTING = "{entry}"
    AFU_READ = "{entry}/{port}/afu_id"
    PORT_ERRORS_READ = "{entry}/{port}/errors/errors"
    INTERFACE_READ = "{entry}/{interface_file}"
    FME_ERRORS_READ = "{entry}/{fme}/{errors_file}"
    TEMPERATURE_READ = "{entry}/{fme}/{temperature_file}"


class Held:
    """A file or folder whose readers hang until it is released.

    It is about what stands at the path now: a file that takes its place is read as any other.
    """

    def __init__(self, path: Path) -> None:
        self._listener = _called("fanotify_init", _FAN_CLASS_CONTENT | _FAN_CLOEXEC, os.O_RDONLY)
        what = _FAN_ACCESS_PERM | (_FAN_ONDIR if path.is_dir() else 0)
        try:
            _called(
                "fanotify_mark",
                self._listener,
                _FAN_MARK_ADD,
                ctypes.c_uint64(what),
                _AT_FDCWD,
                os.fsencode(path),
            )
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Release: readers continue."""
        listener, self._listener = self._listener, -1
        if listener >= 0:
            os.close(listener)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def hold(rack: Rack, address: str, hang: Hang, port: int = 0) -> Held:
    """Let reads of a part of a card hang, in any process, until it is released."""
    return Held(rack.root / hang.format(**rack.places(address, port)))


_C = ctypes.CDLL(None, use_errno=True)


def _called(name: str, *arguments: object) -> int:
    result = int(getattr(_C, name)(*arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result
