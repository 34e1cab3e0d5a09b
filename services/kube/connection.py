"""One client for several users, made anew when its credentials or certificates no longer count.

A kubeconfig is rewritten, a token or a CA is rotated: whoever finds the client of no use asks for a
new one, made from what the files hold now. Those who still use the old one are let finish.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from services.kube.client import ClusterClient, load_config
from services.process.errors import ClusterError

log = structlog.get_logger(room="mappings")


@dataclass(eq=False, slots=True)
class _Lease:
    client: ClusterClient
    users: int = 0
    retired: bool = False


def connector(kubeconfig: Path | None = None) -> Callable[[], ClusterClient]:
    """Returns what makes a client from a kubeconfig, or from what the environment says.

    Calling it raises a `ClusterError` where nothing says how to reach an API server, or what does
    can't be used.
    """

    def connect() -> ClusterClient:
        config = load_config(kubeconfig)
        if config is None:
            raise ClusterError(
                "nothing says how to reach the API server: name a kubeconfig, or run as a pod"
                " with a service account"
            )
        return ClusterClient(config)

    return connect


class Connection:
    """The client in use.

    Args:
        connect: makes a client; called in a thread when it is made anew.

    Raises:
        ClusterError: There is no making one.
    """

    def __init__(self, connect: Callable[[], ClusterClient]) -> None:
        self._connect = connect
        self._lease = _Lease(connect())

    @asynccontextmanager
    async def client(self) -> AsyncIterator[ClusterClient]:
        """The client, which stays open for as long as it is used."""
        lease = self._lease
        lease.users += 1
        try:
            yield lease.client
        finally:
            lease.users -= 1
            await _close_unused(lease)

    async def renew(self, failed: ClusterClient) -> None:
        """Makes the client anew, unless somebody else did already; keeps it if that fails."""
        lease = self._lease
        if failed is not lease.client:
            return
        try:
            client = await asyncio.to_thread(self._connect)
        except ClusterError as error:
            log.warning("no new connection to the API server", problem=str(error))
            return
        if self._lease is not lease:
            await client.aclose()
            return
        self._lease = _Lease(client)
        lease.retired = True
        await _close_unused(lease)

    async def aclose(self) -> None:
        """Lets go of the client."""
        self._lease.retired = True
        await _close_unused(self._lease)


async def _close_unused(lease: _Lease) -> None:
    if lease.retired and lease.users == 0:
        await lease.client.aclose()
