"""Decides which accelbind process serves a node: a lock (flock) on the kubelet's plugin folder.

The kubelet keeps the plugin that registered last for a resource, and doesn't tell the other one. So
if there are two on a node (rolling updates that overlap, or two DaemonSets by accident), only one
may serve. Without a folder, and where it can't be locked, no process stops another one.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

import structlog

from services.process.errors import KubeletError
from services.process.outage import Outage

CHECK_SECONDS: Final = 0.5
"""Between two checks of the lock."""

log = structlog.get_logger(component="node")


class NodeLock:
    """The lock of a folder, which may be missing; `check` is to be called again and again."""

    def __init__(self, folder: Path) -> None:
        self.is_active = False
        """Whether this process is the one that serves."""
        self.is_lost = False
        """Whether it was the one that serves, and another one has the lock now."""
        self._folder = folder
        self._descriptor = -1
        """Of the folder that we have locked."""
        self._unlockable = Outage(
            log,
            "the kubelet's folder can't be locked: two plugins don't notice each other",
            "the kubelet's folder is locked",
            folder=str(folder),
        )
        self._waiting = Outage(
            log,
            "waiting until another process ends",
            "the other process has ended",
            folder=str(folder),
        )

    @property
    def waits_for(self) -> str:
        """Why this process waits; empty if it doesn't."""
        return self._waiting.reason

    @property
    def is_ours(self) -> bool:
        """Whether this process has locked the present folder."""
        try:
            return self._descriptor >= 0 and os.path.samestat(
                os.fstat(self._descriptor), self._folder.stat()
            )
        except OSError:
            return False

    def check(self) -> None:
        """See whether this process may serve; if nobody has the lock, take it."""
        if self.is_lost:
            return
        if not self._locked_by_other():
            self._waiting.ended()
            self.is_active = True
        elif self.is_active:  # the other one was faster in a folder that is new
            self.is_active, self.is_lost = False, True
        else:
            self._waiting.failed("another accelbind serves on this node")

    def require(self) -> None:
        """Check, and refuse to go on without the lock.

        Raises:
            KubeletError: Another process has it.
        """
        self.check()
        if self.is_lost:
            raise KubeletError(
                f"{self._folder} is new, and another accelbind was faster to lock it"
            )
        if not self.is_active:
            raise KubeletError(self.waits_for)

    def close(self) -> None:
        """Release the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _locked_by_other(self) -> bool:
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
            self._unlockable.failed(error.strerror or str(error))
            return False
        self._unlockable.ended()
        self._descriptor = opened
        return False
