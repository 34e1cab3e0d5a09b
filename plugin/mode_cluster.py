"""What the plugin has to do with the API server: this node's annotations, its Events, pods.

Imported only where there is an API server to reach: a Kubernetes client costs memory.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, TypeVar

from services.kube.client import ClusterClient
from services.kube.connection import Connection
from services.kube.event_queue import Happening
from services.kube.events import EventWriter, Reporter
from services.kube.node_watcher import NodeFollower
from services.kube.pace import Pace
from services.kube.remedies import may_be_ours
from services.mappings.index import NamespaceMappings
from services.mappings.namespace import read_namespace
from services.process.errors import ClusterError

T = TypeVar("T")

COMPONENT: Final = "accelbind-plugin"
"""Who tells, in Events."""

PACE: Final = Pace()


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
        annotations: Told the node's, as `NodeFollower` tells them.
        counted: Told the outcome of each Event.
        watch_failed: Called for each read or watch of the node that fails.
    """

    def __init__(
        self,
        connection: Connection,
        node: str,
        *,
        annotations: Callable[[Mapping[str, str] | None], None],
        counted: Callable[[str], None],
        watch_failed: Callable[[], None],
    ) -> None:
        self.pods = ConnectedPods(connection)
        self._follower = NodeFollower(node, connection, annotations, pace=PACE, failed=watch_failed)
        reporter = Reporter(COMPONENT, host=node)
        self._writer = EventWriter(connection, reporter, counted=counted, pace=PACE)

    def tell(self, happening: Happening) -> None:
        """Has something written as an Event."""
        self._writer.tell(happening)

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What has to run, by name."""
        yield "node", self._follower.run()
        yield "events", self._writer.run()
