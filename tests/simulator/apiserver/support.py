"""What the tests of the API server stand-in share: clients, objects, a webhook that can be told."""

import asyncio
import base64
import inspect
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any, Self, TypeAlias

import httpx2
import pytest

from simulator.apiserver.http_server import HttpServer, Request, Response, make_pair
from simulator.apiserver.standin import ApiServerStandIn

Json: TypeAlias = dict[str, Any]
needs_cel = pytest.mark.skipif(
    find_spec("cel_expr_python") is None, reason="cel-expr-python is not installed"
)
CRS = "/apis/fpga.intel.com/v2"
FUNCTIONS = f"{CRS}/namespaces/default/acceleratorfunctions"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
CONFIGS = "/apis/admissionregistration.k8s.io/v1"
MERGE = {"Content-Type": "application/merge-patch+json"}
PHYSICAL = "fpga.intel.com/af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"


def client_of(api: ApiServerStandIn) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=api.url,
        verify=ssl.create_default_context(cadata=api.authority.decode()),
        headers={
            "Authorization": f"Bearer {api.token}",
            "User-Agent": "test-client/1.0 (linux)",
        },
        timeout=60,
    )


def function(name: str = "nlb0", **spec: Any) -> Json:
    return {
        "apiVersion": "fpga.intel.com/v2",
        "kind": "AcceleratorFunction",
        "metadata": {"name": name},
        "spec": {
            "afuId": "d8424dc4a4a3c413f89e433683f9040b",
            "interfaceId": "ce48969398f05f33946d560708be108a",
            "mode": "af",
        }
        | spec,
    }


def pod(name: str = "p", resource: str = "", count: object = 1, **spec: Any) -> Json:
    container: Json = {"name": "c", "image": "reg/app:1"}
    if resource:
        container["resources"] = {"limits": {resource: count}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container]} | spec,
    }


def node_with(name: str, amounts: dict[str, object]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


async def created(http: httpx2.AsyncClient, path: str, item: Json, **params: str) -> Json:
    answer = await http.post(path, json=item, params=params)
    assert answer.status_code == 201, answer.text
    result: Json = answer.json()
    return result


class WatchReader:
    """The lines of a watch, as they come."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._pieces = response.aiter_bytes()
        self.unread = b""

    async def event(self) -> Json:
        async with asyncio.timeout(60):
            while b"\n" not in self.unread:
                self.unread += await anext(self._pieces)
        line, _, self.unread = self.unread.partition(b"\n")
        result: Json = json.loads(line)
        return result

    async def rest(self) -> bytes:
        async with asyncio.timeout(60):
            async for piece in self._pieces:
                self.unread += piece
        return self.unread


@asynccontextmanager
async def watching(
    http: httpx2.AsyncClient, path: str, **params: str
) -> AsyncIterator[WatchReader]:
    async with http.stream("GET", path, params={"watch": "1"} | params) as response:
        assert response.status_code == 200
        yield WatchReader(response)


Answer: TypeAlias = Callable[[Json], Json | Response | Awaitable[Json | Response]]


def _allow(_: Json) -> Json:
    return {"allowed": True}


class FakeWebhook:
    """A webhook over TLS that answers by path as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.pair = make_pair(["127.0.0.1", "hook.tools.svc"])
        self.asked: list[Request] = []
        self.answers: dict[str, Answer] = {}
        self.server = HttpServer(self._handle)

    async def __aenter__(self) -> Self:
        await self.server.listen("127.0.0.1", 0, self.pair.context())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close(0.1)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server.port}"

    @property
    def bundle(self) -> str:
        return base64.b64encode(self.pair.certificate).decode()

    def reviews(self) -> list[Json]:
        return [json.loads(request.body)["request"] for request in self.asked]

    async def _handle(self, request: Request) -> Response:
        self.asked.append(request)
        asked = json.loads(request.body)["request"]
        answer = self.answers.get(request.path, _allow)(asked)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Response):
            return answer
        return review(answer | {"uid": answer.get("uid", asked["uid"])})

    def config(self, name: str = "hooks", *, kind: str = "Mutating", **hooks: Json) -> Json:
        """A configuration whose webhooks are called at `/NAME`, in the order given."""
        defaults: Json = {
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [
                {
                    "operations": ["CREATE"],
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["pods"],
                }
            ],
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": f"{hook}.test.example",
                    "clientConfig": {"url": f"{self.url}/{hook}", "caBundle": self.bundle},
                }
                | defaults
                | fields
                for hook, fields in hooks.items()
            ],
        }


def review(response: Json, **outer: str) -> Response:
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"} | outer
    return Response(200, json.dumps(body | {"response": response}).encode())


def patch(*operations: Json) -> Json:
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


async def register(http: httpx2.AsyncClient, config: Json) -> None:
    kind = config["kind"].lower()
    await created(http, f"{CONFIGS}/{kind}s", config)
