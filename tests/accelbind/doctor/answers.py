"""A cluster for the doctor's tests: the API server stand-in and what it doesn't serve itself."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from accelbind.doctor.cluster import Cluster
from accelbind.doctor.command import CLUSTER
from accelbind.doctor.model import Result, run_check
from certs.folder import issue
from services.admission.mutate import Policy
from simulator.apiserver.http_server import HttpServer, Request, Response
from simulator.apiserver.standin import ApiServerStandIn
from tests.simulator.apiserver.support import node_with
from tests.support import REPOSITORY

Json: TypeAlias = dict[str, Any]
Answers: TypeAlias = Callable[[Request], Json | int | None]

SYSTEM = "accelbind-system"


def documents(*names: str) -> list[Json]:
    return [
        document
        for name in names
        for document in yaml.safe_load_all((REPOSITORY / "manifests" / name).read_text())
    ]


def configurations(url: str, bundle: bytes) -> list[Json]:
    """Both webhook configurations of the manifests, with a URL instead of the Service."""
    found = documents("base/webhook-mutating.yaml", "base/webhook-validating.yaml")
    for entry in (entry for one in found for entry in one["webhooks"]):
        path = entry["clientConfig"]["service"]["path"]
        entry["clientConfig"] = {"url": url + path, "caBundle": base64.b64encode(bundle).decode()}
    return found


@contextmanager
def answering(api: ApiServerStandIn, answers: Answers) -> Iterator[None]:
    """Have the stand-in give these answers: an object, an error or its code, None for its own."""

    def matches(request: Request) -> bool:
        return answers(request) is not None

    def respond(request: Request) -> Response:
        answer = answers(request)
        if not isinstance(answer, dict):
            answer = {"kind": "Status", "code": answer, "message": "as the test says"}
        code = answer.get("code", 201 if "status" in answer else 200)
        return Response(code, json.dumps(answer).encode())

    with api.faults.answering(respond, matches=matches):
        yield


def items(path: str, *objects: Json) -> Answers:
    """A list at a path."""

    def answer(request: Request) -> Json | None:
        return {"metadata": {}, "items": list(objects)} if request.path == path else None

    return answer


def one(path: str, answer: Json | int) -> Answers:
    """An object at a path, or the code of an error."""
    return lambda request: answer if request.path == path else None


def denied(part: str) -> Answers:
    """Nobody may see paths with this part."""
    return lambda request: 403 if part in request.path else None


def first_of(*several: Answers) -> Answers:
    """What the first of several has to say."""

    def answer(request: Request) -> Json | int | None:
        found = (each(request) for each in several)
        return next((each for each in found if each is not None), None)

    return answer


def daemonset(name: str = "accelbind-plugin", mode: str = "af", **spec: Any) -> Json:
    """The plugin's DaemonSet of the manifests, with a mode and changes of its pods' spec."""
    (found,) = documents("pools/af/plugin.yaml")
    pods = found["spec"]["template"]["spec"]
    found["metadata"]["name"] = name
    for each in pods["containers"][0]["env"]:
        if each["name"] == "ACCELBIND_MODE":
            each["value"] = mode
    pods |= spec
    return {**found, "status": {"desiredNumberScheduled": 1, "numberReady": 1}}


def plugin_on(
    node: str, of: str = "accelbind-plugin", phase: str = "Running", mode: str = ""
) -> Json:
    """A pod of a DaemonSet, in whose spec a mode may be."""
    container = {
        "name": "plugin",
        "ports": [{"name": "metrics", "containerPort": 9102}],
        "env": [{"name": "ACCELBIND_MODE", "value": mode}] if mode else None,
    }
    return {
        "metadata": {
            "name": f"{of}-{node}",
            "namespace": SYSTEM,
            "labels": {"app.kubernetes.io/component": "accelbind-plugin"},
            "ownerReferences": [{"kind": "DaemonSet", "name": of, "controller": True}],
        },
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def says(mode: str, *resources: str, **more: Any) -> Json:
    """The answer of a plugin that offers a healthy device of each of these resources."""
    rows = [{"device": f"d-{each}", "resource": each, "health": "Healthy"} for each in resources]
    return {"mode": mode, "source": "plugin", "devices": rows} | more


def pools(daemonsets: list[Json], pods: list[Json], **answers: Json) -> Answers:
    """A cluster with these DaemonSets and pods of the plugin, and what they answer, by node."""

    def proxied(request: Request) -> Json | int | None:
        if "/proxy/" not in request.path:
            return None
        node = request.path.partition(":9102/proxy")[0].rpartition("-")[2]
        answer = answers.get(node, 403)
        return {"node": node} | answer if isinstance(answer, dict) else answer

    return first_of(
        proxied,
        items(f"/apis/apps/v1/namespaces/{SYSTEM}/daemonsets", *daemonsets),
        items("/api/v1/pods", *pods),
    )


def account(request: Request) -> Json | None:
    """Know all accounts."""
    if "/serviceaccounts/" not in request.path:
        return None
    return {"metadata": {"name": request.path.rpartition("/")[2]}}


def policies() -> list[Json]:
    """The policies of the certificates' account, and their bindings."""
    return documents("base/certs-policy.yaml")


