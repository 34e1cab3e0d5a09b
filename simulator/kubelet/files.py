"""The files of a kubelet's folder: sockets that outlive their server, and stale files."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio

from services.kubelet.sockets import address, listen


@asynccontextmanager
async def serving(server: grpc.aio.Server, path: Path) -> AsyncIterator[Path]:
    """Starts a server on a socket whose file is neither removed nor reused when it stops.

    A kubelet that ends leaves its sockets; gRPC for Python removes a socket with its server,
    and a second server of one process on the same path loses its socket to the first. So the
    server is bound in a scratch folder beside, which goes at the end of the block, and
    within it `publish` puts the socket where it belongs.
    """
    address(path)
    scratch = Path(tempfile.mkdtemp(prefix=".k", dir=path.parent.parent))
    try:
        listen(server, scratch / "s")
        await server.start()
        yield scratch / "s"
    finally:
        shutil.rmtree(scratch)


def publish(socket: Path, path: Path) -> None:
    """Links a socket to where it belongs, in place of an older one.

    For a watcher that is as if it were bound there: a file is created, with a new inode.
    """
    path.unlink(missing_ok=True)
    os.link(socket, path)


def delete_sockets(folder: Path, *, keep: Path | None = None) -> list[str]:
    """Deletes every socket of a folder; other files stay."""
    deleted = []
    for path in sorted(folder.iterdir()):
        with contextlib.suppress(FileNotFoundError):
            if path != keep and stat.S_ISSOCK(path.stat().st_mode):
                path.unlink()
                deleted.append(path.name)
    return deleted


def delete_stale(folder: Path, *, keep: Collection[Path]) -> list[str]:
    """Delete the files of earlier runs in a folder, as a starting kubelet does; folders stay.

    1.36 deletes the sockets, older ones every file but the checkpoint (`CleanupPluginDirectory`,
    pkg/kubelet/cm/devicemanager/manager.go): what is harder on plugins is done here.
    """
    deleted = []
    for path in sorted(folder.iterdir()):
        with contextlib.suppress(FileNotFoundError):
            if path not in keep and not path.is_dir():
                path.unlink()
                deleted.append(path.name)
    return deleted
