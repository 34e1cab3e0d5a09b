"""The webhook's HTTP face: documented routes, and the short way round them for reviews.

A FastAPI route costs twenty times what the review itself does, so `AdmissionApp` answers POSTs to
the admission endpoints before FastAPI's routing. The routes stand beside it all the same, over the
same function: they document the endpoints (`/openapi.json`) and answer other methods with a 405.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.exceptions import HTTPException

from webhook.admission import (
    ENDPOINTS,
    MUTATE,
    VALIDATE,
    Gate,
    Gone,
    Receive,
    Scope,
    Send,
    status_body,
)
from webhook.mappings import DESCRIPTIONS
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
_DESCRIPTIONS: Final = {
    MUTATE: ("Rewrite a pod", "Answers with a JSON Patch, or a refusal that says what to do."),
    VALIDATE: (
        "Check a pod after all mutation",
        "Refuses a pod that `/mutate` would still have to change.",
    ),
    **DESCRIPTIONS,
}
_STATUS: Final = {
    "type": "object",
    "description": "Status, v1",
    "properties": {"message": {"type": "string"}, "code": {"type": "integer"}},
}


@dataclass(frozen=True, slots=True)
class Readiness:
    """Tells why reviews can't be answered well now; see `because`."""

    reasons: Callable[[], list[str]]

    @property
    def because(self) -> str:
        """What is missing, as a text; empty when ready."""
        return ", ".join(self.reasons())


class AdmissionApp(FastAPI):
    """The application; reviews take the short way.

    Args:
        gate: Answers reviews.
        shortcut: Whether they take it; tests and benchmarks compare.
    """

    def __init__(self, gate: Gate, *, shortcut: bool = True, **options: Any) -> None:  # noqa: ANN401 - FastAPI's
        super().__init__(**options)
        self._gate = gate
        self._paths = ENDPOINTS if shortcut else {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http" and scope["method"] == "POST":
            endpoint = self._paths.get(scope["path"])
            if endpoint is not None:
                await self._gate.serve(endpoint, scope, receive, send)
                return
        await super().__call__(scope, receive, send)


def build_app(
    gate: Gate, readiness: Readiness, *, version: str = "", shortcut: bool = True
) -> AdmissionApp:
    """The whole application.

    Args:
        gate: Answers reviews.
        readiness: What `/readyz` says.
        version: Shown in `/openapi.json`.
        shortcut: As for `AdmissionApp`.
    """
    app = AdmissionApp(
        gate,
        shortcut=shortcut,
        title="accelbind webhook",
        description="Rewrites logical accelerator names in pods to what they stand for.",
        version=version or "0",
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_exception_handler(HTTPException, _status_of)
    for path, endpoint in ENDPOINTS.items():
        _add_admission(app, gate, path, endpoint)
    _add_probes(app, gate, readiness)
    return app


def _add_admission(app: FastAPI, gate: Gate, path: str, endpoint: str) -> None:
    async def review(request: Request) -> Response:
        try:
            status, body = await gate.respond(endpoint, request.headers.raw, request.receive)
        except Gone:
            return Response(status_code=400)
        return Response(body, status, media_type=_JSON, headers=_headers(gate))

    summary, description = _DESCRIPTIONS[endpoint]
    app.add_api_route(
        path,
        review,
        methods=["POST"],
        name=path.strip("/"),
        summary=summary,
        description=description,
        openapi_extra={
            "requestBody": {"required": True, "content": {_JSON: {"schema": _REVIEW}}},
        },
        responses={
            200: {"description": "The answer", "content": {_JSON: {"schema": _REVIEW}}},
            **{
                code: {"description": text, "content": {_JSON: {"schema": _STATUS}}}
                for code, text in (
                    (400, "No AdmissionReview of v1"),
                    (413, "Larger than --max-body"),
                    (415, "Not application/json"),
                )
            },
        },
        response_class=Response,
    )


def _add_probes(app: FastAPI, gate: Gate, readiness: Readiness) -> None:
    @app.get("/healthz", response_class=PlainTextResponse, summary="Whether reviews are answered")
    async def healthz() -> Response:
        problem = check_ourselves()
        return PlainTextResponse(
            f"{problem or 'ok'}\n", 503 if problem else 200, headers=_headers(gate)
        )

    @app.get("/readyz", response_class=PlainTextResponse, summary="Whether to send reviews here")
    async def readyz() -> Response:
        missing = readiness.because
        return PlainTextResponse(
            f"{missing or 'ok'}\n", 503 if missing else 200, headers=_headers(gate)
        )


def _headers(gate: Gate) -> dict[str, str]:
    return {"connection": "close"} if gate.draining else {}


async def _status_of(_request: Request, error: Exception) -> Response:
    """Errors of the routing, as an API server's clients know them."""
    if not isinstance(error, HTTPException):
        raise error
    body = status_body(error.status_code, str(error.detail))
    return Response(body, error.status_code, media_type=_JSON, headers=error.headers)
