"""The API server stand-in: composed, started, controlled and stopped.

async with ApiServerStandIn(directory) as api:
    api.put({"apiVersion": "fpga.intel.com/v2", "kind": "FpgaRegion", …})
    with api.faults.failing(429, count=20, retry_after=1):
        …
    api.compact()                      # watches of older revisions get 410
    api.cut_watches()                  # in the middle of a line
    async with api.away():             # connections refused, then back on the same port
        …
"""

import asyncio
import contextlib
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_urlsafe
from typing import Self

from services.kube.access import Access
from services.process.files import replace_file
from simulator.apiserver import crd
from simulator.apiserver.admission import Admission, WebhookClient
from simulator.apiserver.app import App, SeenRequest
from simulator.apiserver.faults import Faults
from simulator.apiserver.http_server import HttpServer, make_pair
from simulator.apiserver.reading import Watch
from simulator.apiserver.resources import DEFINITIONS, Json, ResourceTable
from simulator.apiserver.scheduler import Scheduler
from simulator.apiserver.store import Store, stamped
from simulator.apiserver.writing import Writer

_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_NAME = "accelbind-simulator"


@dataclass(frozen=True, slots=True)
class Options:
    host: str = "127.0.0.1"
    """Address to listen on, and the one in the kubeconfig."""
    port: int = 0
    names: Sequence[str] = ("localhost",)
    """Further names and addresses that its certificate is valid for."""
    services: Mapping[str, str] = field(default_factory=dict)
    """`host:port` of Services that webhook configurations name."""
    dropped: Sequence[str] = ()
    """Fields of devices in ResourceSlices that it drops, as a server with features off."""


class ApiServerStandIn:
    """An API server without etcd, in this process."""

    def __init__(self, directory: Path, options: Options = Options()) -> None:
        self.options = options
        self.kubeconfig_path = directory / "kubeconfig"
        self._directory = directory
        self.store = Store()
        self.table = ResourceTable()
        self.faults = Faults()
        pair = make_pair((options.host, *options.names))
        self.authority = pair.authority
        """PEM of the certificate that clients are to trust."""
        self._context = pair.context
        self._webhooks = WebhookClient(options.services)
        admission = Admission(self.store, self._webhooks)
        self._app = App(
            store=self.store,
            table=self.table,
            writer=Writer(self.store, self.table, admission, options.dropped),
            token=token_urlsafe(),
            faults=self.faults,
        )
        self._server = HttpServer(self._app.handle)
        self.compact = self.store.compact
        self.drop_connections = self._server.drop_connections
        self._scheduler: asyncio.Task[None] | None = None
        crd.serve_definitions(self.store, self.table)
        for name in _NAMESPACES:
            labels = {"kubernetes.io/metadata.name": name}
            namespace = {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}
            self.put(namespace | {"status": {"phase": "Active"}})

    async def __aenter__(self) -> Self:
        """Listen, write credentials, schedule."""
        self._scheduler = asyncio.create_task(Scheduler(self.store).run_forever())
        await self._listen()
        self.write_credentials()
        return self

    async def _listen(self) -> None:
        """Listen, on the same port each time."""
        port = self.port or self.options.port
        await self._server.listen_on(self._directory / "api.sock")
        await self._server.listen(self.options.host, port, self._context)

    async def __aexit__(self, *_: object) -> None:
        """End watches properly, finish running requests, and close everything."""
        self.end_watches()
        await self._server.close()
        if self._scheduler is not None:
            self._scheduler.cancel()
            await asyncio.gather(self._scheduler, return_exceptions=True)
        await self._webhooks.aclose()

    # What tests read.

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def url(self) -> str:
        return f"https://{self.options.host}:{self.port}"

    @property
    def address(self) -> str:
        """The address where no credentials are needed, as of `kubectl proxy`."""
        return f"unix:{self._directory}/api.sock"

    @property
    def access(self) -> Access:
        """Access by the service account whose files it writes, as in a pod."""
        return Access(self.url, self._directory)

    @property
    def token(self) -> str:
        return self._app.token

    @property
    def watches(self) -> frozenset[Watch]:
        return frozenset(self._app.watches)

    @property
    def seen(self) -> Sequence[SeenRequest]:
        """The newest requests that were answered, oldest first."""
        return tuple(self._app.seen)

    def write_credentials(self) -> None:
        data = b64encode(self.authority).decode()
        config: Json = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": _NAME, "cluster": {"server": self.url, "certificate-authority-data": data}}
            ],
            "users": [{"name": _NAME, "user": {"token": self.token}}],
            "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME}}],
            "current-context": _NAME,
        }
        content = json.dumps(config, indent=2) + "\n"  # JSON is YAML
        replace_file(self.kubeconfig_path, content.encode(), mode=0o600)
        replace_file(self._directory / "ca.crt", self.authority, mode=0o600)
        replace_file(self._directory / "token", self.token.encode(), mode=0o600)

    # Changing what is stored, from beside the API.

    def put(self, item: Json) -> Json:
        """Create or replace an object unchecked, as a change that watches receive.

        What it lacks of apiVersion, uid, creationTimestamp and generation is made up.
        """
        resource, metadata = self.table.of_kind(item["kind"]), dict(item["metadata"])
        if resource is DEFINITIONS:
            item = crd.established(item)
        if resource.namespaced:
            metadata.setdefault("namespace", "default")
        completed = {"apiVersion": resource.api_version} | item
        return self.store.write(resource, completed | {"metadata": stamped(metadata)})

    def drop(self, kind: str, name: str, namespace: str = "default") -> None:
        """Delete an object at once, as a change that watches receive."""
        resource = self.table.of_kind(kind)
        self.store.remove(resource, resource.path(namespace, name))

    def get(self, kind: str, name: str, namespace: str = "default") -> Json | None:
        """A copy of an object, None where there is none."""
        resource = self.table.of_kind(kind)
        return self.store.get(resource, resource.path(namespace, name))

    def objects(self, kind: str) -> list[Json]:
        return list(self.store.all(self.table.of_kind(kind)))

    # Faults of connections and watches.

    def end_watches(self) -> None:
        for watch in self.watches:
            watch.end()

    def cut_watches(self) -> None:
        """Drop the connections of all open watches in the middle of a line."""
        for watch in self.watches:
            watch.cut()

    def change_token(self) -> None:
        """Accept only a new token, and write it where clients find it."""
        self._app.token = token_urlsafe()
        self.write_credentials()

    @contextlib.asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Refuse and drop connections inside the block; then listen on the same port."""
        self._server.refuse()
        self.drop_connections()
        try:
            yield
        finally:
            await self._listen()
