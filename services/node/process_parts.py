"""What plugin and DRA driver have alike, for as long as their process lives."""

from collections.abc import Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any

from services.kube.connection import ApiConnection
from services.kube.events import EventRecord, EventRecorder
from services.node.kept_files import KeptFiles
from services.node.metrics import NodeMetrics
from services.node.removed_folders import end_if_removed
from services.node.reports import NodeReports
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
        self.files = KeptFiles(
            lambda kind, outcome: self.node_metrics.files.labels(kind, outcome).inc()
        )
        self.recorder: EventRecorder | None = None
        if connection is not None:
            self.recorder = EventRecorder(
                connection,
                component=f"accelbind-{name}",
                host=settings.node_name,
                on_result=lambda outcome: self.node_metrics.events.labels(outcome).inc(),
            )
        self.reports = NodeReports(settings.node_name, self.record_event)

    def record_event(self, event: EventRecord) -> None:
        """Have an Event written soon."""
        if self.recorder is not None:
            self.recorder.record(event)

    def loops(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What runs as long as the process, by name."""
        yield "folders", end_if_removed(self._folders)
        if self.recorder is not None:
            yield "events", self.recorder.write_forever()
