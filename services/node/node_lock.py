"""Decides which accelbind process serves a node: a lock (flock) on the kubelet's plugin folder.

The kubelet keeps the plugin that registered last for a resource, and doesn't tell the other one. So
if there are two plugins on a node (rolling updates that overlap, or two DaemonSets by accident),
only one may serve. Without a folder, and where it can't be locked, no process stops another one.
"""

import fcntl
import os
from pathlib import Path

import structlog

from services.process.outage import Outage

log = structlog.get_logger(component="node")


class NodeLock:
    """The lock of a folder, which may be missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1
        """Of the folder that we have locked."""
        self._outage = Outage(
            log,
            "the kubelet's folder can't be locked: two plugins don't notice each other",
            "the kubelet's folder is locked",
            folder=str(folder),
        )

    @property
    def is_ours(self) -> bool:
        """Whether this process has locked the present folder."""
        try:
            return self._descriptor >= 0 and os.path.samestat(
                os.fstat(self._descriptor), self._folder.stat()
            )
        except OSError:
            return False

    def locked_by_other(self) -> bool:
        """Whether another process has locked the folder; if none has, this one locks it."""
        if self.is_ours:
            return False
        self.close()  # the folder was deleted and created again
        try:
            # The folder itself: its files are deleted by a kubelet that starts.
            opened = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(opened)
            if isinstance(error, BlockingIOError):
                return True
            self._outage.failed(error.strerror or str(error))
            return False
        self._outage.ended()
        self._descriptor = opened
        return False

    def close(self) -> None:
        """Release the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
