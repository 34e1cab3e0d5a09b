"""A cluster's mappings, what its nodes offer, and what its pods and workloads ask for.

Each list is read once, page by page.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from accelbind.claim_objects import TEMPLATE, ClaimObjects, names_claims, read_claim_objects
from accelbind.cluster import DEFAULT_NAMESPACE, NO_CLUSTER, Json, Reader, Target
from accelbind.output import warn
from accelbind.published import add_published, read_published
from services.admission.findings import ResourceUse, add_advertised, resource_uses
from services.admission.mutate import Policy
from services.devices.dra import API_VERSION
from services.kube.client import ClusterClient, segment
from services.mappings.folder import FolderSnapshot, load_folder
from services.mappings.index import MappingIndex, build_index
from services.mappings.source import list_entries
from services.pods.manifests import find_pods
from services.process.errors import ExternalFailure, InvalidManifest, InvalidSettings

T = TypeVar("T")

ENDED: Final = ("Succeeded", "Failed")


class _Kind(NamedTuple):
    """A kind, and where it is listed."""

    kind: str
    api_version: str

    @property
    def plural(self) -> str:
        kind = self.kind.lower()
        return f"{kind}es" if kind.endswith("s") else f"{kind}s"

    def path(self, namespace: str | None) -> str:
        root = "/apis" if "/" in self.api_version else "/api"
        within = f"/namespaces/{segment(namespace)}" if namespace else ""
        return f"{root}/{self.api_version}{within}/{self.plural}"


_NODES: Final = _Kind("Node", "v1")
_SLICES: Final = _Kind("ResourceSlice", API_VERSION)
_CLASSES: Final = _Kind("DeviceClass", API_VERSION)
_TEMPLATES: Final = _Kind(TEMPLATE, API_VERSION)
_POD_KINDS: Final = (
    *(_Kind(kind, "v1") for kind in ("Pod", "ReplicationController")),
    *(_Kind(kind, "apps/v1") for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")),
    *(_Kind(kind, "batch/v1") for kind in ("Job", "CronJob")),
)


@dataclass(slots=True)
class Survey:
    """Mappings, resources and requests of a cluster."""

    index: MappingIndex
    """The mappings."""
    advertised: dict[str, int] | None = None
    """The number of devices of each resource; None if what nodes offer can't be listed."""
    uses: list[ResourceUse] = field(default_factory=list)
    """What pods and workloads ask for."""
    claims: ClaimObjects | None = None
    """The objects that names of claims need; None if they can't be listed, or no name needs one."""
    missing: list[str] = field(default_factory=list)
    """A sentence for each kind that we may not list."""


async def survey(client: ClusterClient, policy: Policy, *, namespace: str | None) -> Survey:
    """Read a cluster, or what one namespace of it has."""
    namespaces = {namespace, policy.shared_namespace or namespace} if namespace else {None}
    result = Survey(await read_index(client, namespaces))

    reader = Reader(client, result.missing)

    async def listed(kind: _Kind, within: str | None, read: Callable[[Json], T]) -> list[T] | None:
        """The results for the objects of a kind; None if they may not be listed."""
        about = {"apiVersion": kind.api_version, "kind": kind.kind}  # items of a list don't say it
        path = kind.path(within)
        return await reader.listed(path, lambda obj: read(about | obj), what=kind.plural)

    nodes = await listed(_NODES, None, lambda node: add_advertised({}, node, policy.fpga_prefixes))
    slices, classes = await listed(_SLICES, None, dict), await listed(_CLASSES, None, dict)
    if nodes is not None and slices is not None and classes is not None:
        totals: Counter[str] = Counter()
        for offered in nodes:
            totals.update(offered)
        add_published(totals, read_published(slices, classes), policy.fpga_prefixes)
        result.advertised = totals
        if names_claims(result.index):
            templates = await listed(_TEMPLATES, namespace, dict)
            if templates is not None:
                result.claims = read_claim_objects(templates, classes, slices)
    for kind in _POD_KINDS:
        for uses in await listed(kind, namespace, lambda obj: [*_uses(obj, policy.prefixes)]) or ():
            result.uses += uses
    return result


async def read_index(client: ClusterClient, namespaces: Iterable[str | None]) -> MappingIndex:
    """The mappings of some namespaces; None is all of them."""
    return build_index(
        [entry for namespace in namespaces for entry in await list_entries(client, namespace)]
    )


def read_folder(folder: Path) -> FolderSnapshot:
    """The mappings of a folder, and its problems.

    Raises:
        InvalidSettings: It or a file can't be read.
    """
    try:
        snapshot = load_folder(folder)
    except ExternalFailure as error:  # the asker's fault
        advice = ": name the folder that has this file" if folder.is_file() else ""
        raise InvalidSettings(f"{error}{advice}") from error
    if snapshot.unread:
        raise InvalidSettings(f"the folder of mappings {folder}: {'; '.join(snapshot.unread[:4])}")
    return snapshot


def read_mappings(
    folder: Path | None, target: Target, namespaces: Iterable[str | None]
) -> MappingIndex:
    """The mappings of a folder, whose problems are shown, or of namespaces of a cluster.

    Raises:
        InvalidSettings: The folder can't be read, or both are given.
        ClusterError: The cluster can't be read, or none is known.
    """
    if folder is not None:
        if target.is_named:
            raise InvalidSettings("--mappings excludes --api-server, --kubeconfig and --context")
        snapshot = read_folder(folder)
        for problem in snapshot.problems:
            warn(problem)
        return snapshot.index
    if not target.is_known:
        raise InvalidSettings(f"{NO_CLUSTER}, or use --mappings")

    # Not of all namespaces: users often may list few.
    return target.query(lambda client: read_index(client, namespaces))


def _uses(obj: Json, prefixes: tuple[str, ...]) -> Iterator[ResourceUse]:
    metadata = obj.get("metadata") or {}
    owners = metadata.get("ownerReferences") or ()
    status = obj.get("status") or {}
    # What has a controller asks for what that asks for too.
    if any(owner.get("controller") for owner in owners) or status.get("phase") in ENDED:
        return
    try:
        for pod in find_pods(obj):
            yield from resource_uses(pod, prefixes, namespace=DEFAULT_NAMESPACE)
    except InvalidManifest:
        return  # it can't run
