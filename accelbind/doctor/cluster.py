"""The cluster that all cluster checks of `accelbind doctor` share, and its API server."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeAlias, TypeVar

from accelbind.doctor.model import CheckTarget, Line, Unseen, ok, unseen
from accelbind.kubectl import query
from services.admission.mutate import Policy
from services.kube.access import Access
from services.kube.client import FORBIDDEN, NOT_FOUND, BadStatus, ClusterClient
from services.kube.lists import MAX_SURVEY, decode_object, list_objects
from services.mappings.kinds import ACCELERATOR, TABLE
from services.names import DEVICE_DOMAIN, UNIT_RESOURCE
from services.process.errors import ClusterError
from services.process.text import plain

T = TypeVar("T")
Json: TypeAlias = dict[str, Any]

API_SERVER: Final = "cluster.api-server"
"""The id of the check that says why the API server can't be queried."""
APPLY: Final = (
    "apply the overlay again: kubectl apply --server-side -k OVERLAY, or run helm upgrade"
)


class Cluster(CheckTarget):
    """A cluster, whose methods raise `Unseen` for what we may not read, and `ClusterError`."""

    def __init__(self, access: Callable[[], Access], namespace: str, policy: Policy) -> None:
        super().__init__()
        self.namespace = namespace
        self.policy = policy
        """The settings of the webhook."""
        self.prefixes = policy.prefixes
        """The domains of the names that the webhook replaces, with a slash."""
        self.resources = (*policy.prefixes, UNIT_RESOURCE, f"{DEVICE_DOMAIN}/")
        """How the names of our resources begin."""
        self._access = access

    def get(self, path: str) -> Json | None:
        """The object at a path, None if there is none."""
        return self.query(lambda client: _get(client, path))

    def items(self, path: str, keep: Callable[[Json], Json | None] = dict) -> list[Json]:
        """The objects of a list, as far as `keep` returns them; none if it does not exist."""

        async def work(client: ClusterClient) -> list[Json]:
            try:
                return await list_objects(client, path, keep, most=MAX_SURVEY)
            except BadStatus as error:
                if error.status == NOT_FOUND:
                    return []
                raise

        return self.query(work)

    def query(self, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """The result of a function that is given a client."""
        # If the API server can't be reached, one check says why.
        try:
            self.once(Cluster.read_version)
        except ClusterError as error:
            raise Unseen(f"cannot query the API server: see {API_SERVER}") from error
        return self._query(work)

    def read_version(self) -> str:
        """The API server's version; empty if it is unknown."""
        answer = self._query(lambda client: _get(client, "/version")) or {}
        return plain(str(answer.get("gitVersion", "")))

    def _find_access(self) -> Access:
        return self._access()

    def _query(self, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
        access = self.once(Cluster._find_access)

        try:
            return query(access, work)
        except ClusterError as error:
            status = error if isinstance(error, BadStatus) else error.__cause__
            if isinstance(status, BadStatus) and status.status == FORBIDDEN:
                raise Unseen(str(error)) from error
            raise


async def _get(client: ClusterClient, path: str) -> Json | None:
    body = await client.get(path)
    return None if body is None else await decode_object(body, path)


def check_api_server(cluster: Cluster) -> Iterator[Line]:
    """Does the API server answer?"""
    try:
        version = cluster.once(Cluster.read_version)
    except ClusterError as error:
        yield unseen(
            str(error), "check --kubeconfig and --context; kubectl get --raw /version should work"
        )
        return
    yield ok(f"it answers: Kubernetes {version or 'of unknown version'}")


def read_targets(cluster: Cluster) -> frozenset[str]:
    """The resources that Accelerators stand for. Raises as `Cluster.get`."""
    kind = TABLE[ACCELERATOR]
    specs = [
        part(item, "spec") for item in cluster.items(f"/apis/{kind.api_version}/{kind.plural}")
    ]
    return frozenset(
        str(named.get("resource"))
        for spec in specs
        for named in (part(spec, "target"), *(spec.get("alsoRequest") or ()))
    )


def part(item: Json, *names: str) -> Json:
    """An object within an object; empty if it is missing or null."""
    for name in names:
        item = item.get(name) or {}
    return item


def name_of(item: Json) -> str:
    """The name of an object, for people."""
    return plain(str(part(item, "metadata").get("name")))


def full_name(item: Json) -> str:
    """Namespace and name of an object, for people."""
    return f"{plain(str(part(item, 'metadata').get('namespace')))}/{name_of(item)}"
