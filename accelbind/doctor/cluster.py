"""The cluster that all cluster checks of `accelbind doctor` share, and its API server."""

from collections.abc import Awaitable, Callable, Iterator
from functools import cached_property
from typing import Final, TypeVar

from accelbind.cluster import Json, part, query
from accelbind.doctor.model import Line, Unseen, ok, unseen
from services.admission.mutate import Policy
from services.kube.access import Access
from services.kube.client import FORBIDDEN, BadStatus, ClusterClient
from services.kube.lists import decode_object, survey_objects
from services.mappings.kinds import ACCELERATOR, TABLE
from services.names import DEVICE_DOMAIN, UNIT_RESOURCE
from services.process.errors import ClusterError
from services.process.text import plain

T = TypeVar("T")

APPLY: Final = (
    "apply the overlay again: kubectl apply --server-side -k OVERLAY, or run helm upgrade"
)


class Cluster:
    """A cluster, whose methods raise `Unseen` for what we may not read, and `ClusterError`."""

    def __init__(self, access: Callable[[], Access], namespace: str, policy: Policy) -> None:
        self.namespace = namespace
        self.policy = policy
        """The settings of the webhook."""
        self.prefixes = policy.prefixes
        """The domains of the names that the webhook replaces, with a slash."""
        self.resources = (*policy.prefixes, UNIT_RESOURCE, f"{DEVICE_DOMAIN}/")
        """How the names of our resources begin."""
        self._find_access = access

    @cached_property
    def nodes(self) -> list[Json]:
        """The nodes, as far as checks need them."""
        # Whole nodes have about 20 KB each.
        return self.items("/api/v1/nodes", _node_parts)

    def get(self, path: str) -> Json | None:
        """The object at a path, None if there is none."""
        return self.query(lambda client: _get(client, path))

    def items(self, path: str, keep: Callable[[Json], Json | None] = dict) -> list[Json]:
        """The objects of a list, as far as `keep` returns them; none if it does not exist."""
        return self.query(lambda client: survey_objects(client, path, keep))

    def query(self, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """The result of a function that is given a client."""
        try:
            return query(self._access, work)
        except ClusterError as error:
            status = error if isinstance(error, BadStatus) else error.__cause__
            if isinstance(status, BadStatus) and status.status == FORBIDDEN:
                raise Unseen(str(error)) from error
            raise

    @cached_property
    def _access(self) -> Access:
        return self._find_access()


async def _get(client: ClusterClient, path: str) -> Json | None:
    body = await client.get(path)
    return None if body is None else await decode_object(body, path)


def check_api_server(cluster: Cluster) -> Iterator[Line]:
    """Does the API server answer?"""
    try:
        answer = cluster.get("/version") or {}
    except ClusterError as error:
        yield unseen(
            str(error), "check --kubeconfig and --context; kubectl get --raw /version should work"
        )
        return
    version = plain(str(answer.get("gitVersion") or "of unknown version"))
    yield ok(f"it answers: Kubernetes {version}")


def read_targets(cluster: Cluster) -> frozenset[str]:
    """The resources that Accelerators stand for. Raises as `Cluster.get`."""
    kind, found = TABLE[ACCELERATOR], set[str]()
    for item in cluster.items(f"/apis/{kind.api_version}/{kind.plural}"):
        spec = part(item, "spec")
        named = (part(spec, "target"), *(spec.get("alsoRequest") or ()))
        found.update(str(each.get("resource")) for each in named)
    return frozenset(found)


def name_of(item: Json) -> str:
    """The name of an object, for people."""
    return plain(str(part(item, "metadata").get("name")))


def full_name(item: Json) -> str:
    """Namespace and name of an object, for people."""
    return f"{plain(str(part(item, 'metadata').get('namespace')))}/{name_of(item)}"


def _node_parts(node: Json) -> Json:
    metadata, status = part(node, "metadata"), part(node, "status")
    return {
        "metadata": {name: metadata.get(name) for name in ("name", "labels")},
        "spec": {"taints": part(node, "spec").get("taints")},
        "status": {name: status.get(name) for name in ("capacity", "allocatable")},
    }
