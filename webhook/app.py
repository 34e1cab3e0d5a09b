"""The webhook's FastAPI application: admission endpoints and probes."""

import importlib.metadata
from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from webhook.handler import ENDPOINTS, AdmissionHandler, Endpoint, status_body
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
            telemetry={"tracing": False, "metrics": False, "logs": False},  # costs 10 µs per review
        )
        self.add_exception_handler(HTTPException, _answer_routing_error)
        self.add_exception_handler(ClientDisconnect, _answer_nobody)
        for path, endpoint in ENDPOINTS.items():
            self.add_api_route(
                path,
                _reviewing(handler, endpoint),
                methods=["POST"],
                summary=endpoint.summary,
                description=endpoint.description,
                responses=_RESPONSES,
                openapi_extra={"requestBody": {"required": True, "content": _REVIEW}},
            )
        _add_probes(self, missing)


def _reviewing(
    handler: AdmissionHandler, endpoint: Endpoint
) -> Callable[[Request], Awaitable[Response]]:
    """Return the function that answers an endpoint's requests."""

    async def review(request: Request) -> Response:
        status, body = await handler.respond(endpoint, request.scope["headers"], request.stream())
        return Response(body, status, media_type=_JSON)

    return review


def _add_probes(app: FastAPI, missing: Callable[[], str]) -> None:
    def answer(problem: str) -> Response:
        return PlainTextResponse(f"{problem or 'ok'}\n", 503 if problem else 200)

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


async def _answer_nobody(_request: Request, _error: Exception) -> Response:
    """Answer a client that has closed the connection."""
    return Response(status_code=400)
