"""A cluster's mappings, what its nodes offer, and what its pods and workloads ask for.

Unlike the reflector it lists everything once, page by page. What we may not list is reported with
the missing permission; a kind that the cluster does not serve is not.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from services.admission.findings import ResourceUse, add_advertised, resource_uses
from services.admission.mutate import Policy
from services.kube.client import FORBIDDEN, NOT_FOUND, BadStatus, ClusterClient, segment
from services.kube.lists import list_objects
from services.mappings.folder import FolderSnapshot, load_folder
from services.mappings.index import MappingIndex, build_index
from services.mappings.kinds import TABLE
from services.mappings.model import Entry
from services.mappings.namespace import list_entries
from services.pods.manifests import find_pods
from services.process.errors import ClusterError, ExternalFailure, InvalidManifest, InvalidSettings
from services.process.text import listing

T = TypeVar("T")

_ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind, and where it is listed."""

    kind: str
    api_version: str
    plural: str

    def path(self, namespace: str | None) -> str:
        root = "/apis" if "/" in self.api_version else "/api"
        within = f"/namespaces/{segment(namespace)}" if namespace else ""
        return f"{root}/{self.api_version}{within}/{self.plural}"


def _permission(kinds: Iterable[tuple[str, str]], namespace: str | None) -> str:
    """What RBAC must allow, with the names of kinds as kubectl writes them.

    `kinds` are plural and API version of each.
    """
    groups = [(plural, version.rpartition("/")[0]) for plural, version in kinds]
    labels = listing([f"{plural}.{group}" if group else plural for plural, group in groups])
    where = f"in namespace {namespace}" if namespace else "in the whole cluster"
    return f'RBAC must allow us "list" on {labels} {where}'


_NODES: Final = _Kind("Node", "v1", "nodes")
_POD_KINDS: Final = (
    _Kind("Pod", "v1", "pods"),
    _Kind("Deployment", "apps/v1", "deployments"),
    _Kind("StatefulSet", "apps/v1", "statefulsets"),
    _Kind("DaemonSet", "apps/v1", "daemonsets"),
    _Kind("ReplicaSet", "apps/v1", "replicasets"),
    _Kind("ReplicationController", "v1", "replicationcontrollers"),
    _Kind("Job", "batch/v1", "jobs"),
    _Kind("CronJob", "batch/v1", "cronjobs"),
)


@dataclass(slots=True)
class Survey:
    """What a cluster has."""

    index: MappingIndex
    """The mappings."""
    advertised: dict[str, int] | None = None
    """The number of devices of each resource; None if nodes can't be listed."""
    uses: list[ResourceUse] = field(default_factory=list)
    """What pods and workloads ask for."""
    missing: list[str] = field(default_factory=list)
    """A sentence for each kind that we may not list."""


async def survey(client: ClusterClient, policy: Policy, *, namespace: str | None = None) -> Survey:
    """Read a cluster, or what one namespace of it has."""
    namespaces = {namespace, policy.shared_namespace or namespace} if namespace else {None}
    result = Survey(await read_index(client, namespaces))

    async def listed(
        kind: _Kind, within: str | None, read: Callable[[dict[str, Any]], T]
    ) -> list[T] | None:
        """The objects of a kind; None if we may not list it, or the cluster does not serve it."""
        about = {"apiVersion": kind.api_version, "kind": kind.kind}  # items of a list don't say it
        try:
            return await list_objects(client, kind.path(within), lambda obj: read(about | obj))
        except BadStatus as error:
            if error.status == FORBIDDEN:
                permission = _permission([(kind.plural, kind.api_version)], within)
                result.missing.append(f"{kind.plural}: {permission}")
            elif error.status != NOT_FOUND:
                raise
        return None

    nodes = await listed(
        _NODES, None, lambda node: add_advertised({}, node, policy.fpga_prefixes, others=True)
    )
    if nodes is not None:
        totals: Counter[str] = Counter()
        for offered in nodes:
            totals.update(offered)
        result.advertised = totals
    for kind in _POD_KINDS:
        for uses in await listed(kind, namespace, lambda obj: [*_uses(obj, policy.prefixes)]) or ():
            result.uses += uses
    return result


async def read_index(client: ClusterClient, namespaces: Iterable[str | None]) -> MappingIndex:
    """The mappings of some namespaces; None is all of them."""
    entries: list[Entry] = []
    for namespace in namespaces:
        try:
            entries += await list_entries(client, namespace)
        except BadStatus as error:
            if error.status != FORBIDDEN:
                raise
            kinds = [(kind.plural, kind.api_version) for kind in TABLE.values()]
            permission = _permission(kinds, namespace)
            raise ClusterError(f"{error}: {permission}") from error
    return build_index(entries)


def read_folder(folder: Path) -> FolderSnapshot:
    """The mappings of a folder, and its problems.

    Raises:
        InvalidSettings: It or a file can't be read, which is the asker's fault: exit code 1 is an
            answer.
    """
    try:
        snapshot = load_folder(folder)
    except ExternalFailure as error:
        advice = ": name the folder that has this file" if folder.is_file() else ""
        raise InvalidSettings(f"{error}{advice}") from error
    if snapshot.unread:
        raise InvalidSettings(f"the folder of mappings {folder}: {'; '.join(snapshot.unread[:4])}")
    return snapshot


def policy_of(
    domains: list[str] | None,
    accelerator_domains: list[str] | None,
    shared_namespace: str = "",
    *,
    max_units: int = Policy().max_units,
    guard: list[str] | None = None,
) -> Policy:
    """Return the policy of a webhook with such settings.

    Raises:
        InvalidSettings: no webhook would start with them.
    """
    usual = Policy()
    try:
        return Policy(
            tuple(domains or usual.domains),
            max_units,
            tuple(accelerator_domains or usual.accelerator_domains),
            shared_namespace,
            tuple(guard or ()),
        )
    except ValueError as error:
        raise InvalidSettings(str(error)) from error


def _uses(obj: dict[str, Any], prefixes: tuple[str, ...]) -> Iterator[ResourceUse]:
    """Yield what an object asks for, unless its controller asks for it too."""
    metadata = obj.get("metadata") or {}
    owners = metadata.get("ownerReferences") or ()
    status = obj.get("status") or {}
    if any(owner.get("controller") for owner in owners) or status.get("phase") in _ENDED:
        return
    try:
        for pod in find_pods(obj):
            yield from resource_uses(pod, prefixes, namespace="default")
    except InvalidManifest:
        return  # it can't run
