"""The webhook's HTTP application: admission endpoints, probes and their documentation.

Each endpoint is an ASGI application with its own route. `AdmissionApp` passes POST requests to it
directly: FastAPI's middleware and routing cost as much as the review itself. Other methods get a
405 from the route.
"""

from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from webhook.endpoints import ENDPOINTS, Endpoint
from webhook.handler import AdmissionHandler, ClientGone, status_body
from webhook.selfcheck import check_ourselves

_JSON: Final = "application/json"
_REVIEW: Final = {
    "type": "object",
    "description": "AdmissionReview, admission.k8s.io/v1",
    "required": ["apiVersion", "kind"],
    "properties": {
        "apiVersion": {"const": "admission.k8s.io/v1"},
        "kind": {"const": "AdmissionReview"},
        "request": {"type": "object", "required": ["uid"]},
        "response": {"type": "object", "required": ["uid", "allowed"]},
    },
}
_STATUS: Final = {
    "type": "object",
    "description": "Status, v1",
    "properties": {"message": {"type": "string"}, "code": {"type": "integer"}},
}


class AdmissionEndpoint:
    """The ASGI application of one endpoint."""

    def __init__(self, handler: AdmissionHandler, endpoint: Endpoint) -> None:
        self._handler = handler
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            status, body = await self._handler.respond(self._endpoint, scope["headers"], receive)
        except ClientGone:
            return
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if self._handler.draining:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class AdmissionApp(FastAPI):
    """The application; its OpenAPI document includes the admission endpoints.

    Args:
        handler: Answers reviews.
    """

    def __init__(self, handler: AdmissionHandler, **options: Any) -> None:  # noqa: ANN401 - FastAPI's
        self._endpoints = {
            path: AdmissionEndpoint(handler, endpoint) for path, endpoint in ENDPOINTS.items()
        }
        routes: list[BaseRoute] = [
            Route(path, each, methods=["POST"]) for path, each in self._endpoints.items()
        ]
        super().__init__(routes=routes, **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["method"] == "POST":
            endpoint = self._endpoints.get(scope["path"])
            if endpoint is not None:
                await endpoint(scope, receive, send)
                return
        await super().__call__(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        document = super().openapi()
        paths = {path: {"post": _operation(path, each)} for path, each in ENDPOINTS.items()}
        return document | {"paths": paths | document["paths"]}


def build_app(
    handler: AdmissionHandler, missing: Callable[[], str], *, version: str = ""
) -> AdmissionApp:
    """Build the whole application.

    Args:
        handler: Answers reviews.
        missing: Returns why the process is not ready; empty if it is.
        version: Shown in `/openapi.json`.
    """
    app = AdmissionApp(
        handler,
        title="accelbind webhook",
        description="Replaces logical accelerator names in pods by physical resources.",
        version=version or "0",
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_exception_handler(HTTPException, _answer_routing_error)
    _add_probes(app, handler, missing)
    return app


def _operation(path: str, endpoint: Endpoint) -> dict[str, Any]:
    """Return the OpenAPI operation of an endpoint."""
    responses = {
        "200": ("The answer", _REVIEW),
        "400": ("No AdmissionReview of v1", _STATUS),
        "413": ("Larger than --max-body", _STATUS),
        "415": ("Not application/json", _STATUS),
    }
    return {
        "summary": endpoint.summary,
        "description": endpoint.description,
        "operationId": path.strip("/"),
        "requestBody": {"required": True, "content": {_JSON: {"schema": _REVIEW}}},
        "responses": {
            code: {"description": text, "content": {_JSON: {"schema": schema}}}
            for code, (text, schema) in responses.items()
        },
    }


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
