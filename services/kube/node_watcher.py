"""Watches the annotations of one node, with the verbs `get` and `watch` of nodes."""

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from services.kube.client import NOT_FOUND, BadStatus, ClusterClient, Unreadable, will_pass
from services.kube.connection import ApiConnection
from services.kube.list_watch import WatchEvent, WatchLoop, WatchTiming
from services.process.errors import ClusterError
from services.process.json import UNREADABLE
from services.process.text import plain

NODES: Final = "/api/v1/nodes"

# Between two reads that events cause: a cache may lag behind for long, and each of its events
# differs from what is known.
READ_SECONDS: Final = 5.0


class NodeWatcher(WatchLoop):
    """Reports the annotations of a node, at the start and after each change.

    `on_change` gets the annotations, or None if the API server refuses to give them, for a reason
    that doesn't pass by itself. `on_failure` is called for each read or watch that fails.
    """

    def __init__(
        self,
        name: str,
        connection: ApiConnection,
        on_change: Callable[[Mapping[str, str] | None], None],
        *,
        timing: WatchTiming,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            connection,
            {"node": name},
            timing,
            outage="the node's annotations are not being updated",
            recovery="the node's annotations are being updated again",
            on_failure=on_failure,
        )
        self._name = name
        self._path = f"{NODES}/{quote(name, safe='')}"
        self._on_change = on_change
        self._known: Mapping[str, str] = {}
        self._read_after = self._clock()

    def _watch_request(self) -> tuple[str, dict[str, str | int]]:
        # The version in the node's metadata may be too old to watch from; 0 is the API server's
        # cache. With bookmarks but without a version, an API server of 1.36 turns the watch into a
        # list and a watch, which fails where the storage can't serve progress requests. A role with
        # `resourceNames` requires the selector.
        return NODES, {"fieldSelector": f"metadata.name={self._name}", "resourceVersion": 0}

    async def _read(self, client: ClusterClient) -> None:
        answer = await client.request("GET", self._path)
        if answer.status == NOT_FOUND:
            raise BadStatus(
                f'the API server has no node "{self._name}": set --node-name to the name of this'
                " node in kubectl get nodes",
                NOT_FOUND,
            )
        self._known = self._annotations(client.expect(answer, f"GET {self._path}").body)
        self._on_change(self._known)

    async def _apply(self, client: ClusterClient, event: WatchEvent) -> None:
        # The cache may lag behind what `get` has returned, so an event only causes another read.
        if event.type == "DELETED" or self._annotations(event.object) != self._known:
            await self._timing.sleep(max(0.0, self._read_after - self._clock()))
            await self._read(client)
            self._read_after = self._clock() + READ_SECONDS

    def _annotations(self, node: bytes | msgspec.Raw) -> Mapping[str, str]:
        try:
            metadata = _NODE.decode(node).metadata
        except UNREADABLE as error:
            reason = plain(str(error), 200)
            raise Unreadable(f"the answer about the node can't be read: {reason}") from error
        if metadata.name != self._name:
            raise Unreadable(f"asked for node {self._name}, got {plain(metadata.name, 80)}")
        return metadata.annotations or {}

    def _read_failed(self, error: ClusterError) -> float:
        # 503 is an outage, as silence is: the annotations that are known still count.
        if isinstance(error, BadStatus) and not will_pass(error):
            self._on_change(None)
        return super()._read_failed(error)


class _Metadata(msgspec.Struct):
    name: str = ""
    annotations: dict[str, str] | None = None


class _Node(msgspec.Struct):
    metadata: _Metadata


_NODE: Final = msgspec.json.Decoder(_Node)
