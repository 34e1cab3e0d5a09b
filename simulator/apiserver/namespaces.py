"""The namespace controller: empties a namespace that is being deleted, then removes it."""

from collections.abc import Callable

from simulator.apiserver.resources import NAMESPACES, PODS, ResourceTable
from simulator.apiserver.store import Change, Store
from simulator.apiserver.wire import Json, decode
from simulator.apiserver.writing import Writer

INITIAL = ("default", "kube-node-lease", "kube-public", "kube-system")


class NamespaceController:
    """Follows namespaces in deletion, on changes of the store, without a task of its own."""

    def __init__(self, store: Store, table: ResourceTable, writer: Writer) -> None:
        self._store = store
        self._table = table
        self._writer = writer
        self._stops: list[Callable[[], None]] = []

    def start(self) -> None:
        """Start."""
        self._stops = [
            self._store.listen(NAMESPACES, self._on_namespace),
            self._store.listen(PODS, self._on_pod),
        ]

    def stop(self) -> None:
        """Ends."""
        for stop in self._stops:
            stop()
        self._stops = []

    def _on_namespace(self, change: Change) -> None:
        if change.kind == "MODIFIED" and _is_terminating(namespace := decode(change.data)):
            self._empty(namespace)

    def _on_pod(self, change: Change) -> None:
        if change.kind != "DELETED":
            return
        namespace = self._store.get(NAMESPACES, change.path.split("/")[0])
        if namespace is not None and _is_terminating(namespace):
            self._finish(namespace)

    def _empty(self, namespace: Json) -> None:
        name = namespace["metadata"]["name"]
        for resource in tuple(self._table):
            if not resource.namespaced:
                continue
            for item in list(self._store.all(resource, name)):
                if not item["metadata"].get("deletionTimestamp"):
                    self._writer.remove(resource, item, grace=None)
        self._finish(namespace)

    def _finish(self, namespace: Json) -> None:
        name = namespace["metadata"]["name"]
        still_there = any(
            next(self._store.all(resource, name), None) is not None
            for resource in self._table
            if resource.namespaced
        )
        if not still_there and self._store.get(NAMESPACES, name) is not None:
            self._store.remove(NAMESPACES, name)


def _is_terminating(namespace: Json) -> bool:
    return bool(namespace["metadata"].get("deletionTimestamp"))
