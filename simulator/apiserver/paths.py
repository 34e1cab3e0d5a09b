"""The target of a request, from its path: resource, namespace, name and subresource."""

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.apiserver.resources import Resource, ResourceTable


@dataclass(frozen=True, slots=True)
class Target:
    """An object or a collection.

    Args:
        resource: its resource.
        namespace: empty for cluster-wide kinds and for lists over all namespaces.
        name: empty for a collection.
        subresource: such as `status`; usually empty.
    """

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def path(self) -> str:
        """The object's place in the store."""
        return self.resource.path(self.namespace, self.name)

    def reference(self) -> dict[str, str]:
        """The `objectRef` of audit entries."""
        found = {
            "resource": self.resource.plural,
            "namespace": self.namespace,
            "name": self.name,
            "apiGroup": self.resource.group,
            "apiVersion": self.resource.version,
            "subresource": self.subresource,
        }
        return {name: value for name, value in found.items() if value}


def parse(path: str, table: ResourceTable) -> Target | None:
    """The target of a path below `/api/v1` or `/apis/GROUP/VERSION`; None if it names nothing."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        return _target("", parts[1], parts[2:], table)
    if parts[0] == "apis" and len(parts) > 3:
        return _target(parts[1], parts[2], parts[3:], table)
    return None


def _target(group: str, version: str, parts: Sequence[str], table: ResourceTable) -> Target | None:
    namespace = ""
    in_namespace = len(parts) > 2 and not (len(parts) == 3 and parts[2] in ("status", "finalize"))
    if parts[0] == "namespaces" and in_namespace:
        namespace, parts = parts[1], parts[2:]
    resource = table.find(group, version, parts[0])
    if resource is None or len(parts) > 3 or "" in parts:
        return None
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 else ""
    if subresource and subresource not in resource.subresources:
        return None
    if resource.namespaced != bool(namespace) and (name or not resource.namespaced):
        return None
    return Target(resource, namespace, name, subresource)
