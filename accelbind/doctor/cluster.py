"""The cluster that all cluster checks of `accelbind doctor` share, and its API server.

Each check asks by itself, bounded in time and size. If the API server can't be reached, one check
says why, and all others say that they could not be made.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from accelbind.doctor.model import Line, Subject, Unseen, failed, ok, warning
from services.kube.client import BadStatus, ClusterClient, HttpResponse
from services.kube.config import Access, load_config
from services.process.errors import ClusterError
from services.process.text import plain

T = TypeVar("T")
Json: TypeAlias = dict[str, Any]
Params: TypeAlias = Mapping[str, str | int]

APPLY: Final = (
    "apply the overlay again: kubectl apply --server-side -k OVERLAY, or run helm upgrade"
)
OLDEST: Final = (1, 30)
"""The first version with all that the manifests need: matchConditions, admission policies."""
NEWEST: Final = (1, 36)
"""The last version that was tested."""
PAGE: Final = 200
MAX_OBJECTS: Final = 20_000

_FORBIDDEN: Final = 403
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")


class _Unconfigured(ClusterError):
    """No kubeconfig was found, or it can't be used.

    Args:
        problem: What is wrong.
        todo: How to fix it.
    """

    def __init__(self, problem: str, todo: str) -> None:
        super().__init__(problem)
        self.todo = todo


class Cluster(Subject):
    """A cluster.

    Args:
        kubeconfig: How to reach its API server; None: as the environment says.
        namespace: Where accelbind runs.
        prefixes: The domains of its resources, each with its slash.
        webhook_address: Where the webhook answers, if that is not as its configuration says.
    """

    def __init__(
        self,
        kubeconfig: Path | None,
        namespace: str,
        prefixes: tuple[str, ...],
        webhook_address: tuple[str, int] | None = None,
    ) -> None:
        super().__init__()
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self.prefixes = prefixes
        self.webhook_address = webhook_address

    def get(self, path: str) -> Json | None:
        """The object at a path, None if there is none.

        Raises:
            Unseen: We may not read it.
            ClusterError: It can't be read.
        """
        return self.query(lambda client: _get(client, path, {}))

    def items(
        self, path: str, *, keep: Callable[[Json], Json | None] = dict, **params: str | int
    ) -> list[Json]:
        """The objects of a list; none if the cluster does not serve it.

        Args:
            path: The list's.
            keep: Returns what to keep of an object, None for nothing: clusters may be large.
            params: Query parameters.

        Raises:
            Unseen: We may not read it.
            ClusterError: It can't be read.
        """
        return self.query(lambda client: _items(client, path, keep, params))

    def post(self, path: str, bodies: Sequence[Json]) -> list[HttpResponse]:
        """The answers to some questions. Raises as `get`."""

        async def work(client: ClusterClient) -> list[HttpResponse]:
            return [await client.request("POST", path, body=body) for body in bodies]

        return self.query(work)

    def query(self, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """What a function returns that is given a client. Raises as `get`."""
        try:
            self.once(Cluster.read_version)
        except ClusterError as error:
            raise Unseen("cannot query the API server: see cluster.api-server") from error
        return self._query(work)

    def _query(self, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
        async def whole() -> T:
            async with ClusterClient(_access(self.kubeconfig)) as client:
                return await work(client)

        try:
            return asyncio.run(whole())
        except ClusterError as error:
            status = error if isinstance(error, BadStatus) else error.__cause__
            if isinstance(status, BadStatus) and status.status == _FORBIDDEN:
                raise Unseen(str(error)) from error
            raise

    def read_version(self) -> Json:
        """What the API server says of its version. Raises as `get`."""
        return self._query(lambda client: _get(client, "/version", {})) or {}


def check_api_server(cluster: Cluster) -> Iterator[Line]:
    """Whether it answers, and its version."""
    try:
        version = str(cluster.once(Cluster.read_version).get("gitVersion", ""))
    except _Unconfigured as error:
        yield failed(str(error), error.todo)
        return
    except ClusterError as error:
        yield failed(str(error), "try kubectl get --raw /version with the same --kubeconfig")
        return
    found = _VERSION.match(version)
    release = (int(found[1]), int(found[2])) if found else NEWEST
    if release < OLDEST:
        yield warning(
            f"Kubernetes {plain(version)} is older than 1.{OLDEST[1]}",
            "the manifests need matchConditions and admission policies: docs/migration.md",
        )
    yield ok(f"it answers: Kubernetes {plain(version) or 'of unknown version'}")


def metadata(item: Json) -> Json:
    """The metadata of an object."""
    found = item.get("metadata")
    return found if isinstance(found, dict) else {}


def name_of(item: Json) -> str:
    """The name of an object, for people."""
    return plain(str(metadata(item).get("name")))


def _access(kubeconfig: Path | None) -> Access:
    try:
        access = load_config(kubeconfig)
    except ClusterError as error:
        raise _Unconfigured(str(error), "check the path and the content of the file") from error
    if access is None:
        raise _Unconfigured("no kubeconfig was found", "set --kubeconfig or $KUBECONFIG")
    return access


async def _get(client: ClusterClient, path: str, params: Params) -> Json | None:
    body = await client.get(path, params)
    return None if body is None else _object(body, path)


async def _items(
    client: ClusterClient, path: str, keep: Callable[[Json], Json | None], params: Params
) -> list[Json]:
    found: list[Json] = []
    query: dict[str, str | int] = {"limit": PAGE, **params}
    while True:
        page = await _get(client, path, query)
        if page is None:
            return found
        kept = (keep(item) for item in page.get("items") or () if isinstance(item, dict))
        found += [item for item in kept if item is not None]
        token = (page.get("metadata") or {}).get("continue")
        if not token or len(found) > MAX_OBJECTS:
            return found
        query["continue"] = str(token)


def _object(body: bytes, path: str) -> Json:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ClusterError(f"the answer to GET {path} is not JSON: {plain(str(error))}") from error
    if not isinstance(value, dict):
        raise ClusterError(f"the answer to GET {path} is not an object")
    return value
