"""A cluster's mappings, what its nodes offer, and what its pods and workloads ask for.

Unlike the reflector it lists everything once, page by page. What we may not list is reported with
the missing permission; a kind that the cluster does not serve is not.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from services.admission.findings import ResourceUse, add_advertised, resource_uses
from services.kube.client import FORBIDDEN, NOT_FOUND, BadStatus, ClusterClient, TooLong
from services.mappings.index import MappingIndex, build_index
from services.mappings.model import (
    ACCELERATOR_FUNCTION,
    API_VERSION,
    FPGA_REGION,
    Entry,
    read_entry,
)
from services.pods.manifests import find_pods
from services.process.errors import ClusterError, InvalidManifest
from services.process.text import plain

T = TypeVar("T")

_GONE: Final = 410
_ATTEMPTS: Final = 5
"""Starts of a list: it may expire while it is read, or its pages may be too long."""
_PAGE: Final = 200
_ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind, and where it is listed."""

    kind: str
    group: str
    version: str
    plural: str

    def path(self, namespace: str | None) -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        return f"{root}{within}/{self.plural}"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def label(self) -> str:
        """Its name in RBAC rules, as kubectl writes it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_GROUP, _VERSION = API_VERSION.split("/")
_MAPPINGS: Final = (
    _Kind(ACCELERATOR_FUNCTION, _GROUP, _VERSION, "acceleratorfunctions"),
    _Kind(FPGA_REGION, _GROUP, _VERSION, "fpgaregions"),
)
_NODES: Final = _Kind("Node", "", "v1", "nodes")
_POD_KINDS: Final = (
    _Kind("Pod", "", "v1", "pods"),
    _Kind("Deployment", "apps", "v1", "deployments"),
    _Kind("StatefulSet", "apps", "v1", "statefulsets"),
    _Kind("DaemonSet", "apps", "v1", "daemonsets"),
    _Kind("ReplicaSet", "apps", "v1", "replicasets"),
    _Kind("ReplicationController", "", "v1", "replicationcontrollers"),
    _Kind("Job", "batch", "v1", "jobs"),
    _Kind("CronJob", "batch", "v1", "cronjobs"),
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


async def survey(
    client: ClusterClient, prefixes: tuple[str, ...], *, namespace: str | None = None
) -> Survey:
    """Read a cluster, or what one namespace of it has.

    Args:
        client: The API server's.
        prefixes: The domains of the resources, each with its slash.
        namespace: The only one to read; None for all.

    Raises:
        ClusterError: There is no answer, or the mappings can't be listed.
    """
    found = Survey(await read_index(client, [namespace]))
    nodes = await _listed(
        client, _NODES, None, lambda node: add_advertised({}, node, prefixes), found.missing
    )
    if nodes is not None:
        totals: Counter[str] = Counter()
        for offered in nodes:
            totals.update(offered)
        found.advertised = totals
    for kind in _POD_KINDS:
        listed = await _listed(
            client, kind, namespace, lambda obj: list(_uses(obj, prefixes)), found.missing
        )
        found.uses += [use for uses in listed or () for use in uses]
    return found


async def read_index(client: ClusterClient, namespaces: Iterable[str | None]) -> MappingIndex:
    """The mappings of some namespaces; None is all of them.

    Raises:
        ClusterError: There is no answer, or they can't be listed.
    """
    entries: list[Entry] = []
    for kind, namespace in product(_MAPPINGS, namespaces):
        try:
            found = await _items(client, kind, namespace, read_entry)
        except BadStatus as error:
            raise _explained(error, kind, namespace) from error
        entries += filter(None, found)
    return build_index(entries)


def _explained(error: BadStatus, kind: _Kind, namespace: str | None) -> ClusterError:
    """The error of a list of mappings, with what to do about it."""
    if error.status == FORBIDDEN:
        return ClusterError(f"{error}: {_permission(kind, namespace)}")
    if error.status == NOT_FOUND:
        return ClusterError(f"{error}: are the definitions there (manifests/crd)?")
    return error


def _permission(kind: _Kind, namespace: str | None) -> str:
    where = f"in namespace {namespace}" if namespace else "in the whole cluster"
    return f'RBAC must allow us "list" on {kind.label} {where}'


def _uses(obj: dict[str, Any], prefixes: tuple[str, ...]) -> Iterator[ResourceUse]:
    """Yield what an object asks for, unless its controller asks for it too."""
    metadata = obj.get("metadata") or {}
    owners = metadata.get("ownerReferences") or ()
    status = obj.get("status") or {}
    if any(owner.get("controller") for owner in owners) or status.get("phase") in _ENDED:
        return
    try:
        for found in find_pods(obj):
            yield from resource_uses(found, prefixes, namespace="default")
    except InvalidManifest:
        return  # it can't run


async def _listed(
    client: ClusterClient,
    kind: _Kind,
    namespace: str | None,
    read: Callable[[dict[str, Any]], T],
    missing: list[str],
) -> list[T] | None:
    """The objects of a kind; None if we may not list it, or the cluster does not serve it."""
    try:
        return await _items(client, kind, namespace, read)
    except BadStatus as error:
        if error.status == FORBIDDEN:
            missing.append(f"{kind.plural}: {_permission(kind, namespace)}")
        elif error.status != NOT_FOUND:
            raise
    return None


async def _items(
    client: ClusterClient,
    kind: _Kind,
    namespace: str | None,
    read: Callable[[dict[str, Any]], T],
) -> list[T]:
    """The objects of a kind, from one list."""
    path, limit, attempts = kind.path(namespace), _PAGE, _ATTEMPTS
    while True:
        attempts -= 1
        try:
            return [
                read({"apiVersion": kind.api_version, "kind": kind.kind} | obj)
                async for page in client.pages(path, limit=limit)
                for obj in _objects(page, path)
            ]
        except TooLong:
            limit = max(1, limit // 8)
            if not attempts:
                raise
        except BadStatus as error:
            if error.status != _GONE or not attempts:
                raise


class _Page(msgspec.Struct):
    items: list[dict[str, Any]] | None = None


_PAGES: Final = msgspec.json.Decoder(_Page)


def _objects(page: bytes, path: str) -> list[dict[str, Any]]:
    try:
        return _PAGES.decode(page).items or []
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ClusterError(
            f"the answer to GET {path} is not a list: {plain(str(error), 200)}"
        ) from error
