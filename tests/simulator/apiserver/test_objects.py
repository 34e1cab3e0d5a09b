"""Objects: created, read, replaced, patched and deleted, and the errors on the way."""

import asyncio
import json
import ssl

import httpx2
import pytest

from simulator.apiserver.standin import ApiServerStandIn
from tests.simulator.apiserver.support import (
    CRS,
    FUNCTIONS,
    MERGE,
    NODES,
    PODS,
    Json,
    created,
    function,
    node,
    pod,
)

pytestmark = pytest.mark.anyio
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}


async def test_without_a_token_the_answer_is_401(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    answer = await http.get(FUNCTIONS, headers={"Authorization": ""})
    assert answer.status_code == 401
    assert answer.text == (
        '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        '"message":"Unauthorized","reason":"Unauthorized","code":401}\n'
    )
    assert api.port


async def test_health_needs_no_token(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/readyz", headers={"Authorization": ""})
    assert (answer.status_code, answer.text) == (200, "ok")


async def test_a_created_object_gets_its_system_fields(http: httpx2.AsyncClient) -> None:
    made = await created(http, FUNCTIONS, function())
    metadata = made["metadata"]
    assert metadata["generation"] == 1
    assert metadata["namespace"] == "default"
    assert len(metadata["uid"]) == 36
    assert (await http.get(f"{FUNCTIONS}/nlb0")).json() == made


async def test_revisions_only_grow(http: httpx2.AsyncClient) -> None:
    first = await created(http, FUNCTIONS, function("a"))
    second = await created(http, PODS, pod("b"))
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])


async def test_a_name_can_be_generated(http: httpx2.AsyncClient) -> None:
    item = function()
    item["metadata"] = {"generateName": "many-"}
    one, other = [(await created(http, FUNCTIONS, item))["metadata"]["name"] for _ in range(2)]
    assert one != other
    assert one.startswith("many-")


async def test_a_taken_name_is_a_409(http: httpx2.AsyncClient) -> None:
    await created(http, FUNCTIONS, function())
    answer = await http.post(FUNCTIONS, json=function())
    assert answer.status_code == 409
    status = answer.json()
    assert status["reason"] == "AlreadyExists"
    assert status["message"] == 'acceleratorfunctions.fpga.intel.com "nlb0" already exists'
    assert status["details"] == {
        "name": "nlb0",
        "group": "fpga.intel.com",
        "kind": "acceleratorfunctions",
    }


async def test_a_missing_object_is_a_404(http: httpx2.AsyncClient) -> None:
    answer = await http.get(f"{PODS}/nobody")
    assert answer.status_code == 404
    assert answer.json()["message"] == 'pods "nobody" not found'


