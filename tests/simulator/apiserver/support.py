"""Clients of the API server stand-in, objects for it, and a webhook that it calls."""

import base64
import json
import ssl
from typing import Any, Self, TypeAlias

import httpx2

from simulator.apiserver.http_server import HttpServer, Request, Response, make_pair
from simulator.apiserver.standin import ApiServerStandIn
from tests.services import building

Json: TypeAlias = dict[str, Any]
CRS = "/apis/fpga.intel.com/v2"
FUNCTIONS = f"{CRS}/namespaces/default/acceleratorfunctions"
PODS = "/api/v1/namespaces/default/pods"
CONFIGS = "/apis/admissionregistration.k8s.io/v1"
MERGE = {"Content-Type": "application/merge-patch+json"}
PHYSICAL = building.AF_NLB0


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
    usual = building.function(name, "af")
    return usual | {"spec": usual["spec"] | spec}


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


class FakeWebhook:
    """A webhook over TLS that allows everything, and remembers what it was asked."""

    def __init__(self) -> None:
        self.pair = make_pair(["127.0.0.1"])
        self.asked: list[Request] = []
        self.server = HttpServer(self._allow)

    async def __aenter__(self) -> Self:
        await self.server.listen("127.0.0.1", 0, self.pair.context())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close(0.1)

    async def _allow(self, request: Request) -> Response:
        self.asked.append(request)
        answer = {"uid": json.loads(request.body)["request"]["uid"], "allowed": True}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return Response(200, json.dumps(review | {"response": answer}).encode())

    def config(self) -> Json:
        """The configuration of a webhook for pods that are created."""
        bundle = base64.b64encode(self.pair.authority).decode()
        rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"]}
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "hooks"},
            "webhooks": [
                {
                    "name": "mutate.test.example",
                    "clientConfig": {
                        "url": f"https://127.0.0.1:{self.server.port}/mutate",
                        "caBundle": bundle,
                    },
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                    "rules": [rule | {"resources": ["pods"]}],
                }
            ],
        }


async def register(http: httpx2.AsyncClient, webhook: FakeWebhook) -> None:
    await created(http, f"{CONFIGS}/mutatingwebhookconfigurations", webhook.config())
