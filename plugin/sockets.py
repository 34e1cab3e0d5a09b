"""Names for our sockets in the kubelet's folder, and the sweep of those that a predecessor left.

No name is ever used twice: stopping a gRPC server unlinks whatever has its path *then*, which would
be the socket of a newer server. The part in the middle is random, so that a plugin that was killed
and started again doesn't come upon its own old names either.
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
    """Paths for sockets, each given out once.

    Args:
        folder: The kubelet's folder of device plugins.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = secrets.token_hex(4)
        self._count = 0

    def next(self) -> Path:
        """A path that none of our servers has had.

        Raises:
            KubeletError: The folder's path is too long for any socket in it.
        """
        self._count += 1
        path = self._folder / f"accelbind-{self._process}-{self._count}.sock"
        address(path)
        return path


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep found.

    Args:
        removed: Names of sockets that nobody served.
        alive: Names of sockets that somebody serves: another plugin of ours.
    """

    removed: tuple[str, ...] = ()
    alive: tuple[str, ...] = ()


def sweep(folder: Path) -> Swept:
    """Removes sockets of our naming on which nobody answers.

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
    return Swept(tuple(removed), tuple(alive))


def _answers(path: Path) -> bool:
    """Whether somebody listens; in doubt yes, since it decides about removing the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_ANSWER_SECONDS)
        try:
            probe.connect(str(path))
        except OSError as error:
            return error.errno not in {errno.ECONNREFUSED, errno.ENOENT}
    return True
