"""The API server stand-in: composed, started, controlled and stopped.

async with ApiServerStandIn(directory) as api:
    client = Client(api.kubeconfig_path)
    api.seed({"apiVersion": "fpga.intel.com/v2", "kind": "FpgaRegion", …})
    with api.faults.failing(429, count=20, retry_after=1):
        …
    api.compact()                      # watches of older revisions get 410
    api.cut_watches()                  # in the middle of a line
    async with api.away():             # connections refused, then back on the same port
        …
"""

import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from simulator.apiserver import tls
from simulator.apiserver.admission import Admission
from simulator.apiserver.api import Api, Seen
from simulator.apiserver.asking import timestamp
from simulator.apiserver.audit import AuditLog
from simulator.apiserver.definitions import DefinitionController
from simulator.apiserver.faults import Faults
from simulator.apiserver.http_server import HttpServer
from simulator.apiserver.identity import Tokens
from simulator.apiserver.kubeconfig import kubeconfig, write_kubeconfig
from simulator.apiserver.namespaces import INITIAL, NamespaceController
from simulator.apiserver.resources import NAMESPACES, Resource, ResourceTable
from simulator.apiserver.scheduler import Scheduler
from simulator.apiserver.store import Store
from simulator.apiserver.tls import ServingPair
from simulator.apiserver.watching import Watch
from simulator.apiserver.wire import Json, decode
from simulator.apiserver.writing import Writer


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _new_uid() -> str:
    return str(uuid4())


