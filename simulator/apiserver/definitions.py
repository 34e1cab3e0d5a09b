"""Custom resource definitions: a created one is served at once.

The suite's two kinds are served from the start with the schemas of `resources`; a definition of
the same name replaces these, and its deletion removes the kind with its objects.
"""

from collections.abc import Callable
from datetime import datetime

from simulator.apiserver.asking import timestamp
from simulator.apiserver.resources import DEFINITIONS, Resource, ResourceTable
from simulator.apiserver.store import Change, Store
from simulator.apiserver.wire import Json, decode


class DefinitionController:
    """Follows definitions and keeps the table of resources in step."""

    def __init__(self, store: Store, table: ResourceTable, *, now: Callable[[], datetime]) -> None:
        self._store = store
        self._table = table
        self._now = now
        self._stop: Callable[[], None] | None = None

    def start(self) -> None:
        """Start."""
        self._stop = self._store.listen(DEFINITIONS, self._on_change)

    def stop(self) -> None:
        """Ends."""
        if self._stop is not None:
            self._stop()
            self._stop = None

    def _on_change(self, change: Change) -> None:
        definition = decode(change.data)
        resource = resource_of(definition)
        if resource is None:
            return
        if change.kind == "DELETED":
            for path in list(self._store.shelf(resource).paths):
                self._store.remove(resource, path)
            self._table.drop(resource.key)
            return
        self._table.put(resource)
        if not (definition.get("status") or {}).get("conditions"):
            self._establish(definition, resource)

    def _establish(self, definition: Json, resource: Resource) -> None:
        since = timestamp(self._now())
        definition["status"] = {
            "conditions": [
                _condition("NamesAccepted", since, "NoConflicts", "no conflicts found"),
                _condition("Established", since, "InitialNamesAccepted", "the initial names ..."),
            ],
            "acceptedNames": definition["spec"]["names"],
            "storedVersions": [resource.version],
        }
        self._store.write(DEFINITIONS, definition)


def _condition(kind: str, since: str, reason: str, message: str) -> Json:
    return {
        "type": kind,
        "status": "True",
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    }


def resource_of(definition: Json) -> Resource | None:
    """The resource that a definition describes, None where none of its versions is served."""
    spec = definition.get("spec") or {}
    served = [one for one in spec.get("versions") or [] if one.get("served")]
    if not served or not spec.get("names"):
        return None
    version = next((one for one in served if one.get("storage")), served[0])
    called = spec["names"]
    return Resource(
        spec["group"],
        version["name"],
        called["plural"],
        called["kind"],
        namespaced=spec.get("scope") == "Namespaced",
        custom=True,
        schema=(version.get("schema") or {}).get("openAPIV3Schema"),
        subresources=frozenset(version.get("subresources") or {}),
        short_names=tuple(called.get("shortNames") or ()),
        counts_generations=True,
        empty={"metadata": {}},
    )
