"""Sockets that outlive their server, and the removal of files as a starting kubelet does it."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path

import grpc.aio

from services.kubelet.sockets import address, listen


async def serve(server: grpc.aio.Server, path: Path) -> None:
    """Start a server on a socket whose file is neither removed nor reused when it stops.

    A kubelet that ends leaves its sockets; gRPC for Python removes a socket with its server, and a
    second server of one process on the same path loses its socket to the first. So the server is
    bound in a scratch folder beside, and the socket is linked to its place: for a watcher, a file
    is created there, with a new inode.
    """
    address(path)  # the scratch path is shorter: check this one
    scratch = Path(tempfile.mkdtemp(prefix=".k", dir=path.parent.parent))
    try:
        listen(server, scratch / "s")
        await server.start()
        path.unlink(missing_ok=True)  # noqa: ASYNC240 - on a disk of this machine
        os.link(scratch / "s", path)
    finally:
        shutil.rmtree(scratch)


def delete_files(folder: Path, *, keep: Collection[Path], sockets_only: bool = False) -> list[str]:
    """Delete the files of a folder, but no folders (`CleanupPluginDirectory` of the kubelet)."""
    deleted = []
    for path in sorted(folder.iterdir()):
        if path not in keep and (path.is_socket() if sockets_only else not path.is_dir()):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                deleted.append(path.name)
    return deleted
