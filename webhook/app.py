"""The webhook's HTTP application: admission endpoints, probes and their documentation.

`AdmissionApp` answers reviews before FastAPI's middleware and routing, which cost as much as the
review itself. The routes beside that document the endpoints, and answer 405 to other methods.
"""

import importlib.metadata
from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from webhook.handler import ENDPOINTS, AdmissionHandler, ClientGone, Endpoint, status_body
from webhook.selfcheck import check_ourselves

_JSON: Final = "application/json"
_REVIEW: Final = {
    _JSON: {"schema": {"type": "object", "description": "AdmissionReview, admission.k8s.io/v1"}}
}
_STATUS: Final = {_JSON: {"schema": {"type": "object", "description": "Status, v1"}}}
_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The answer", "content": _REVIEW},
    400: {"description": "No AdmissionReview of v1", "content": _STATUS},
    413: {"description": "Larger than --max-body", "content": _STATUS},
    415: {"description": "Not application/json", "content": _STATUS},
}


class AdmissionApp(FastAPI):
    """The application; `missing` returns why the process is not ready, empty if it is."""

    def __init__(self, handler: AdmissionHandler, missing: Callable[[], str]) -> None:
        super().__init__(
            title="accelbind webhook",
            description="Replaces logical accelerator names in pods by physical resources.",
            version=importlib.metadata.version("accelbind"),
            docs_url=None,  # their pages load scripts from elsewhere
            redoc_url=None,
            redirect_slashes=False,
        )
        self._handler = handler
        self.add_exception_handler(HTTPException, _answer_routing_error)
        for path, endpoint in ENDPOINTS.items():
            self.add_api_route(
                path,
                _documented(handler, endpoint),
                methods=["POST"],
                summary=endpoint.summary,
                description=endpoint.description,
                responses=_RESPONSES,
                openapi_extra={"requestBody": {"required": True, "content": _REVIEW}},
            )
        _add_probes(self, handler, missing)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["method"] == "POST":
            endpoint = ENDPOINTS.get(scope["path"])
            if endpoint is not None:
                await self._review(endpoint, scope, receive, send)
                return
        await super().__call__(scope, receive, send)

    async def _review(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            status, body = await self._handler.respond(endpoint, scope["headers"], receive)
        except ClientGone:
            return
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if self._handler.draining:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _documented(
    handler: AdmissionHandler, endpoint: Endpoint
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint as FastAPI documents it; `AdmissionApp` answers before it does."""

    async def review(request: Request) -> Response:
        status, body = await handler.respond(endpoint, request.headers.raw, request.receive)
        return Response(body, status, media_type=_JSON)

    return review


def _add_probes(app: FastAPI, handler: AdmissionHandler, missing: Callable[[], str]) -> None:
    def answer(problem: str) -> Response:
        headers = {"connection": "close"} if handler.draining else {}
        return PlainTextResponse(f"{problem or 'ok'}\n", 503 if problem else 200, headers)

    @app.get("/healthz", response_class=PlainTextResponse, summary="Whether reviews are answered")
    async def healthz() -> Response:
        return answer(check_ourselves())

    @app.get("/readyz", response_class=PlainTextResponse, summary="Whether to send reviews here")
    async def readyz() -> Response:
        return answer(missing())


async def _answer_routing_error(_request: Request, error: Exception) -> Response:
    """Answer with a Kubernetes Status."""
    if not isinstance(error, HTTPException):
        raise error
    body = status_body(error.status_code, str(error.detail))
    return Response(body, error.status_code, error.headers, _JSON)