def with_policies(found: list[Json]) -> Answers:
    """An API server that has these of `policies`."""
    group = "/apis/admissionregistration.k8s.io/v1"
    bindings = [each for each in found if each["kind"].endswith("Binding")]
    return first_of(
        items(f"{group}/validatingadmissionpolicybindings", *bindings),
        *(
            one(f"{group}/validatingadmissionpolicies/{each['metadata']['name']}", each)
            for each in found
            if each not in bindings
        ),
    )


@asynccontextmanager
async def serving(folder: Path, *names: str) -> AsyncIterator[tuple[int, bytes]]:
    """A webhook that refuses each pod; gives the port and the CA."""

    async def refuse(request: Request) -> Response:
        uid = json.loads(request.body)["request"]["uid"]
        refusal = {"uid": uid, "allowed": False, "status": {"message": "no such name"}}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return Response(200, json.dumps(review | {"response": refusal}).encode())

    issued = issue(folder, names or ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    server = HttpServer(refuse)
    await server.listen("127.0.0.1", 0, context)
    try:
        yield server.port, issued.ca_certificate.read_bytes()
    finally:
        await server.close(1)


async def looked(api: ApiServerStandIn, *, only: str = "cluster.") -> dict[str, Result]:
    """What comes of the checks of a cluster, by id, while this event loop serves it."""
    cluster = Cluster(lambda: api.access, SYSTEM, Policy())

    def look() -> dict[str, Result]:
        chosen = {name: check for name, check in CLUSTER.items() if name.startswith(only)}
        return {name: run_check(name, check, cluster) for name, check in chosen.items()}

    return await asyncio.to_thread(look)


def told(result: Result) -> str:
    return "\n".join(f"{line.state}: {line.what} → {line.todo}" for line in result.lines)


def labelled(name: str, amounts: Json, *taints: Json) -> Json:
    """A node with the label for plugins."""
    made = node_with(name, amounts)
    made["metadata"]["labels"] = {"kubernetes.io/os": "linux", "accelbind.dev/plugin": "true"}
    made["spec"] = {"taints": list(taints)}
    return made


def published(
    node: str, *devices: Json, generation: int = 1, driver: str = "accelbind.dev"
) -> Json:
    """A slice of a DRA driver."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}-{generation}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": [
                {"name": f"d{number}", **each} for number, each in enumerate(devices, start=1)
            ],
        },
    }


def attributes(**values: str) -> Json:
    """A device with these attributes."""
    return {"attributes": {name: {"string": value} for name, value in values.items()}}


def device_class(name: str, resource: str = "", expression: str = "") -> Json:
    """A DeviceClass, for a resource if that is named."""
    spec: Json = {"extendedResourceName": resource} if resource else {}
    spec |= {"selectors": [{"cel": {"expression": expression}}]} if expression else {}
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    return {**made, "metadata": {"name": name}, "spec": spec}


async def expect(
    api: ApiServerStandIn,
    check: str,
    state: str,
    *words: str,
    answers: Answers | None = None,
) -> Result:
    """Have a check of the cluster, with these answers, find a state and say these words."""
    with answering(api, answers or (lambda _: None)):
        result = (await looked(api, only=check))[check]
    text = told(result)
    assert (result.state, [word for word in words if word not in text]) == (state, []), text
    return result
