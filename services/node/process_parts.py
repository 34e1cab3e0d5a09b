"""What plugin and DRA driver have alike, for as long as their process lives."""

from collections.abc import Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any

from services.kube.connection import ApiConnection
from services.kube.events import EventRecord, EventRecorder
from services.node.kept_files import KeptFiles
from services.node.metrics import NodeMetrics
from services.node.removed_folders import end_if_removed
from services.node.settings import NodeSettings
from services.process import http
from services.process.blocking import BlockingCalls


class NodeProcess:
    """A process on a node.

    Events are written through `connection`; without one they are dropped. `name` is `plugin` or
    `dra`, an empty `version` is looked up. Besides the state folder it writes to `folders`.
    """

    def __init__(
        self,
        name: str,
        settings: NodeSettings,
        connection: ApiConnection | None,
        version: str,
        *,
        folders: Iterable[Path | None],
    ) -> None:
        self.calls = BlockingCalls()
        self._folders = [each for each in (settings.state_dir, *folders) if each is not None]
        self.registry = http.new_registry()
        http.build_info(self.registry, name, version)
        self.node_metrics = NodeMetrics(self.registry)
        self.files = KeptFiles(self.node_metrics.files)
        self.events = EventRecorder(
            connection,
            component=f"accelbind-{name}",
            host=settings.node_name,
            results=self.node_metrics.events,
        )

    def record_event(self, event: EventRecord) -> None:
        """Have an Event written soon."""
        self.events.record(event)

    def loops(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What runs as long as the process, by name."""
        yield "folders", end_if_removed(self._folders)
        yield "events", self.events.write_forever()
