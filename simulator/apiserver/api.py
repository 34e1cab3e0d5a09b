"""The entry of the stand-in: maps requests to verbs and errors to Status objects.

The order is that of a real API server: authentication (401), the path (404, 405), authorization
(403), then the verb. Every answer about objects carries the warnings of its request.
"""

import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

import structlog

from simulator.apiserver import discovery, paths, reading, status, wire
from simulator.apiserver.asking import VERBS, ApiCall, timestamp
from simulator.apiserver.audit import AuditLog
from simulator.apiserver.faults import Faults
from simulator.apiserver.http_server import Cut, Request, Response
from simulator.apiserver.identity import Tokens
from simulator.apiserver.patches import APPLY
from simulator.apiserver.resources import PODS, ResourceTable
from simulator.apiserver.status import StatusError
from simulator.apiserver.store import Store
from simulator.apiserver.watching import Watch
from simulator.apiserver.wire import Json
from simulator.apiserver.writing import Writer

_log = structlog.get_logger(__name__)
_CACHE = ("Cache-Control", "no-cache, private")
Binder: TypeAlias = Callable[[Json, str], object]


@dataclass(frozen=True, slots=True)
class Seen:
    """One request that was answered, for tests that count.

    Args:
        at: monotonic seconds.
        method: upper case.
        target: path and query.
        code: HTTP status of the answer.
    """

    at: float
    method: str
    target: str
    code: int


