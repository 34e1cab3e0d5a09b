"""The kubelet's folder of device plugins: is the kubelet there, and may this plugin serve?

The kubelet keeps the plugin that registered last for a resource, and doesn't tell the other one. So
if there are two on a node (rolling updates that overlap, or two DaemonSets by accident), only one
may serve: who has the lock (flock) on the folder. Without a folder, and where it can't be locked,
no process stops another one.

Nor does the kubelet tell its plugins that it restarts. It leaves its socket behind when it stops,
deletes all other sockets in the folder when it starts, and creates its own again. So twice a second
its socket is checked, and so are ours: a kubelet keeps its connection to one that is deleted, but
could not connect again.
"""

import asyncio
import contextlib
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import structlog

from services.kubelet.sockets import KUBELET_SOCKET, PLUGIN_SOCKET, Identity, address, identify
from services.process.errors import KubeletError
from services.process.outage import Outage

CHECK_SECONDS: Final = 0.5
"""Between two checks of the lock."""


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


MAX_SOCKETS: Final = 999_999_999


log = structlog.get_logger(component="node")


class KubeletFolder:
    """The kubelet's folder, as it changes; it may be missing.

    Raises:
        KubeletError: The path is too long for sockets in the folder.
    """

    def __init__(self, folder: Path, *, check_seconds: float = CHECK_SECONDS) -> None:
        self.path = folder
        self.socket = folder / KUBELET_SOCKET
        self.kubelet: Identity | None = None
        """The kubelet's socket at the last check."""
        self.lock = NodeLock(folder)
        self._away = Outage(log, "kubelet is away: waiting for its socket", "kubelet is there")
        self._check_seconds = check_seconds
        self._changed = asyncio.Event()
        self._names = f"accelbind-{secrets.token_hex(4)}"
        """Random: a plugin that was killed and restarted must not use its old names either."""
        self._sockets = 0
        self._served: dict[Path, Identity] = {}
        address(self._socket_path(MAX_SOCKETS))
        self._shown = self._present()
        """What those who wait have seen."""

    async def check_forever(self) -> None:
        """Check until cancelled."""
        while True:
            self.check()
            await asyncio.sleep(self._check_seconds)

    def check(self) -> None:
        """Check once, and wake who waits for what has changed."""
        self._check_kubelet()
        self._check_lock()
        present = self._present()
        # Not what was there before this check: `new_socket` checks the lock once more.
        if present != self._shown:
            self._shown = present
            self._changed.set()
            self._changed = asyncio.Event()

    def _present(self) -> tuple[object, ...]:
        lock = self.lock
        lost = frozenset(filter(self.is_lost, self._served))
        return self.kubelet, lock.waits_for, lock.is_active, lock.is_lost, lost

    async def present(self) -> Identity:
        """Wait for the kubelet's socket, and return its identity now, not at the last check.

        A registration with an old identity would count as lost, and be repeated.
        """
        if identify(self.socket) != self.kubelet:
            self.check()
        while self.kubelet is None:
            await self._changed.wait()
        return self.kubelet

    async def until(self, met: Callable[[], bool]) -> None:
        """Wait until a condition is met that the last check decides."""
        while not met():
            await self._changed.wait()

    # Our sockets

    def new_socket(self) -> Path:
        """A path in the folder that no server has had before.

        Stopping a gRPC server unlinks whatever has its path *then*, which would be the socket of a
        newer server.

        Raises:
            KubeletError: Another process has the folder.
        """
        self.check()
        self.lock.require()
        self._sockets += 1
        return self._socket_path(self._sockets)

    @contextlib.contextmanager
    def serving(self, path: Path) -> Iterator[None]:
        """Check a socket of ours in the folder."""
        if (identity := identify(path)) is not None:
            self._served[path] = identity
        try:
            yield
        finally:
            self._served.pop(path, None)

    def is_lost(self, path: Path) -> bool:
        """Whether a socket that is served was deleted, or another file has its name."""
        return path in self._served and identify(path) != self._served[path]

    def _socket_path(self, number: int) -> Path:
        return self.path / f"{self._names}-{number}.sock"

    def _check_lock(self) -> None:
        was_active = self.lock.is_active
        self.lock.check()
        if self.lock.is_active and not was_active and self.lock.is_ours:
            self._remove_stale_sockets()

    def _remove_stale_sockets(self) -> None:
        """Remove the sockets of plugins that were killed: whoever serves has the lock."""
        removed = []
        with contextlib.suppress(OSError):
            for path in sorted(self.path.iterdir()):
                ours = path.name.startswith(self._names) or not PLUGIN_SOCKET.fullmatch(path.name)
                if not ours and path.is_socket():
                    path.unlink()
                    removed.append(path.name)
        if removed:
            log.info("sockets of an ended plugin removed", sockets=removed)

    # The kubelet

    def _check_kubelet(self) -> None:
        before, self.kubelet = self.kubelet, identify(self.socket)
        try:
            self.socket.lstat()
        except OSError as error:
            self._away.failed(str(error))
            return
        self._away.ended()
        if before not in (None, self.kubelet):
            log.info("kubelet has restarted", socket=str(self.socket))