@pytest.mark.parametrize(
    "path",
    [
        "/nonsense",
        "/apis/fpga.intel.com/v1/acceleratorfunctions",
        "/api/v1/configmaps",
        f"{FUNCTIONS}/nlb0/scale",
        "/api/v1/pods/p",
        "/api/v1/namespaces/default/nodes",
    ],
)
async def test_a_path_that_names_nothing_is_a_404(http: httpx2.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert answer.status_code == 404
    assert answer.json()["message"] == "the server could not find the requested resource"


async def test_nothing_can_be_created_in_a_missing_namespace(http: httpx2.AsyncClient) -> None:
    path = FUNCTIONS.replace("default", "nowhere")
    answer = await http.post(path, json=function())
    assert answer.status_code == 404
    assert answer.json()["message"] == 'namespaces "nowhere" not found'


async def test_an_object_of_another_namespace_or_kind_is_refused(
    http: httpx2.AsyncClient,
) -> None:
    item = function()
    item["metadata"]["namespace"] = "other"
    answer = await http.post(FUNCTIONS, json=item)
    assert answer.status_code == 400
    assert "does not match the namespace" in answer.json()["message"]
    answer = await http.post(PODS, json=function())
    assert answer.status_code == 400
    assert "does not match the expected API version (v1)" in answer.json()["message"]
    answer = await http.post(PODS, json=pod() | {"kind": "Node"})
    assert answer.status_code == 400


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b'{"metadata":[]}'])
async def test_a_body_that_is_no_object_is_a_400(http: httpx2.AsyncClient, body: bytes) -> None:
    answer = await http.post(PODS, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["reason"] == "BadRequest"


async def test_another_content_type_is_a_415(http: httpx2.AsyncClient) -> None:
    kind = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    answer = await http.post(PODS, content=b"k8s\0", headers=kind)
    assert answer.status_code == 415


async def test_a_body_over_three_mebibytes_is_a_413(http: httpx2.AsyncClient) -> None:
    answer = await http.post(PODS, content=b" " * (3 * 2**20 + 1))
    assert answer.status_code == 413


async def test_a_bad_name_is_refused_with_the_rule(http: httpx2.AsyncClient) -> None:
    answer = await http.post(FUNCTIONS, json=function("Not_A_Name"))
    assert answer.status_code == 422
    assert "a lowercase RFC 1123 subdomain must consist of" in answer.json()["message"]
    assert answer.json()["details"]["causes"][0]["field"] == "metadata.name"


async def test_a_put_replaces_and_counts_the_generation(http: httpx2.AsyncClient) -> None:
    made = await created(http, FUNCTIONS, function())
    made["spec"]["mode"] = "region"
    answer = await http.put(f"{FUNCTIONS}/nlb0", json=made)
    assert answer.status_code == 200
    assert answer.json()["metadata"]["generation"] == 2
    assert answer.json()["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_put_of_an_old_version_is_a_409(http: httpx2.AsyncClient) -> None:
    made = await created(http, FUNCTIONS, function())
    made["spec"]["mode"] = "region"
    assert (await http.put(f"{FUNCTIONS}/nlb0", json=made)).status_code == 200
    made["spec"]["mode"] = "af"
    answer = await http.put(f"{FUNCTIONS}/nlb0", json=made)
    assert answer.status_code == 409
    assert "the object has been modified; please apply your changes" in answer.json()["message"]


async def test_a_put_of_a_custom_resource_needs_a_version(http: httpx2.AsyncClient) -> None:
    await created(http, FUNCTIONS, function())
    answer = await http.put(f"{FUNCTIONS}/nlb0", json=function())
    assert answer.status_code == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be" in answer.json()["message"]


async def test_a_put_that_changes_nothing_writes_nothing(http: httpx2.AsyncClient) -> None:
    made = await created(http, FUNCTIONS, function())
    answer = await http.put(f"{FUNCTIONS}/nlb0", json=made)
    assert answer.json() == made


async def test_a_merge_patch_merges_and_null_deletes(http: httpx2.AsyncClient) -> None:
    item = function()
    item["metadata"]["labels"] = {"a": "1", "b": "2"}
    await created(http, FUNCTIONS, item)
    change = {"metadata": {"labels": {"a": None, "c": "3"}}, "spec": {"mode": "region"}}
    answer = await http.patch(f"{FUNCTIONS}/nlb0", json=change, headers=MERGE)
    assert answer.json()["metadata"]["labels"] == {"b": "2", "c": "3"}
    assert answer.json()["spec"]["mode"] == "region"


async def test_a_patch_of_labels_leaves_the_generation(http: httpx2.AsyncClient) -> None:
    await created(http, FUNCTIONS, function())
    change = {"metadata": {"labels": {"a": "b"}}}
    answer = await http.patch(f"{FUNCTIONS}/nlb0", json=change, headers=MERGE)
    assert answer.json()["metadata"]["generation"] == 1


async def test_a_patch_with_a_uid_or_version_is_a_precondition(http: httpx2.AsyncClient) -> None:
    made = await created(http, FUNCTIONS, function())
    for metadata, code in (
        ({"uid": made["metadata"]["uid"]}, 200),
        ({"uid": "another"}, 409),
        ({"resourceVersion": "1"}, 409),
    ):
        answer = await http.patch(f"{FUNCTIONS}/nlb0", json={"metadata": metadata}, headers=MERGE)
        assert answer.status_code == code


async def test_a_json_patch_is_applied_in_order(http: httpx2.AsyncClient) -> None:
    await created(http, FUNCTIONS, function())
    operations = [
        {"op": "test", "path": "/spec/mode", "value": "af"},
        {"op": "replace", "path": "/spec/mode", "value": "region"},
    ]
    path = f"{FUNCTIONS}/nlb0"
    for code in (200, 422):
        answer = await http.patch(path, content=json.dumps(operations), headers=JSON_PATCH)
        assert answer.status_code == code


async def test_a_strategic_patch_merges_lists_by_their_key(http: httpx2.AsyncClient) -> None:
    await created(http, PODS, pod())
    condition = {"type": "Ready", "status": "True"}
    for wanted in ("True", "False"):
        change = {"status": {"conditions": [condition | {"status": wanted}]}}
        answer = await http.patch(f"{PODS}/p/status", json=change, headers=STRATEGIC)
        assert answer.status_code == 200
        found = {one["type"]: one["status"] for one in answer.json()["status"]["conditions"]}
        assert found["Ready"] == wanted


async def test_custom_resources_take_no_strategic_patch(http: httpx2.AsyncClient) -> None:
    await created(http, FUNCTIONS, function())
    answer = await http.patch(f"{FUNCTIONS}/nlb0", json={}, headers=STRATEGIC)
    assert answer.status_code == 415
    assert "application/merge-patch+json" in answer.json()["message"]


async def test_a_name_cant_be_patched(http: httpx2.AsyncClient) -> None:
    await created(http, FUNCTIONS, function())
    change = {"metadata": {"name": "other"}}
    answer = await http.patch(f"{FUNCTIONS}/nlb0", json=change, headers=MERGE)
    assert answer.status_code == 400


async def test_status_and_spec_are_written_apart(http: httpx2.AsyncClient) -> None:
    await created(http, NODES, node("n", cpu="4"))
    change = {"spec": {"unschedulable": True}, "status": {"capacity": {"cpu": "8"}}}
    answer = await http.patch(f"{NODES}/n", json=change, headers=MERGE)
    assert answer.json()["spec"] == {"unschedulable": True}
    assert answer.json()["status"]["capacity"] == {"cpu": "4"}
    change["spec"] = {"unschedulable": False}
    answer = await http.patch(f"{NODES}/n/status", json=change, headers=MERGE)
    assert answer.json()["spec"] == {"unschedulable": True}
    assert answer.json()["status"]["capacity"] == {"cpu": "8"}


async def test_a_deletion_answers_as_the_kind_does(http: httpx2.AsyncClient) -> None:
    made = await created(http, FUNCTIONS, function())
    answer = await http.delete(f"{FUNCTIONS}/nlb0")
    assert answer.json()["status"] == "Success"
    assert answer.json()["details"]["uid"] == made["metadata"]["uid"]
    await created(http, PODS, pod())
    assert (await http.delete(f"{PODS}/p")).json()["kind"] == "Pod"
    assert (await http.delete(f"{PODS}/p")).status_code == 404


async def test_a_deletion_heeds_its_preconditions(http: httpx2.AsyncClient) -> None:
    await created(http, FUNCTIONS, function())
    options = {"preconditions": {"uid": "another"}}
    answer = await http.request("DELETE", f"{FUNCTIONS}/nlb0", json=options)
    assert answer.status_code == 409
    assert "UID in precondition: another" in answer.json()["message"]


async def test_all_objects_of_a_collection_can_be_deleted(http: httpx2.AsyncClient) -> None:
    for name in ("a", "b"):
        await created(http, FUNCTIONS, function(name))
    answer = await http.delete(FUNCTIONS, params={"fieldSelector": "metadata.name=a"})
    assert [one["metadata"]["name"] for one in answer.json()["items"]] == ["a"]
    left = (await http.get(f"{CRS}/acceleratorfunctions")).json()["items"]
    assert [one["metadata"]["name"] for one in left] == ["b"]


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


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"afuId": "XYZ"}, "spec.afuId in body should match '^[0-9a-f]{8,40}$'"),
        ({"mode": "afregion"}, "spec.mode in body should match '^(af|region)$'"),
        ({"interfaceId": 7}, 'spec.interfaceId in body must be of type string: "integer"'),
        ({"afuId": "d8424dc4\n"}, "spec.afuId in body should match"),
    ],
)
async def test_a_mapping_that_breaks_its_schema_is_refused(
    http: httpx2.AsyncClient, spec: Json, expected: str
) -> None:
    answer = await http.post(FUNCTIONS, json=function(**spec))
    assert answer.status_code == 422
    message = answer.json()["message"]
    assert message.startswith('AcceleratorFunction.fpga.intel.com "nlb0" is invalid: spec.')
    assert expected in message


