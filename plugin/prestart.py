"""The last word before a container starts in region mode: is its function in the regions it has?

The kubelet names the devices; who is starting has to be found out (`services.domain.startup` tells
how, and decides). What that needs is fetched here: the kubelet's checkpoint and log folders from
this node's disk, the pod from the API server, the functions from the cards as they are now.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import structlog

from plugin.worker import Worker
from services.domain import startup
from services.domain.errors import InvalidName, NotAllowed, WorldError
from services.domain.names import RegionName, decode
from services.domain.startup import Candidate, Place, Wish
from services.domain.tree import Tree
from services.kubelet.checkpoint import pod_folders, read_checkpoint

CHECK_SECONDS: Final = 25.0
"""For the whole check; the kubelet gives up after 30 s and says nothing useful then."""

FILES_SECONDS: Final = 10.0
"""For reading the kubelet's files, and the cards."""

log = structlog.get_logger(room="plugin")


class PodSource(Protocol):
    """Where pods come from."""

    async def get_pod(self, namespace: str, name: str) -> bytes | None:
        """A pod as JSON; None where there is none.

        Raises:
            ClusterError: Nobody can tell.
        """


class FunctionGate:
    """Lets a container start only on the functions that its pod's spec asks for.

    Args:
        checkpoint: The kubelet's checkpoint.
        pod_logs_dir: Where the folders of pods' logs are.
        node: This node's name.
        pods: The API server; None if there is no access to it, then nothing starts.
        fresh_tree: Reads the cards now, within some seconds.
        worker: Where to read the kubelet's files.
    """

    def __init__(
        self,
        *,
        checkpoint: Path,
        pod_logs_dir: Path,
        node: str,
        pods: PodSource | None,
        fresh_tree: Callable[[float], Awaitable[Tree]],
        worker: Worker,
    ) -> None:
        self._checkpoint = checkpoint
        self._pod_logs_dir = pod_logs_dir
        self._node = node
        self._pods = pods
        self._fresh_tree = fresh_tree
        self._worker = worker

    async def check(self, resource: str, ids: Sequence[str]) -> None:
        """Returns if the container that was given these devices may start.

        Args:
            resource: Full name of a region's resource.
            ids: The devices of it that the container was given.

        Raises:
            NotAllowed: It may not, or nobody can tell who it is or what the devices carry.
            WorldError: What would tell is away or too slow; later it may be there.
        """
        limit = asyncio.timeout(CHECK_SECONDS)
        try:
            async with limit:
                wish = await self._check(resource, ids)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise WorldError(
                f"verifying the function of {', '.join(ids)} took longer than {CHECK_SECONDS:g} s"
            ) from error
        log.info(
            "function verified",
            resource=resource,
            devices=list(ids),
            container=wish.who,
            functions=list(wish.functions),
        )

    async def _check(self, resource: str, ids: Sequence[str]) -> Wish:
        interface_id = _interface_of(resource)
        if self._pods is None:
            raise NotAllowed(
                "nobody can tell which function this container wants, since this plugin has no"
                " access to the API server: run it with a service account that may get pods, or"
                " set --kubeconfig or KUBECONFIG"
            )
        found = await self._who(resource, ids)
        wishes = [
            await self._wish(self._pods, candidate, place, interface_id)
            for candidate, place in found
        ]
        wish = startup.agree(wishes)
        tree = await self._fresh_tree(FILES_SECONDS)
        devices = tree.resources.get(resource, {})
        startup.verify(wish, ids, devices, node=self._node, interface_id=interface_id)
        return wish

    async def _who(self, resource: str, ids: Sequence[str]) -> list[tuple[Candidate, Place]]:
        """The containers that may be starting, and their pods."""

        def read() -> list[tuple[Candidate, Place]]:
            found = startup.candidates(read_checkpoint(self._checkpoint), resource, ids)
            folders = pod_folders(self._pod_logs_dir)
            return [(each, startup.find_place(folders, each.pod_uid)) for each in found]

        return await self._worker.run(
            read, seconds=FILES_SECONDS, what=f"reading {self._checkpoint}"
        )

    async def _wish(
        self, pods: PodSource, candidate: Candidate, place: Place, interface_id: str
    ) -> Wish:
        body = await pods.get_pod(place.namespace, place.name)
        return startup.read_wish(
            body, place, candidate.container, node=self._node, interface_id=interface_id
        )


def _interface_of(resource: str) -> str:
    """Canonical interface id of a region's resource."""
    named = decode(resource)
    if not isinstance(named, RegionName):
        raise InvalidName(f"{resource} is no region")
    return named.interface_id
