"""The API server stand-in with the words of the reflectors' tests: mappings, faults, requests.

It serves plain HTTP. Each fault lasts for a `with` block; of several that match, the newest counts.
"""

import json
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias

from simulator.apiserver.calls import StatusError
from simulator.apiserver.faults import Matches, every, lists, watches
from simulator.apiserver.http_server import Request, Response
from simulator.apiserver.reading import bookmark_line, event_line
from simulator.apiserver.resources import FUNCTIONS as FUNCTION_RESOURCE
from simulator.apiserver.resources import REGIONS as REGION_RESOURCE
from simulator.apiserver.standin import ApiServerStandIn, Options
from simulator.apiserver.store import encode as encode_json

__all__ = ["FUNCTIONS", "REGIONS", "FaultyApiServer", "Request", "Response", "encode"]
__all__ += ["event", "every", "later_pages", "lists", "status", "watches"]

FUNCTIONS: Final = FUNCTION_RESOURCE.plural
REGIONS: Final = REGION_RESOURCE.plural
_RESOURCES: Final = {FUNCTIONS: FUNCTION_RESOURCE, REGIONS: REGION_RESOURCE}
event = event_line


Answer: TypeAlias = Callable[[], Response | Awaitable[Response]]


def later_pages(request: Request) -> bool:
    return request.is_later_page


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
        return [seen.request for seen in self._api.seen]

    @property
    def open_watches(self) -> int:
        return len(self._api.watches)

    @property
    def token(self) -> str:
        return self._api.token

    @token.setter
    def token(self, token: str) -> None:
        self._api.change_token(token)

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
        self, answer: Answer, *, matches: Matches = every, times: int | None = None
    ) -> AbstractContextManager[None]:
        """Gives these answers to requests that match, at most so many times."""
        return self._api.faults.answering(lambda _: answer(), count=times, matches=matches)

    def answering(
        self,
        code: int,
        text: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        matches: Matches = every,
        times: int | None = None,
    ) -> AbstractContextManager[None]:
        """Answers with a status."""
        answer = Response(code, status(code, text), tuple((headers or {}).items()))
        return self.answering_with(lambda: answer, matches=matches, times=times)

    def saying(
        self, *lines: bytes, matches: Matches = watches, times: int | None = None
    ) -> AbstractContextManager[None]:
        """Answers watches with these lines, and a proper end."""
        return self._api.faults.streaming(*lines, matches=matches, count=times)

    def dropping(
        self, *, matches: Matches = every, times: int | None = None
    ) -> AbstractContextManager[None]:
        """Breaks the connection instead of answering."""
        return self._api.faults.dropping(matches=matches, count=times)

    def replacing(self, body: bytes, *, matches: Matches = lists) -> AbstractContextManager[None]:
        """Answers with a body of the test's own."""
        return self._api.faults.replaying(body, matches=matches)


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
