"""Names of our sockets in the kubelet's folder, and the removal of sockets of ended plugins.

No name is used twice: stopping a gRPC server unlinks whatever has its path *then*, which would be
the socket of a newer server. The middle part of the name is random, so that a plugin that was
killed and restarted doesn't use its old names either.
"""

import errno
import re
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.kubelet.sockets import address

_NAME: Final = re.compile(r"accelbind-[0-9a-f]{8}-[0-9]{1,9}\.sock")
_ANSWER_SECONDS: Final = 0.5


class SocketNames:
    """Paths for sockets, each returned once.

    Args:
        folder: The kubelet's folder of device plugins.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = secrets.token_hex(4)
        self._count = 0

    def next(self) -> Path:
        """A path that no server has had before.

        Raises:
            KubeletError: The folder's path is too long for any socket in it.
        """
        self._count += 1
        path = self._folder / f"accelbind-{self._process}-{self._count}.sock"
        address(path)
        return path


@dataclass(frozen=True, slots=True)
class SweptSockets:
    """What `remove_stale_sockets` found.

    Args:
        removed: Names of removed sockets, which nobody served.
        alive: Names of sockets that another accelbind plugin serves.
    """

    removed: tuple[str, ...] = ()
    alive: tuple[str, ...] = ()


def remove_stale_sockets(folder: Path) -> SweptSockets:
    """Removes sockets with our names on which nobody answers.

    Args:
        folder: The kubelet's folder of device plugins; may be missing.
    """
    removed, alive = [], []
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            if not _NAME.fullmatch(path.name) or not path.is_socket():
                continue
            if _answers(path):
                alive.append(path.name)
                continue
            with suppress(OSError):
                path.unlink()
                removed.append(path.name)
    return SweptSockets(tuple(removed), tuple(alive))


def _answers(path: Path) -> bool:
    """Whether somebody listens; yes if unsure, since the socket would be removed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_ANSWER_SECONDS)
        try:
            probe.connect(str(path))
        except OSError as error:
            return error.errno not in {errno.ECONNREFUSED, errno.ENOENT}
    return True
