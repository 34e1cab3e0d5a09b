"""A client of the API server for programs that ask one thing after the other, in any thread."""

from collections.abc import Mapping
from typing import Any, Self, TypeAlias

import httpx2

from services.process.errors import ClusterError
from services.process.settings import UNIX

Json: TypeAlias = dict[str, Any]

_SECONDS = 60.0


class Refused(ClusterError):
    """The API server refused a request; `status` is the Status that it returned."""

    def __init__(self, what: str, code: int, status: Json) -> None:
        self.code = code
        self.text = str(status.get("message", ""))
        self.status = status
        super().__init__(f"{what}: {code}: {self.text}")


class Client:
    """A client at an address that asks for no credentials: a URL, or `unix:` and a path."""

    def __init__(self, api_server: str) -> None:
        self.server = api_server
        path = api_server.removeprefix(UNIX) if api_server.startswith(UNIX) else None
        self._client = httpx2.Client(
            transport=httpx2.HTTPTransport(uds=path),
            base_url="http://localhost" if path else api_server,
            timeout=_SECONDS,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        """Make a request; returns the object of the answer (ClusterError if there is none)."""
        given = {"Content-Type": content_type, **(headers or {})}
        answer = self._send(method, path, params=params, json=body, headers=given)
        try:
            decoded = answer.json() if answer.content else {}
        except ValueError:
            decoded = {"message": answer.text[:300]}
        if not answer.is_success:
            raise Refused(f"{method} {path}", answer.status_code, decoded)
        document: Json = decoded
        return document

    def _send(self, method: str, path: str, **given: Any) -> httpx2.Response:  # noqa: ANN401 - those of httpx2
        try:
            return self._client.request(method, path, **given)
        except httpx2.HTTPError as error:
            raise ClusterError(f"{method} {self.server}{path}: {error!r}") from error
