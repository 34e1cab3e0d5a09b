"""The face of a node: serves its devices to the kubelet by one of its two APIs."""

from collections.abc import Iterable
from typing import Protocol

from services.containers.holders import Holders
from services.node.service import NodeService


class Face(Protocol):
    """Serves a node's devices, which `node` looks after."""

    node: NodeService

    async def run(self) -> None:
        """Serve until cancelled."""

    async def deaf(self) -> list[str]:
        """Why our sockets don't answer, one sentence each."""

    def unready(self) -> Iterable[str]:
        """Why the kubelet doesn't have all devices as it should."""

    def told(self) -> Iterable[str]:
        """Lines for people about what serves."""

    async def holders(self) -> tuple[Holders, Iterable[str]]:
        """Who has devices, and what is unknown or wrong about that."""