@dataclass(frozen=True, slots=True)
class Options:
    """How a stand-in is set up.

    Args:
        host: address to listen on, and the one in the kubeconfig.
        port: 0 for any free one.
        token: the administrator's bearer token; made up if empty.
        names: further names and addresses the own certificate is valid for.
        pair: certificate and key to serve with instead of an own one.
        services: `host:port` of Services that webhook configurations name.
        schedule: whether pods are bound to nodes.
        bookmark_interval: seconds between the bookmarks of a watch.
        history: changes of each resource that can be watched again.
        revision: where resource versions start.
        now: the clock.
        new_uid: makes the uids of objects and reviews.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str = ""
    names: Sequence[str] = ("localhost",)
    pair: ServingPair | None = None
    services: Mapping[str, str] = field(default_factory=dict)
    schedule: bool = True
    bookmark_interval: float = 60.0
    history: int = 20_000
    revision: int = 1
    now: Callable[[], datetime] = _utc_now
    new_uid: Callable[[], str] = _new_uid


class ApiServerStandIn:
    """An API server without etcd, in this process."""

    def __init__(
        self,
        directory: Path,
        options: Options = Options(),
        *,
        kubeconfig_path: Path | None = None,
    ) -> None:
        self.options = options
        self.kubeconfig_path = kubeconfig_path or directory / "kubeconfig"
        self.store = Store(history=options.history, revision=options.revision)
        self.table = ResourceTable()
        self.tokens = Tokens(options.token)
        self.faults = Faults()
        self.audit = AuditLog(directory / "audit.jsonl")
        self._pair = options.pair or tls.make_pair((options.host, *options.names))
        self._context = self._pair.context()
        self.admission = Admission(self.store, options.services, options.new_uid)
        self.scheduler = Scheduler(self.store, now=options.now)
        writer = Writer(self.store, self.admission, now=options.now, new_uid=options.new_uid)
        self._namespaces = NamespaceController(self.store, self.table, writer)
        self._definitions = DefinitionController(self.store, self.table, now=options.now)
        self._api = Api(
            store=self.store,
            table=self.table,
            writer=writer,
            tokens=self.tokens,
            audit=self.audit,
            faults=self.faults,
            bind=self.scheduler.bind,
            now=options.now,
            bookmark_interval=options.bookmark_interval,
        )
        self._server = HttpServer(self._api.handle)
        for resource in self.table:
            self.store.shelf(resource)
        for name in INITIAL:
            self.seed(_namespace(name, options))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, write the kubeconfig, and start the scheduler."""
        self._namespaces.start()
        self._definitions.start()
        if self.options.schedule:
            self.scheduler.start()
        await self._server.listen(self.options.host, self.options.port, self._context)
        self.write_kubeconfig()

    async def stop(self, grace: float = 2.0) -> None:
        """End watches properly, finish running requests, and close everything."""
        self._api.closing = True
        self.end_watches()
        await self._server.close(grace)
        await self.scheduler.stop()
        self._namespaces.stop()
        self._definitions.stop()
        await self.admission.client.close()
        self.audit.close()

    # What tests look at.

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"https://{self.options.host}:{self.port}"

    @property
    def authority(self) -> bytes:
        """PEM of the CA that clients are to trust."""
        return self._pair.authority

    @property
    def watches(self) -> frozenset[Watch]:
        """The watches that are open."""
        return frozenset(self._api.watches)

    @property
    def seen(self) -> Sequence[Seen]:
        """The newest requests that were answered, oldest first."""
        return tuple(self._api.seen)

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._server.connections)

    def kubeconfig(self) -> Json:
        """The kubeconfig as an object."""
        return kubeconfig(self.url, self.authority, self.tokens.admin)

    def write_kubeconfig(self) -> None:
        """Writes the kubeconfig (and the token's file) as it is now."""
        write_kubeconfig(self.kubeconfig_path, self.kubeconfig())

    # Steering what is stored, from beside the API.

    def resource(self, item: Json) -> Resource:
        """The resource of an object, by its kind (KeyError for an unknown one)."""
        resource = self.table.of_kind(item["kind"])
        if resource is None:
            raise KeyError(item["kind"])
        return resource

    def seed(self, item: Json) -> None:
        """Add an object as if it had always existed: unchecked, without history.

        What it lacks of uid, resourceVersion, creationTimestamp and generation is made up.
        """
        resource = self.resource(item)
        item = item | {"metadata": dict(item["metadata"])}
        metadata = item["metadata"]
        metadata.setdefault("uid", self.options.new_uid())
        metadata.setdefault("creationTimestamp", timestamp(self.options.now()))
        if resource.namespaced:
            metadata.setdefault("namespace", "default")
        if resource.counts_generations:
            metadata.setdefault("generation", 1)
        self.store.seed(resource, item)

    def put(self, item: Json) -> Json:
        """Creates or replaces an object unchecked, as a change that watches see."""
        resource = self.resource(item)
        item = item | {"metadata": dict(item["metadata"])}
        if resource.namespaced:
            item["metadata"].setdefault("namespace", "default")
        item["metadata"].setdefault("uid", self.options.new_uid())
        return self.store.write(resource, item)

    def drop(self, kind: str, name: str, namespace: str = "default") -> None:
        """Deletes an object at once, as a change that watches see."""
        resource = self.resource({"kind": kind})
        self.store.remove(resource, resource.path(namespace, name))

    def get(self, kind: str, name: str, namespace: str = "default") -> Json | None:
        """A copy of an object, None where there is none."""
        resource = self.resource({"kind": kind})
        return self.store.get(resource, resource.path(namespace, name))

    def objects(self, kind: str) -> list[Json]:
        """Copies of all objects of a kind."""
        return [
            decode(data)
            for data in self.store.shelf(self.resource({"kind": kind})).objects.values()
        ]

    # Steering what goes wrong.

    def compact(self) -> None:
        """Forgets the past: watches and lists that begin earlier are answered with 410."""
        self.store.compact()

    def end_watches(self) -> None:
        """Ends all open watches properly."""
        for watch in self.watches:
            watch.end()

    def cut_watches(self) -> None:
        """Drop the connections of all open watches in the middle of a line."""
        for watch in self.watches:
            watch.cut()

    def silence_watches(self) -> None:
        """Keep all open watches connected, and send nothing more."""
        for watch in self.watches:
            watch.silence()

    def drop_connections(self) -> None:
        """Drop every connection."""
        self._server.drop_connections()

    def change_token(self, token: str = "") -> str:
        """Accept only a new token, and write it where clients find it."""
        token = self.tokens.replace_admin(token or secrets.token_urlsafe(24))
        self.write_kubeconfig()
        return token

    @contextlib.asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Refuse and drop connections inside the block; then listen on the same port."""
        await self._server.refuse()
        self.drop_connections()
        try:
            yield
        finally:
            await self._server.listen(self.options.host, self.port, self._context)


def _namespace(name: str, options: Options) -> Json:
    return {
        "kind": NAMESPACES.kind,
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "uid": options.new_uid(),
            "labels": {"kubernetes.io/metadata.name": name},
        },
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }
