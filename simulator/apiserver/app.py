"""The entry of the stand-in: maps requests to verbs and errors to Status objects.

Whoever has the token may do everything.
"""

from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import structlog

from simulator.apiserver.calls import APPLY, ApiCall, StatusError, internal, not_found
from simulator.apiserver.faults import Faults
from simulator.apiserver.http_server import Cut, Request, Response
from simulator.apiserver.reading import Watch, read_list
from simulator.apiserver.resources import Json, ResourceTable, discover, parse
from simulator.apiserver.store import Store, decode, encode
from simulator.apiserver.tables import table_of
from simulator.apiserver.writing import Writer

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SeenRequest:
    request: Request
    code: int


class App:
    def __init__(
        self, *, store: Store, table: ResourceTable, writer: Writer, token: str, faults: Faults
    ) -> None:
        self._store = store
        self._table = table
        self._writer = writer
        self.token = token
        self._faults = faults
        self.watches: set[Watch] = set()
        self.seen: deque[SeenRequest] = deque(maxlen=20_000)

    async def handle(self, request: Request) -> Response:
        """Answer one request; a crash becomes a 500."""
        try:
            response = await self._faults.before(request)
            if response is None:
                response = await self._answer(request)
        except StatusError as error:
            response = Response(error.code, error.body())
        except Cut:
            self.seen.append(SeenRequest(request, 0))
            raise
        except Exception as error:  # noqa: BLE001 - a bug here must be seen by client and log
            _log.exception("request-crashed", method=request.method, target=request.target)
            crash = internal(f"the stand-in crashed: {error!r}")
            response = Response(crash.code, crash.body())
        self.seen.append(SeenRequest(request, response.status))
        return response

    async def _answer(self, request: Request) -> Response:
        # In the order of a real API server: authentication (401), path (404, 405), then the verb.
        # Whoever may use the socket needs no token, as with `kubectl proxy`.
        if not request.is_local and request.headers.get("authorization") != f"Bearer {self.token}":
            raise StatusError(401, "Unauthorized")
        if document := discover(request.path, self._table):
            return Response(200, encode(document))
        target = parse(request.path, self._table)
        if target is None:
            raise StatusError(404, "the server could not find the requested resource")
        call = ApiCall(target, request)
        if request.method != "GET":
            return await self._write(call)
        if request.is_watch:
            return self._watch(call)
        return self._read(call)

    def _read(self, call: ApiCall) -> Response:
        target = call.target
        if not target.name:
            listed = read_list(self._store, target, call.query, as_table=call.as_table)
            return Response(200, listed + b"\n")
        data = self._store.shelf(target.resource).objects.get(target.path)
        if data is None:
            raise not_found(target.resource, target.name)
        if call.as_table:
            data = encode(table_of(target.resource, [decode(data)], {}))
        return Response(200, data + b"\n")

    def _watch(self, call: ApiCall) -> Response:
        query = dict(call.query)
        if name := call.target.name:
            query["fieldSelector"] = f"metadata.name={name}"
        watch = Watch(self._store, call.target, query)
        return Response(200, stream=self._streamed(watch))

    async def _streamed(self, watch: Watch) -> AsyncGenerator[bytes]:
        self.watches.add(watch)
        try:
            async for piece in watch.stream():
                yield piece
        finally:
            self.watches.discard(watch)

    async def _write(self, call: ApiCall) -> Response:
        try:
            code, item = await self._changed(call)
        except StatusError as error:
            return Response(error.code, error.body(), _warnings(call))
        return Response(code, encode(item) + b"\n", _warnings(call))

    async def _changed(self, call: ApiCall) -> tuple[int, Json]:
        """HTTP status, and the object created, changed or deleted."""
        named = bool(call.target.name)
        is_one_collection = bool(call.target.namespace) or not call.target.resource.namespaced
        match call.request.method:
            case "POST" if not named and is_one_collection:
                return 201, await self._writer.create(call, call.decode())
            case "PUT" if named:
                return 200, await self._writer.replace(call)
            case "PATCH" if named and call.content_type == APPLY:
                return await self._apply(call)
            case "PATCH" if named:
                return 200, await self._writer.patch(call)
            case "DELETE" if named:
                return 200, await self._writer.delete(call)
        raise StatusError(405, "the server does not allow this method on the requested resource")

    async def _apply(self, call: ApiCall) -> tuple[int, Json]:
        """A server-side apply: a merge that creates what is missing, but for a part of it."""
        is_there = call.target.path in self._store.shelf(call.target.resource).objects
        if call.target.subresource or is_there:
            return 200, await self._writer.patch(call)
        return 201, await self._writer.create(call, call.applied())


def _warnings(call: ApiCall) -> tuple[tuple[str, str], ...]:
    return tuple(("Warning", f'299 - "{_quoted(text)}"') for text in call.warnings)


def _quoted(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line.replace("\\", "\\\\").replace('"', '\\"')
