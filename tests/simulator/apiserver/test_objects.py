"""Objects: created, read, replaced, patched and deleted, and the errors on the way."""

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


async def test_a_created_object_gets_its_system_fields(http: httpx2.AsyncClient) -> None:
    made = await created(http, FUNCTIONS, function())
    metadata = made["metadata"]
    assert metadata["generation"] == 1
    assert metadata["namespace"] == "default"
    assert len(metadata["uid"]) == 36
    assert (await http.get(f"{FUNCTIONS}/nlb0")).json() == made


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


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b'{"metadata":[]}'])
async def test_a_body_that_is_no_object_is_a_400(http: httpx2.AsyncClient, body: bytes) -> None:
    answer = await http.post(PODS, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["reason"] == "BadRequest"


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


async def test_a_merge_patch_merges_and_null_deletes(http: httpx2.AsyncClient) -> None:
    item = function()
    item["metadata"]["labels"] = {"a": "1", "b": "2"}
    await created(http, FUNCTIONS, item)
    change = {"metadata": {"labels": {"a": None, "c": "3"}}, "spec": {"mode": "region"}}
    answer = await http.patch(f"{FUNCTIONS}/nlb0", json=change, headers=MERGE)
    assert answer.json()["metadata"]["labels"] == {"b": "2", "c": "3"}
    assert answer.json()["spec"]["mode"] == "region"


async def test_a_strategic_patch_merges_lists_by_their_key(http: httpx2.AsyncClient) -> None:
    await created(http, PODS, pod())
    condition = {"type": "Ready", "status": "True"}
    for wanted in ("True", "False"):
        change = {"status": {"conditions": [condition | {"status": wanted}]}}
        answer = await http.patch(f"{PODS}/p/status", json=change, headers=STRATEGIC)
        assert answer.status_code == 200
        found = {one["type"]: one["status"] for one in answer.json()["status"]["conditions"]}
        assert found["Ready"] == wanted


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


SECRETS = "/api/v1/namespaces/default/secrets"


async def test_server_side_apply_creates_and_then_merges(http: httpx2.AsyncClient) -> None:
    async def apply(text: str, **params: str) -> httpx2.Response:
        kind = {"Content-Type": "application/apply-patch+yaml"}
        return await http.patch(f"{SECRETS}/s", content=text, params=params, headers=kind)

    text = "{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {a: YQ==}, type: Opaque}"
    assert (await apply(text)).status_code == 422, "fieldManager is required"
    dry = await apply(text, fieldManager="test", dryRun="All")
    assert (dry.status_code, dry.json()["data"]) == (201, {"a": "YQ=="})
    assert (await http.get(f"{SECRETS}/s")).status_code == 404
    assert (await apply(text, fieldManager="test")).status_code == 201
    changed = await apply(text.replace("a: YQ", "b: Yg"), fieldManager="test", force="true")
    assert (changed.status_code, changed.json()["data"]) == (200, {"a": "YQ==", "b": "Yg=="})
