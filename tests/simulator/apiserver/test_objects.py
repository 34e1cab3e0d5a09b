"""Objects: created, read, replaced, patched and deleted, and the errors on the way."""

import httpx2
import pytest

from tests.simulator.apiserver.support import (
    FUNCTIONS,
    MERGE,
    NODES,
    PODS,
    Json,
    created,
    function,
    node_with,
    pod,
)

pytestmark = pytest.mark.anyio
EXTENDED = "fpga.intel.com/nlb0"
SECRETS = "/api/v1/namespaces/default/secrets"
NAMESPACES = "/api/v1/namespaces"


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("POST", FUNCTIONS, function(), (409, "AlreadyExists")),
        ("GET", f"{PODS}/nobody", None, (404, "NotFound")),
        ("POST", PODS, [], (400, "BadRequest")),
        ("POST", PODS, function(), (400, "BadRequest")),
        ("POST", PODS.replace("default", "nowhere"), pod(), (404, "NotFound")),
        ("POST", f"{FUNCTIONS}/nlb0", function(), (405, "MethodNotAllowed")),
        ("GET", "/api/v1/nothing", None, (404, "NotFound")),
    ],
)
async def test_what_cant_be_done_is_answered_with_a_status(
    http: httpx2.AsyncClient, method: str, path: str, body: object, expected: tuple[int, str]
) -> None:
    await created(http, FUNCTIONS, function())
    answer = await http.request(method, path, json=body)
    assert (answer.status_code, answer.json()["reason"]) == expected


async def test_without_a_token_the_answer_is_401(http: httpx2.AsyncClient) -> None:
    answer = await http.get(FUNCTIONS, headers={"Authorization": ""})
    assert answer.json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    }


async def test_a_put_replaces_the_version_that_it_names(http: httpx2.AsyncClient) -> None:
    made = await created(http, FUNCTIONS, function())
    made["spec"]["mode"] = "region"
    answer = await http.put(f"{FUNCTIONS}/nlb0", json=made)
    assert answer.json()["metadata"]["generation"] == 2
    assert answer.json()["metadata"]["uid"] == made["metadata"]["uid"]
    made["spec"]["mode"] = "af"
    answer = await http.put(f"{FUNCTIONS}/nlb0", json=made)
    assert (answer.status_code, answer.json()["reason"]) == (409, "Conflict")


async def test_a_merge_patch_merges_and_null_deletes(http: httpx2.AsyncClient) -> None:
    item = function()
    item["metadata"]["labels"] = {"a": "1", "b": "2"}
    await created(http, FUNCTIONS, item)
    change = {"metadata": {"labels": {"a": None, "c": "3"}}, "spec": {"mode": "region"}}
    answer = await http.patch(f"{FUNCTIONS}/nlb0", json=change, headers=MERGE)
    assert answer.json()["metadata"]["labels"] == {"b": "2", "c": "3"}
    assert answer.json()["spec"]["mode"] == "region"


async def test_status_and_spec_are_written_apart(http: httpx2.AsyncClient) -> None:
    await created(http, NODES, node_with("n", {"cpu": "4"}))
    change = {"spec": {"unschedulable": True}, "status": {"capacity": {"cpu": "8"}}}
    answer = await http.patch(f"{NODES}/n", json=change, headers=MERGE)
    assert answer.json()["spec"] == {"unschedulable": True}
    assert answer.json()["status"]["capacity"] == {"cpu": "4"}
    change["spec"] = {"unschedulable": False}
    answer = await http.patch(f"{NODES}/n/status", json=change, headers=MERGE)
    assert answer.json()["spec"] == {"unschedulable": True}
    assert answer.json()["status"]["capacity"] == {"cpu": "8"}


async def test_a_dry_run_stores_nothing(http: httpx2.AsyncClient) -> None:
    dry = {"dryRun": "All"}
    made = await created(http, FUNCTIONS, function(), **dry)
    assert "resourceVersion" not in made["metadata"]
    assert (await http.get(f"{FUNCTIONS}/nlb0")).status_code == 404
    await created(http, FUNCTIONS, function())
    change = {"spec": {"mode": "region"}}
    answer = await http.patch(f"{FUNCTIONS}/nlb0", json=change, headers=MERGE, params=dry)
    assert answer.json()["spec"]["mode"] == "region"
    assert (await http.delete(f"{FUNCTIONS}/nlb0", params=dry)).is_success
    assert (await http.get(f"{FUNCTIONS}/nlb0")).json()["spec"]["mode"] == "af"


