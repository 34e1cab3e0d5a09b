"""An API server of two kinds of objects that goes wrong in the ways that a test asks for.

Small on purpose: it knows the lists and watches of custom resources and nothing else, over plain
HTTP/1.1. Each fault is a context manager; what it does to a request is decided when the request
comes, and watches that are open are steered by `end_watches`, `cut_watches` and `silence_watches`.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

FUNCTIONS: Final = "acceleratorfunctions"
REGIONS: Final = "fpgaregions"
KINDS: Final = {FUNCTIONS: "AcceleratorFunction", REGIONS: "FpgaRegion"}
GROUP: Final = "/apis/fpga.intel.com/v2/"

Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked."""

    plural: str
    query: Mapping[str, str]
    authorization: str

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "1"

    @property
    def is_later_page(self) -> bool:
        return "continue" in self.query


Matches: TypeAlias = Callable[[Request], bool]
Action: TypeAlias = "Callable[[Request, Connection], Awaitable[None]]"


def watches(request: Request) -> bool:
    return request.is_watch


def lists(request: Request) -> bool:
    return not request.is_watch


def later_pages(request: Request) -> bool:
    return request.is_later_page


def everything(_request: Request) -> bool:
    return True


@dataclass(eq=False, slots=True)
class _Fault:
    matches: Matches
    action: Action
    left: int | None