async def test_a_mapping_without_its_required_fields_is_refused(http: httpx2.AsyncClient) -> None:
    item = function()
    item["spec"] = {"mode": "af"}
    message = (await http.post(FUNCTIONS, json=item)).json()["message"]
    assert message.endswith("[spec.afuId: Required value, spec.interfaceId: Required value]")


async def test_unknown_fields_of_a_mapping_are_pruned_with_a_warning(
    http: httpx2.AsyncClient,
) -> None:
    answer = await http.post(FUNCTIONS, json=function(colour="red"))
    assert answer.headers["Warning"] == '299 - "unknown field \\"spec.colour\\""'
    assert "colour" not in answer.json()["spec"]
    strict = {"fieldValidation": "Strict"}
    answer = await http.post(FUNCTIONS, json=function("two", colour="red"), params=strict)
    assert answer.status_code == 400
    assert 'strict decoding error: unknown field "spec.colour"' in answer.json()["message"]


async def test_verbs_that_a_path_does_not_know_are_a_405(http: httpx2.AsyncClient) -> None:
    for method, path in (
        ("POST", f"{FUNCTIONS}/nlb0"),
        ("PUT", FUNCTIONS),
        ("PATCH", FUNCTIONS),
        ("OPTIONS", FUNCTIONS),
        ("POST", f"{CRS}/acceleratorfunctions"),
    ):
        answer = await http.request(method, path, json=function())
        assert answer.status_code == 405, (method, path)


