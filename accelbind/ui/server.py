"""The page's server: for one browser of this machine, and for no other page in it.

A page of another site can neither read nor send anything here: requests need the `Host` of this
server (against DNS rebinding), no foreign `Origin`, and for data a random token, which only the
printed address has, behind `#`, where browsers send it to nobody.
"""

import hmac
import json
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final

import msgspec
import yaml
from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from accelbind.cluster import Json
from accelbind.explain.asking import Asked
from accelbind.explain.show import lines
from accelbind.manifests import yaml_text
from accelbind.names import read_names
from accelbind.ui.live import Live
from services.pods.manifests import find_pods
from services.process.errors import AccelbindError, InvalidManifest

HOST: Final = "127.0.0.1"
HEARTBEAT_SECONDS: Final = 1.0
MOST_BODY: Final = 64 * 1024
"""Bytes of a request."""

_EXAMPLE: Final = "accelbind.dev/gpu: 1"

_FILES: Final = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Guarded:
    """Lets requests through that this server's own page sends."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token = token
        self._hosts = {f"{name}:{port}" for name in (HOST, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        status = self._refusal(scope["path"], Headers(scope=scope))
        if status is None:
            await self._app(scope, receive, send_with_headers)
        else:
            refused = PlainTextResponse(f"{status.phrase}\n", status)
            await refused(scope, receive, send_with_headers)

    def _refusal(self, path: str, headers: Headers) -> HTTPStatus | None:
        host, origin = headers.get("host"), headers.get("origin")
        if host not in self._hosts:
            return HTTPStatus.MISDIRECTED_REQUEST
        is_foreign = origin is not None and origin != f"http://{host}"
        is_from_here = headers.get("sec-fetch-site", "none") in {"same-origin", "none"}
        # A link may lead here from anywhere: the page itself says nothing of the cluster.
        is_opened = path == "/" and headers.get("sec-fetch-mode") == "navigate"
        if is_foreign or not (is_from_here or is_opened):
            return HTTPStatus.FORBIDDEN
        given = headers.get("authorization", "").removeprefix("Bearer ").encode()
        if path.startswith("/api/") and not hmac.compare_digest(given, self._token.encode()):
            return HTTPStatus.UNAUTHORIZED
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not length.isdecimal() or int(length) > MOST_BODY:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return None


def create_app(live: Live, token: str, port: int, is_ending: Callable[[], bool]) -> ASGIApp:
    """The application; `is_ending` says when streams are to end."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    async def page(request: Request) -> Response:
        name, kind = _FILES[request.url.path]
        return Response(files(__package__).joinpath("page", name).read_bytes(), media_type=kind)

    for path in _FILES:
        app.add_route(path, page, methods=["GET"])

    @app.get("/api/stream")
    async def stream() -> StreamingResponse:
        return StreamingResponse(_events(live, is_ending), media_type="text/event-stream")

    @app.get("/api/node")
    async def node(name: str) -> Response:
        found = live.node(name)
        if found is None:
            return _problem(f"node {name} has nothing to do with accelbind", HTTPStatus.NOT_FOUND)
        try:
            events, error = await live.events(name), ""
        except AccelbindError as failure:
            events, error = [], str(failure)
        body = msgspec.to_builtins(found)
        return JSONResponse({"node": body, "events": events, "error": error})

    @app.get("/api/names")
    async def names(namespace: str) -> Response:
        try:
            found = await read_names(live.client, live.policy, namespace)
            return JSONResponse(found.document())
        except AccelbindError as error:
            return _problem(str(error))

    @app.post("/api/explain")
    async def explain(request: Request) -> Response:
        try:
            asked = json.loads(await request.body())
            return JSONResponse(await _explained(live, str(asked["namespace"]), str(asked["text"])))
        except RecursionError:
            return _problem("the text is nested too deeply")
        except (ValueError, TypeError, KeyError, yaml.YAMLError, AccelbindError) as error:
            return _problem(str(error) or type(error).__name__)

    return Guarded(app, token, port)


async def _events(live: Live, is_ending: Callable[[], bool]) -> AsyncIterator[bytes]:
    async for shown in live.watch(is_ending, HEARTBEAT_SECONDS):
        # A comment, for which a connection that has gone is noticed.
        yield b":\n\n" if shown is None else b"data: " + msgspec.json.encode(shown) + b"\n\n"


async def _explained(live: Live, namespace: str, text: str) -> Json:
    """What becomes of a container with these limits, as YAML: a line per fact, and the pod.

    Raises:
        InvalidManifest: The text is no mapping of names to numbers.
        ClusterError: The API server does not say.
    """
    limits = yaml.safe_load(text)
    if not isinstance(limits, dict) or not all(map(_is_limit, limits, limits.values())):
        raise InvalidManifest(f"write a name and a number per line, such as {_EXAMPLE}")
    container: Json = {"name": "main", "image": "image", "resources": {"limits": limits}}
    manifest: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": namespace},
        "spec": {"containers": [container]},
    }
    asked = Asked([*find_pods(manifest)], [namespace], (), live.policy)
    (answer,) = await asked.on_cluster(live.client)
    said = [each if isinstance(each, str) else each[1] for each in lines(answer)]
    return {
        "refused": answer.is_refused,
        "lines": [*said, *answer.hints],
        "pod": yaml_text(answer.after).rstrip("\n") if answer.after else "",
    }


def _is_limit(name: object, number: object) -> bool:
    # Lists that repeat lists by aliases would be billions of values once they are written.
    return isinstance(name, str) and isinstance(number, str | int | float | None)


def _problem(text: str, status: HTTPStatus = HTTPStatus.UNPROCESSABLE_ENTITY) -> JSONResponse:
    body: dict[str, Any] = {"error": text}
    return JSONResponse(body, status)
