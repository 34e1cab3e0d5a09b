"""A client of the API server for programs that ask one thing after the other, in any thread."""

import asyncio
import json
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, Self, TypeAlias, TypeVar

from services.kube.access import require_access
from services.kube.client import ClusterClient, HttpResponse
from services.process.errors import ClusterError

Json: TypeAlias = dict[str, Any]

T = TypeVar("T")


class Refused(ClusterError):
    """The API server refused a request; `status` is the Status that it returned."""

    def __init__(self, what: str, code: int, status: Json) -> None:
        self.code = code
        self.text = str(status.get("message", ""))
        self.status = status
        super().__init__(f"{what}: {code}: {self.text}")


async def _client(api_server: str) -> ClusterClient:
    """A client of the loop that this runs in."""
    return ClusterClient(require_access(api_server))


class Client:
    """A client with an event loop of its own, in a thread."""

    def __init__(self, api_server: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="api", daemon=True)
        self._thread.start()
        self._client = self._do(_client(api_server))
        self.server: str = self._client.server

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Make a request; returns the object of the answer (ClusterError if there is none)."""
        sending = self._send(method, path, params=params, body=body, content_type=content_type)
        answer = self._do(sending)
        try:
            decoded = json.loads(answer.body) if answer.body else {}
        except ValueError:
            decoded = {"message": answer.body[:300].decode(errors="replace")}
        if answer.status >= 300:
            raise Refused(f"{method} {path}", answer.status, decoded)
        document: Json = decoded
        return document

    async def _send(self, method: str, path: str, **given: Any) -> HttpResponse:  # noqa: ANN401 - those of ClusterClient.request
        return await self._client.request(method, path, **given)