async def test_server_side_apply_creates_and_then_merges(http: httpx2.AsyncClient) -> None:
    async def apply(text: str, **params: str) -> httpx2.Response:
        kind = {"Content-Type": "application/apply-patch+yaml"}
        return await http.patch(f"{SECRETS}/s", content=text, params=params, headers=kind)

    text = "{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {a: YQ==}, type: Opaque}"
    assert (await apply(text, dryRun="All")).status_code == 201
    assert (await http.get(f"{SECRETS}/s")).status_code == 404
    assert (await apply(text)).status_code == 201
    changed = await apply(text.replace("a: YQ", "b: Yg"))
    assert (changed.status_code, changed.json()["data"]) == (200, {"a": "YQ==", "b": "Yg=="})


async def test_a_pod_on_a_node_waits_for_its_kubelet_and_a_namespace_for_its_pods(
    http: httpx2.AsyncClient,
) -> None:
    made = await created(http, NAMESPACES, {"metadata": {"name": "team"}})
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
    pods = PODS.replace("default", "team")
    await created(http, FUNCTIONS.replace("default", "team"), function())
    uid = (await created(http, pods, pod(nodeName="n")))["metadata"]["uid"]
    assert (await http.delete(f"{NAMESPACES}/team")).json()["status"]["phase"] == "Terminating"
    left = (await http.get(f"{pods}/p")).json()["metadata"]
    assert left["deletionGracePeriodSeconds"] == 30
    for wanted, code in (("another", 409), (uid, 200)):
        now = {"gracePeriodSeconds": 0, "preconditions": {"uid": wanted}}
        assert (await http.request("DELETE", f"{pods}/p", json=now)).status_code == code
    assert (await http.get(f"{NAMESPACES}/team")).status_code == 404
    assert (await http.get(FUNCTIONS.replace("default", "team"))).json()["items"] == []


async def test_a_crd_is_served_from_its_creation_to_its_deletion(http: httpx2.AsyncClient) -> None:
    size = {"type": "string", "maxLength": 2, "default": "S"}
    definition = {
        "metadata": {"name": "widgets.test.example"},
        "spec": {
            "group": "test.example",
            "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"size": size}}},
                }
            ],
        },
    }
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    widgets = "/apis/test.example/v1/widgets"
    made = await created(http, crds, definition)
    assert {"type": "Established", "status": "True"} in made["status"]["conditions"]
    named = {"metadata": {"name": "w"}}
    stored = await created(http, widgets, named | {"odd": 1})
    assert stored["size"] == "S"
    assert "odd" not in stored
    for change, params, code in (
        ({"size": "XXL"}, {}, 422),
        ({"odd": 1}, {"fieldValidation": "Strict"}, 400),
    ):
        answer = await http.post(widgets, json=named | change, params=params)
        assert answer.status_code == code
    await http.delete(f"{crds}/widgets.test.example")
    assert (await http.get(widgets)).status_code == 404


@pytest.mark.parametrize(
    ("limits", "requests", "expected"),
    [
        ({EXTENDED: "2"}, {EXTENDED: "1"}, f"must be equal to {EXTENDED} limit of 2"),
        ({}, {EXTENDED: "1"}, "Limit must be set for non overcommitable resources"),
        ({EXTENDED: "500m"}, {}, "must be an integer"),
        ({"fpga": "1"}, {}, "must be a standard resource type or fully qualified"),
        ({"fpga.intel.com/-x": "1"}, {}, "must be a qualified name"),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "2"}, "less than or equal to cpu limit of 1"),
    ],
)
async def test_resources_that_cant_be_are_refused(
    http: httpx2.AsyncClient, limits: Json, requests: Json, expected: str
) -> None:
    item = pod()
    item["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": requests}
    answer = await http.post(PODS, json=item)
    assert answer.status_code == 422
    assert expected in answer.json()["message"]
