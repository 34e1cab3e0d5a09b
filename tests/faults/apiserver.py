"""The API server stand-in with the words of the reflectors' tests: mappings, faults, requests.

It serves plain HTTP. Each fault lasts for a `with` block; of several that match, the newest counts.
"""

import json
import shutil
import tempfile
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from simulator.apiserver import http_server
from simulator.apiserver.calls import StatusError
from simulator.apiserver.http_server import Response
from simulator.apiserver.reading import bookmark_line, event_line
from simulator.apiserver.resources import FUNCTIONS as FUNCTION_RESOURCE
from simulator.apiserver.resources import REGIONS as REGION_RESOURCE
from simulator.apiserver.standin import ApiServerStandIn, Options
from simulator.apiserver.store import encode as encode_json

FUNCTIONS: Final = FUNCTION_RESOURCE.plural
REGIONS: Final = REGION_RESOURCE.plural
_RESOURCES: Final = {FUNCTIONS: FUNCTION_RESOURCE, REGIONS: REGION_RESOURCE}
event = event_line


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked."""

    plural: str
    query: Mapping[str, str]
    authorization: str
    is_watch: bool

    @property
    def is_later_page(self) -> bool:
        return "continue" in self.query


Matches: TypeAlias = Callable[[Request], bool]
Answer: TypeAlias = Callable[[], Response | Awaitable[Response]]


def watches(request: Request) -> bool:
    return request.is_watch


def lists(request: Request) -> bool:
    return not request.is_watch


def later_pages(request: Request) -> bool:
    return request.is_later_page


def everything(_request: Request) -> bool:
    return True


def _read(request: http_server.Request) -> Request:
    plural = request.path.rpartition("/")[2]
    authorization = request.headers.get("authorization", "")
    return Request(plural, request.query, authorization, request.is_watch)


class FaultyApiServer:
    """Serves what was `put`, and the faults that are switched on."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.gettempdir()) / f"api-{uuid.uuid4()}"
        options = Options(plain=True, token="secret", schedule=False)  # noqa: S106 - of this server only
        self._api = ApiServerStandIn(self._folder, options)
        self._store = self._api.store
        self.end_watches = self._api.end_watches
        self.cut_watches = self._api.cut_watches
        self.silence_watches = self._api.silence_watches
        self.away = self._api.away
        self.compact = self._api.compact

    @property
    def url(self) -> str:
        return self._api.url

    @property
    def requests(self) -> list[Request]:
        """All that came, in order."""
        return [_read(seen.request) for seen in self._api.seen]

    @property
    def open_watches(self) -> int:
        return len(self._api.watches)

    @property
    def token(self) -> str:
        return self._api.tokens.admin

    @token.setter
    def token(self, token: str) -> None:
        self._api.tokens.replace_admin(token)

    @property
    def revision(self) -> int:
        """The resource version of the last change."""
        return self._store.revision

    @revision.setter
    def revision(self, revision: int) -> None:
        self._store.advance(revision)

    # What it holds

    def put(self, plural: str, namespace: str, name: str, **spec: object) -> int:
        """Creates or replaces an object; watches hear of it."""
        self._api.put(json.loads(encode(plural, namespace, name, 0, spec)))
        return self.revision

    def delete(self, plural: str, namespace: str, name: str) -> int:
        """Deletes an object; watches hear of it."""
        self._store.remove(_RESOURCES[plural], f"{namespace}/{name}")
        return self.revision

    def fill(self, plural: str, objects: Iterable[tuple[tuple[str, str], bytes]]) -> None:
        """Takes many objects that were there all along, in whatever bytes."""
        held = self._store.shelf(_RESOURCES[plural]).objects
        held.update(("/".join(key), data) for key, data in objects)

    def bookmark(self) -> None:
        """Tells open watches the revision."""
        for watch in self._api.watches:
            watch.send(bookmark_line(watch.resource, self.revision))

    def send_line(self, plural: str, line: bytes) -> None:
        """Sends a line of any kind to open watches."""
        for watch in self._api.watches:
            if watch.resource.plural == plural:
                watch.send(line)

    # How it runs

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FaultyApiServer"]:
        """Serves; on any port at first, on the same one later."""
        self._folder.mkdir()
        await self._api.start()
        try:
            yield self
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Goes away: connections break, new ones are refused."""
        self._api.drop_connections()
        await self._api.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    # Faults

    def answering_with(
        self, answer: Answer, *, matches: Matches = everything, times: int | None = None
    ) -> AbstractContextManager[None]:
        """Gives these answers to requests that match, at most so many times."""
        return self._api.faults.answering(
            lambda _: answer(), count=times, matches=lambda request: matches(_read(request))
        )

    def answering(
        self,
        code: int,
        text: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        matches: Matches = everything,
        times: int | None = None,
    ) -> AbstractContextManager[None]:
        """Answers with a status."""
        answer = Response(code, status(code, text), tuple((headers or {}).items()))
        return self.answering_with(lambda: answer, matches=matches, times=times)

    def saying(
        self, *lines: bytes, matches: Matches = watches, times: int | None = None
    ) -> AbstractContextManager[None]:
        """Answers watches with these lines, and a proper end."""

        async def stream() -> AsyncGenerator[bytes]:
            for line in lines:
                yield line

        return self.answering_with(
            lambda: Response(200, stream=stream()), matches=matches, times=times
        )

    def dropping(
        self, *, matches: Matches = everything, times: int | None = None
    ) -> AbstractContextManager[None]:
        """Breaks the connection instead of answering."""
        return self._api.faults.dropping(
            count=times, matches=lambda request: matches(_read(request))
        )

    def replacing(self, body: bytes, *, matches: Matches = lists) -> AbstractContextManager[None]:
        """Answers with a body of the test's own."""
        return self.answering_with(lambda: Response(200, body), matches=matches)


def encode(
    plural: str, namespace: str, name: str, revision: int, spec: Mapping[str, object]
) -> bytes:
    """An object as an API server could send it."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "resourceVersion": str(revision),
        "uid": f"uid-{namespace}-{name}-{revision}",
    }
    head = {"apiVersion": "fpga.intel.com/v2", "kind": _RESOURCES[plural].kind}
    return json.dumps({**head, "metadata": metadata, "spec": spec}).encode()


def status(code: int, text: str) -> bytes:
    """A Status, as errors come."""
    return encode_json(StatusError(code, text).status())