class Connection:
    """One client's connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        await self.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def begin(self) -> None:
        """Begins an answer in chunks."""
        await self.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.write(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.write(b"0\r\n\r\n")

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def drop(self) -> None:
        """Ends the connection at once, whatever was promised on it."""
        self._writer.transport.abort()


@dataclass(eq=False, slots=True)
class _Watch:
    """An open watch: what waits to be sent, and how it is to end."""

    plural: str
    connection: Connection
    lines: list[bytes] = field(default_factory=list)
    order: str = ""
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class FaultyApiServer:
    """Serves what was `put`, and the faults that are switched on.

    Attributes:
        url: where it is, once it runs; the same after it was away.
        requests: all that came, in order.
        revision: the resource version of the last change.
        token: the bearer token it wants.
        limiting: whether it gives lists in pages; it needn't.
    """

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[Request] = []
        self.revision = 1
        self.token = "secret"  # noqa: S105 - of this server only
        self.limiting = True
        self.objects: dict[str, dict[Key, bytes]] = {plural: {} for plural in KINDS}
        self._events: dict[str, list[tuple[int, bytes]]] = {plural: [] for plural in KINDS}
        self._oldest = 0
        self._faults: list[_Fault] = []
        self._watches: list[_Watch] = []
        self._pages: dict[str, tuple[int, list[bytes]]] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._port = 0

    # What it holds

    def put(self, plural: str, namespace: str, name: str, **spec: object) -> int:
        """Creates or replaces an object; watches hear of it."""
        key = (namespace, name)
        kind = "MODIFIED" if key in self.objects[plural] else "ADDED"
        self.revision += 1
        data = encode(plural, namespace, name, self.revision, spec)
        self.objects[plural][key] = data
        return self._happened(plural, kind, data)

    def delete(self, plural: str, namespace: str, name: str) -> int:
        """Deletes an object; watches hear of it."""
        data = json.loads(self.objects[plural].pop((namespace, name)))
        self.revision += 1
        data["metadata"]["resourceVersion"] = str(self.revision)
        return self._happened(plural, "DELETED", json.dumps(data).encode())

    def fill(self, plural: str, objects: Iterable[tuple[Key, bytes]]) -> None:
        """Takes many objects that were there all along."""
        self.objects[plural] |= dict(objects)

    def compact(self) -> None:
        """Forgets all changes so far: whoever wants to go on from before is too late."""
        self.revision += 1
        self._oldest = self.revision
        self._events = {plural: [] for plural in KINDS}
        self._pages.clear()

    def bookmark(self) -> None:
        """Tells open watches the revision."""
        for watch in self._watches:
            self._send(watch, event("BOOKMARK", _bookmark(watch.plural, self.revision)))

    def send_line(self, plural: str, line: bytes) -> None:
        """Sends a line of any kind to open watches."""
        for watch in self._watches:
            if watch.plural == plural:
                self._send(watch, line)

    def _happened(self, plural: str, kind: str, data: bytes) -> int:
        line = event(kind, data)
        self._events[plural].append((self.revision, line))
        self.send_line(plural, line)
        return self.revision

    def _send(self, watch: _Watch, line: bytes) -> None:
        watch.lines.append(line)
        watch.wake.set()

    # How it runs

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FaultyApiServer"]:
        """Serves; on any port at first, on the same one later."""
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        """Goes away: connections break, new ones are refused."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._watches.clear()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Connections break, new ones are refused."""
        await self.stop()
        try:
            yield
        finally:
            await self.start()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(writer)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while not writer.is_closing():
                    request = _read(await reader.readuntil(b"\r\n\r\n"))
                    self.requests.append(request)
                    await self._action(request)(request, connection)
        finally:
            writer.transport.abort()

    def _action(self, request: Request) -> Action:
        for fault in self._faults:
            if fault.left != 0 and fault.matches(request):
                fault.left = fault.left - 1 if fault.left is not None else None
                return fault.action
        return self._serve

    async def _serve(self, request: Request, connection: Connection) -> None:
        if request.authorization != f"Bearer {self.token}":
            await connection.answer(401, status(401, "Unauthorized"), {})
        elif request.is_watch:
            await self._watch(request, connection)
        else:
            await self._list(request, connection)

    # Lists

    async def _list(self, request: Request, connection: Connection) -> None:
        token = request.query.get("continue", "")
        if token:
            if token not in self._pages:
                text = "The provided continue parameter is too old"
                await connection.answer(410, status(410, text), {})
                return
            revision, items = self._pages[token]
        else:
            revision = self.revision
            held = self.objects[request.plural]
            items = [held[key] for key in sorted(held)]
        limit = (self.limiting and int(request.query.get("limit", 0))) or len(items)
        page, rest = items[:limit], items[limit:]
        following = ""
        if rest:
            following = f"{request.plural}-{revision}-{len(rest)}"
            self._pages[following] = (revision, rest)
        await connection.answer(200, encode_list(request.plural, revision, page, following), {})

    # Watches

    async def _watch(self, request: Request, connection: Connection) -> None:
        since = int(request.query["resourceVersion"])
        await connection.begin()
        if since < self._oldest:
            text = f"too old resource version: {since} ({self._oldest})"
            await connection.chunk(event("ERROR", status(410, text)))
            await connection.end()
            return
        watch = _Watch(request.plural, connection)
        watch.lines = [line for revision, line in self._events[request.plural] if revision > since]
        self._watches.append(watch)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(float(request.query["timeoutSeconds"])):
                    await self._stream(watch)
            if not watch.order:
                await connection.end()
        finally:
            self._watches.remove(watch)

    async def _stream(self, watch: _Watch) -> None:
        while True:
            lines, watch.lines = watch.lines, []
            if lines:
                await watch.connection.chunk(b"".join(lines))
            if watch.order == "end":
                await watch.connection.end()
                return
            if watch.order == "cut":
                half = event("ADDED", encode(watch.plural, "cut", "in-half", 1, {}))
                await watch.connection.chunk(half[: len(half) // 2])
                watch.connection.drop()
                return
            if watch.order == "silence":
                await asyncio.Event().wait()
            if not watch.lines:
                watch.wake.clear()
                await watch.wake.wait()

    @property
    def open_watches(self) -> int:
        return len(self._watches)

    def end_watches(self) -> None:
        """Ends open watches as a server does after a time."""
        self._order("end")

    def cut_watches(self) -> None:
        """Breaks the connections of open watches in the middle of a line."""
        self._order("cut")

    def silence_watches(self) -> None:
        """Open watches stay open, but nothing comes on them any more, and no end."""
        self._order("silence")

    def _order(self, order: str) -> None:
        for watch in self._watches:
            watch.order = order
            watch.wake.set()

    # Faults

    @contextmanager
    def fault(
        self, action: Action, *, matches: Matches = everything, times: int | None = None
    ) -> Iterator[None]:
        """Does something else with requests that match, at most so many times."""
        fault = _Fault(matches, action, times)
        self._faults.append(fault)
        try:
            yield
        finally:
            self._faults.remove(fault)

    def answering(
        self,
        code: int,
        text: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        matches: Matches = everything,
        times: int | None = None,
    ) -> contextlib.AbstractContextManager[None]:
        """Answers with a status."""

        async def action(_request: Request, connection: Connection) -> None:
            await connection.answer(code, status(code, text), headers or {})

        return self.fault(action, matches=matches, times=times)

    def saying(
        self, line: bytes, *, matches: Matches = watches, times: int | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Answers watches with one line, and a proper end."""

        async def action(_request: Request, connection: Connection) -> None:
            await connection.begin()
            await connection.chunk(line)
            await connection.end()

        return self.fault(action, matches=matches, times=times)

    def closing_at_once(self) -> contextlib.AbstractContextManager[None]:
        """Ends each watch as soon as it is open, properly."""

        async def action(_request: Request, connection: Connection) -> None:
            await connection.begin()
            await connection.end()

        return self.fault(action, matches=watches)

    def dropping(
        self, *, matches: Matches = everything, times: int | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Breaks the connection instead of answering."""

        async def action(_request: Request, connection: Connection) -> None:
            connection.drop()

        return self.fault(action, matches=matches, times=times)

    def replacing(
        self, body: bytes, *, matches: Matches = lists, times: int | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Answers with a body of the test's own."""

        async def action(_request: Request, connection: Connection) -> None:
            await connection.answer(200, body, {})

        return self.fault(action, matches=matches, times=times)


def encode(
    plural: str, namespace: str, name: str, revision: int, spec: Mapping[str, object]
) -> bytes:
    """An object as the API server would send it."""
    return json.dumps(
        {
            "apiVersion": "fpga.intel.com/v2",
            "kind": KINDS[plural],
            "metadata": {
                "name": name,
                "namespace": namespace,
                "resourceVersion": str(revision),
                "uid": f"uid-{namespace}-{name}-{revision}",
            },
            "spec": spec,
        }
    ).encode()


def encode_list(plural: str, revision: int, items: Iterable[bytes], following: str) -> bytes:
    """A page of a list."""
    metadata = {"resourceVersion": str(revision), "continue": following}
    return b'{"apiVersion":"fpga.intel.com/v2","kind":"%sList","metadata":%s,"items":[%s]}' % (
        KINDS[plural].encode(),
        json.dumps(metadata).encode(),
        b",".join(items),
    )


def event(kind: str, data: bytes) -> bytes:
    """A line of a watch."""
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), data)


def status(code: int, text: str) -> bytes:
    """A Status, as errors come."""
    return json.dumps(
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": text, "code": code}
    ).encode()


def _bookmark(plural: str, revision: int) -> bytes:
    return json.dumps(
        {"kind": KINDS[plural], "metadata": {"resourceVersion": str(revision)}}
    ).encode()


def _read(head: bytes) -> Request:
    first, *lines = head.decode("latin-1").split("\r\n")
    target = urlsplit(first.split(" ")[1])
    headers = dict(line.split(": ", 1) for line in lines if line)
    lower = {name.lower(): value for name, value in headers.items()}
    return Request(
        plural=target.path.removeprefix(GROUP),
        query=dict(parse_qsl(target.query)),
        authorization=lower.get("authorization", ""),
    )
