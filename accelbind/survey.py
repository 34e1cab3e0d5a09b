"""What a cluster holds that has to do with mappings: read once, page by page, for whoever checks.

Unlike the reflector this looks at one moment only, and at more than mappings: at what nodes offer,
and at what pods and workloads ask for. What we may not list is said, with the permission that is
missing; what a cluster doesn't serve isn't missed.
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
"""How many times a list is begun: it may expire while it is read, or have too long pages."""
_PAGE: Final = 200
_ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind and where it is listed."""

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
        """What a rule of RBAC calls it, as kubectl writes it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_GROUP, _VERSION = API_VERSION.split("/")
_MAPPINGS: Final = (
    _Kind(ACCELERATOR_FUNCTION, _GROUP, _VERSION, "acceleratorfunctions"),
    _Kind(FPGA_REGION, _GROUP, _VERSION, "fpgaregions"),
)
_NODES: Final = _Kind("Node", "", "v1", "nodes")
_ASKING: Final = (
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
    """What was found.

    Attributes:
        index: the mappings.
        advertised: how many of each resource nodes can give; None if that couldn't be read.
        wishes: what pods and workloads ask for.
        missing: a sentence for each thing that we may not look at.
    """

    index: MappingIndex
    advertised: dict[str, int] | None = None
    wishes: list[ResourceUse] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


async def survey(
    client: ClusterClient, prefixes: tuple[str, ...], *, namespace: str | None = None
) -> Survey:
    """Look at a cluster.

    Args:
        client: whom to ask.
        prefixes: our domains, each with its slash.
        namespace: the only one to look at; None for all.

    Raises:
        ClusterError: there is no answer, or the mappings can't be read.
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
    for kind in _ASKING:
        asked = await _listed(
            client, kind, namespace, lambda obj: list(_wishes(obj, prefixes)), found.missing
        )
        found.wishes += [wish for wishes in asked or () for wish in wishes]
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
    """What to do about mappings that can't be listed."""
    if error.status == FORBIDDEN:
        return ClusterError(f"{error}: {_permission(kind, namespace)}")
    if error.status == NOT_FOUND:
        return ClusterError(f"{error}: are the definitions there (manifests/crd)?")
    return error


def _permission(kind: _Kind, namespace: str | None) -> str:
    where = f"in namespace {namespace}" if namespace else "in the whole cluster"
    return f'RBAC must allow us "list" on {kind.label} {where}'


def _wishes(obj: dict[str, Any], prefixes: tuple[str, ...]) -> Iterator[ResourceUse]:
    """Yield what an object asks for; what a controller made is told of by the controller."""
    metadata = obj.get("metadata") or {}
    owners = metadata.get("ownerReferences") or ()
    status = obj.get("status") or {}
    if any(owner.get("controller") for owner in owners) or status.get("phase") in _ENDED:
        return
    try:
        for found in find_pods(obj):
            yield from resource_uses(found, prefixes, namespace="default")
    except InvalidManifest:
        return  # nothing of it could run


async def _listed(
    client: ClusterClient,
    kind: _Kind,
    namespace: str | None,
    read: Callable[[dict[str, Any]], T],
    missing: list[str],
) -> list[T] | None:
    """What is there of a kind, None if we may not look or the cluster doesn't have it."""
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
    """What is read of each object of a kind, from one list."""
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
            f"the answer to GET {path} is no list: {plain(str(error), 200)}"
        ) from error
