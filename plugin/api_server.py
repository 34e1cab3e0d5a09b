"""What the plugin does with the API server: this node's annotations, Events, pods and mappings.

Imported only if there is an API server: a Kubernetes client costs memory.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, TypeVar

from plugin.metrics import PluginMetrics
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
"""The source of Events."""


class ApiServerPods:
    """Pods and mappings from the API server.

    Args:
        connection: The connection to it.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def get_pod(self, namespace: str, name: str) -> bytes | None:
        """A pod as JSON; None if there is none.

        Raises:
            ClusterError: The API server doesn't say.
        """
        return await self._query(lambda client: client.get_pod(namespace, name))

    async def mappings(self, namespace: str) -> NamespaceMappings:
        """What a namespace maps now.

        Raises:
            ClusterError: The API server doesn't say.
        """
        return await self._query(lambda client: read_namespace(client, namespace))

    async def _query(self, query: Callable[[ClusterClient], Awaitable[T]]) -> T:
        async with self._connection.client() as client:
            try:
                return await query(client)
            except ClusterError as error:
                if may_be_ours(error):
                    await self._connection.renew(client)
                raise


class ApiServer:
    """The API server, as the plugin uses it while its process runs.

    Args:
        connection: The connection to it.
        node: This node's name.
        metrics: Counts Events and failed watches.
        timeouts: How often it is asked, if not as usual.
    """

    def __init__(
        self,
        connection: Connection,
        node: str,
        metrics: PluginMetrics,
        timeouts: WatchTimeouts | None = None,
    ) -> None:
        self.pods = ApiServerPods(connection)
        self._connection = connection
        self._node = node
        self._metrics = metrics
        self._timeouts = timeouts
        source = EventSource(COMPONENT, host=node)
        self._recorder = EventRecorder(connection, source, on_result=metrics.count_event)

    def record_event(self, event: EventRecord) -> None:
        """Writes an Event when possible."""
        self._recorder.record(event)

    def tasks(
        self, on_annotations: Callable[[Mapping[str, str] | None], None]
    ) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What has to run, by name.

        Args:
            on_annotations: Called with the node's annotations, as `NodeWatcher` does.
        """
        watcher = NodeWatcher(
            self._node,
            self._connection,
            on_annotations,
            timeouts=self._timeouts,
            on_failure=self._metrics.count_failed_watch,
        )
        yield "node", watcher.watch_forever()
        yield "events", self._recorder.write_forever()