async def test_discovery_names_what_is_served(http: httpx2.AsyncClient) -> None:
    groups = [one["name"] for one in (await http.get("/apis")).json()["groups"]]
    assert "fpga.intel.com" in groups
    assert (await http.get("/apis/fpga.intel.com")).json()["kind"] == "APIGroup"
    listed = (await http.get(CRS)).json()
    assert listed["groupVersion"] == "fpga.intel.com/v2"
    assert {one["name"] for one in listed["resources"]} == {"acceleratorfunctions", "fpgaregions"}
    core = {one["name"] for one in (await http.get("/api/v1")).json()["resources"]}
    assert {"pods", "pods/status", "nodes/status", "events", "secrets"} <= core
    assert (await http.get("/version")).json()["minor"] == "36"
    index = (await http.get("/openapi/v3")).json()["paths"]
    document = (await http.get(index["apis/fpga.intel.com/v2"]["serverRelativeURL"])).json()
    path = "/apis/fpga.intel.com/v2/namespaces/{namespace}/fpgaregions/{name}"
    assert document["paths"][path]["patch"]["parameters"][0]["name"] == "fieldValidation"
    assert (await http.get("/openapi/v3/apis/nothing/v1")).status_code == 404
    assert (await http.get("/apis/nothing/v1")).status_code == 404
    assert (await http.get("/api")).json()["versions"] == ["v1"]


async def test_an_answer_can_be_read_by_people(http: httpx2.AsyncClient) -> None:
    await created(http, FUNCTIONS, function())
    pretty = await http.get(f"{FUNCTIONS}/nlb0", headers={"User-Agent": "curl/8.0"})
    assert pretty.text.startswith('{\n  "apiVersion"')
    plain = await http.get(f"{FUNCTIONS}/nlb0")
    assert plain.json() == pretty.json()
    assert plain.text.endswith("}\n")


async def test_an_object_without_any_name_is_refused(http: httpx2.AsyncClient) -> None:
    answer = await http.post(FUNCTIONS, json=function() | {"metadata": {}})
    assert answer.status_code == 422
    assert "name or generateName is required" in answer.json()["message"]


async def test_the_name_in_a_put_must_be_that_of_its_path(http: httpx2.AsyncClient) -> None:
    await created(http, FUNCTIONS, function())
    answer = await http.put(f"{FUNCTIONS}/nlb0", json=function("other"))
    assert answer.status_code == 400
    assert "does not match the name on the URL" in answer.json()["message"]


async def test_a_client_may_ask_before_it_sends_its_body(
    api: ApiServerStandIn, trusting: ssl.SSLContext
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port, ssl=trusting)
    body = json.dumps(function()).encode()
    head = (
        f"POST {FUNCTIONS} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\n"
        f"Authorization: Bearer {api.tokens.admin}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode())
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    assert (await reader.readline()).startswith(b"HTTP/1.1 201 ")
    await reader.read()
    writer.close()
    await writer.wait_closed()


async def test_a_slow_reader_gets_all_of_a_long_list(
    api: ApiServerStandIn, trusting: ssl.SSLContext
) -> None:
    for number in range(20_000):
        api.seed(function(f"f{number:05}"))
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port, ssl=trusting, limit=1024)
    head = f"GET {FUNCTIONS} HTTP/1.1\r\nAuthorization: Bearer {api.tokens.admin}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode())
    text = await reader.read(100)
    await asyncio.sleep(0.5)  # while the server has written all, and closed
    text += await reader.read()
    body = text.partition(b"\r\n\r\n")[2]
    assert len(json.loads(body)["items"]) == 20_000
    writer.close()
    await writer.wait_closed()