class Api:
    """Answers requests from a store."""

    def __init__(
        self,
        *,
        store: Store,
        table: ResourceTable,
        writer: Writer,
        tokens: Tokens,
        audit: AuditLog,
        faults: Faults,
        bind: Binder,
        now: Callable[[], datetime],
        bookmark_interval: float,
    ) -> None:
        self._store = store
        self._table = table
        self._writer = writer
        self._tokens = tokens
        self._audit = audit
        self._faults = faults
        self._bind = bind
        self._now = now
        self._bookmark_interval = bookmark_interval
        self.watches: set[Watch] = set()
        self.closing = False
        self.seen: deque[Seen] = deque(maxlen=100_000)

    async def handle(self, request: Request) -> Response:
        """Answer one request; a crash becomes a 500."""
        try:
            response = await self._faults.before(request)
            if response is None:
                response = await self._answer(request)
        except StatusError as error:
            response = Response(error.code, error.body(), tuple(error.headers.items()))
        except Cut:
            raise
        except Exception as error:  # noqa: BLE001 - a bug here must be seen by client and log
            _log.exception("request-crashed", method=request.method, target=request.target)
            crash = status.internal(f"the stand-in crashed: {error!r}")
            response = Response(crash.code, crash.body())
        seen = Seen(time.monotonic(), request.method, request.target, response.status)
        self.seen.append(seen)
        return response

    async def _answer(self, request: Request) -> Response:
        if request.path in discovery.HEALTH:
            return Response(200, b"ok", content_type="text/plain; charset=utf-8")
        identity = self._tokens.identify(request.headers.get("authorization", ""))
        if identity is None:
            raise status.unauthorized()
        if request.method == "GET" and (body := discovery.answer(request.path, self._table)):
            return self._body(200, body)
        target = paths.parse(request.path, self._table)
        if target is None:
            raise status.unknown_path()
        if request.oversized:
            raise status.too_large(3 * 2**20)
        call = ApiCall(target, request, identity)
        call.authorize(call.verb)
        if request.method in ("GET", "HEAD"):
            return self._read(call)
        return await self._write(call)

    def _read(self, call: ApiCall) -> Response:
        if call.query.get("watch") in ("1", "true"):
            return self._watch(call)
        if not call.target.name:
            page = reading.read_list(self._store, call.target, call.query)
            body = reading.list_body(call.target.resource, page)
            return self._body(200, body + b"\n")
        data = self._store.shelf(call.target.resource).objects.get(call.target.path)
        if data is None:
            resource = call.target.resource
            raise status.not_found(resource.group, resource.plural, call.target.name)
        return self._body(200, data + b"\n")

    def _watch(self, call: ApiCall) -> Response:
        watch = Watch(
            self._store,
            call.target,
            _named_as_selector(call),
            bookmark_interval=self._bookmark_interval,
        )
        if self._faults.bookmarks_need_version and watch.bookmarks_without_version:
            watch.fail(status.internal("the storage can't serve progress requests"))
        elif self._faults.watches_cut_at_once:
            watch.cut()
        elif self._faults.watches_end_at_once or self.closing:
            watch.end()
        return Response(200, headers=(_CACHE,), stream=self._streamed(watch))

    async def _streamed(self, watch: Watch) -> AsyncGenerator[bytes]:
        self.watches.add(watch)
        try:
            async for piece in watch.stream():
                yield piece
        finally:
            self.watches.discard(watch)

    async def _write(self, call: ApiCall) -> Response:
        code = 500
        try:
            verb = self._verb(call)
            code, body = await verb(call)
        except StatusError as error:
            code = error.code
            headers = (*_warnings(call), *error.headers.items())
            return Response(error.code, error.body(), headers)
        finally:
            self._record(call, code)
        return self._body(code, body + b"\n", _warnings(call))

    def _verb(self, call: ApiCall) -> Callable[[ApiCall], Awaitable[tuple[int, bytes]]]:
        named = bool(call.target.name)
        match call.request.method:
            case "POST" if call.target.subresource == "binding":
                return self._create_binding
            case "POST" if not named:
                return self._create
            case "PUT" if named:
                return self._replace
            case "PATCH" if named:
                return self._patch
            case "DELETE" if named and not call.target.subresource:
                return self._delete
            case "DELETE" if not named:
                return self._delete_collection
            case method:
                raise status.method_not_allowed(method)

    async def _create(self, call: ApiCall) -> tuple[int, bytes]:
        if call.target.resource.namespaced and not call.target.namespace:
            raise status.method_not_allowed("POST")
        return 201, call.target.resource.encode(await self._writer.create(call))

    async def _replace(self, call: ApiCall) -> tuple[int, bytes]:
        return 200, call.target.resource.encode(await self._writer.replace(call))

    async def _patch(self, call: ApiCall) -> tuple[int, bytes]:
        created = not self._writer.is_stored(call.target)
        if created and call.content_type == APPLY:
            call.authorize("create")
        item = await self._writer.patch(call)
        return 201 if created else 200, call.target.resource.encode(item)

    async def _delete(self, call: ApiCall) -> tuple[int, bytes]:
        gone = await self._writer.delete(call)
        if gone.get("kind") == "Status":
            return 200, wire.encode(gone)
        return 200, call.target.resource.encode(gone)

    async def _delete_collection(self, call: ApiCall) -> tuple[int, bytes]:
        return 200, await self._writer.delete_collection(call)

    async def _create_binding(self, call: ApiCall) -> tuple[int, bytes]:
        pod = self._writer.existing(call.target)
        node = (call.decode().get("target") or {}).get("name") or ""
        if not node:
            raise status.bad_request("a binding needs target.name")
        if pod["spec"].get("nodeName"):
            why = f'pod {call.target.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
            raise status.conflict("", "pods/binding", call.target.name, why)
        self._bind(pod, node)
        done = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return 201, wire.encode(done | {"code": 201})

    def _record(self, call: ApiCall, code: int) -> None:
        """Write pod creations, and what webhooks annotated, to the audit log."""
        of_pods = call.target.resource is PODS and call.request.method == "POST"
        if not of_pods and not call.trail.annotations:
            return
        self._audit.write(
            verb=VERBS[call.request.method],
            uri=call.request.target,
            identity=call.identity,
            reference=call.target.reference(),
            code=code,
            trail=call.trail,
            time=timestamp(self._now()),
        )

    @staticmethod
    def _body(code: int, body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> Response:
        return Response(code, body, (_CACHE, *headers))


def _named_as_selector(call: ApiCall) -> dict[str, str]:
    """A watch on one object is a watch with a field selector."""
    query = dict(call.query)
    if call.target.name:
        terms = [f"metadata.name={call.target.name}", query.get("fieldSelector", "")]
        query["fieldSelector"] = ",".join(term for term in terms if term)
    return query


def _warnings(call: ApiCall) -> tuple[tuple[str, str], ...]:
    return tuple(("Warning", f'299 - "{_quoted(text)}"') for text in call.trail.warnings)


def _quoted(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line.replace("\\", "\\\\").replace('"', '\\"')
