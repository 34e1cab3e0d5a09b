"""One client of the API server for all parts of a process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from services.kube.client import ClusterClient, may_be_elsewhere
from services.kube.config import NO_KUBECONFIG, load_config
from services.process.errors import ClusterError

log = structlog.get_logger(component="kube")


def connector(kubeconfig: Path | None = None) -> Callable[[], ClusterClient]:
    """A function that creates a client, as `load_config` says; without any it raises as well."""

    def connect() -> ClusterClient:
        config = load_config(kubeconfig)
        if config is None:
            raise ClusterError(NO_KUBECONFIG)
        return ClusterClient(config)

    return connect


@dataclass(eq=False, slots=True)
class _Lease:
    client: ClusterClient
    users: int = 0
    doubted: bool = False
    """Whether a user has failed in a way that other files could explain."""
    retired: bool = False

    async def close_unused(self) -> None:
        if self.retired and self.users == 0:
            await self.client.aclose()


class ApiConnection:
    """One client for several users, replaced when its credentials or certificates fail."""

    def __init__(self, connect: Callable[[], ClusterClient]) -> None:
        self._connect = connect
        self._lease = _Lease(connect())
        self._renewing = asyncio.Lock()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[ClusterClient]:
        """Lend the client, which stays open while it is in use; a `ClusterError` passes through."""
        async with self._renewing:  # by one of those who come after an error
            # A kubeconfig may have been rewritten, a client certificate or a CA rotated.
            if self._lease.doubted:
                await self._renew()
        lease = self._lease
        lease.users += 1
        try:
            yield lease.client
        except ClusterError as error:
            lease.doubted = lease.doubted or may_be_elsewhere(error)
            raise
        finally:
            lease.users -= 1
            await lease.close_unused()

    async def _renew(self) -> None:
        """Replace the client; keep it if that fails."""
        old = self._lease
        old.doubted = False
        try:
            # In a thread, since it reads files and loads certificates.
            client = await asyncio.to_thread(self._connect)
        except ClusterError as error:
            log.warning("no new connection to the API server", reason=str(error))
            return
        self._lease = _Lease(client)
        # A watch may still be open on it.
        old.retired = True
        await old.close_unused()

    async def aclose(self) -> None:
        """Close the client, once its last user has finished."""
        self._lease.retired = True
        await self._lease.close_unused()
