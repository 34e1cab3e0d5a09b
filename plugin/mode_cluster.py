"""What the plugin has to do with the API server: this node's annotations, its Events, pods.

Imported only where there is an API server to reach: a Kubernetes client costs memory.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, TypeVar

from services.kube.client import ClusterClient, may_be_ours
from services.kube.connection import Connection
from services.kube.events import EventRecord, EventRecorder, EventSource
from services.kube.list_watch import WatchTimeouts
from services.kube.node_watcher import NodeWatcher
from services.mappings.index import NamespaceMappings
from services.mappings.namespace import read_namespace
from services.process.errors import ClusterError

T = TypeVar("T")

COMPONENT: Final = "accelbind-plugin"
"""Who tells, in Events."""


class ConnectedPods:
    """Pods and mappings from the API server.

    Args:
        connection: Whom to ask.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def get_pod(self, namespace: str, name: str) -> bytes | None:
        """A pod as JSON; None where there is none.

        Raises:
            ClusterError: Nobody can tell.
        """
        return await self._ask(lambda client: client.get_pod(namespace, name))

    async def mappings(self, namespace: str) -> NamespaceMappings:
        """What a namespace maps now.

        Raises:
            ClusterError: Nobody can tell.
        """
        return await self._ask(lambda client: read_namespace(client, namespace))

    async def _ask(self, ask: Callable[[ClusterClient], Awaitable[T]]) -> T:
        async with self._connection.client() as client:
            try:
                return await ask(client)
            except ClusterError as error:
                if may_be_ours(error):
                    await self._connection.renew(client)
                raise


class ClusterSide:
    """What goes on with the API server for as long as the process runs.

    Args:
        connection: How to reach it.
        node: This node's name.
        annotations: Told the node's, as `NodeWatcher` tells them.
        counted: Told the outcome of each Event.
        watch_failed: Called for each read or watch of the node that fails.
        timeouts: How often the API server is asked, if not as usual.
    """

    def __init__(
        self,
        connection: Connection,
        node: str,
        *,
        annotations: Callable[[Mapping[str, str] | None], None],
        counted: Callable[[str], None],
        watch_failed: Callable[[], None],
        timeouts: WatchTimeouts | None = None,
    ) -> None:
        self.pods = ConnectedPods(connection)
        self._watcher = NodeWatcher(
            node, connection, annotations, timeouts=timeouts, on_failure=watch_failed
        )
        source = EventSource(COMPONENT, host=node)
        self._recorder = EventRecorder(connection, source, on_result=counted)

    def record(self, event: EventRecord) -> None:
        """Have something written as an Event."""
        self._recorder.record(event)

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What has to run, by name."""
        yield "node", self._watcher.watch_forever()
        yield "events", self._recorder.write_forever()
