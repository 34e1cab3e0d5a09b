"""Webhooks as a real API server calls them: selection, patches, failures, warnings, audit."""

import asyncio
import base64
import json
from typing import Any

import httpx2
import pytest

from simulator.apiserver.crd import compile_expression
from simulator.apiserver.http_server import Response, make_pair
from simulator.apiserver.standin import ApiServerStandIn
from tests.simulator.apiserver.support import (
    FUNCTIONS,
    MERGE,
    PHYSICAL,
    PODS,
    FakeWebhook,
    Json,
    created,
    function,
    needs_cel,
    patch,
    pod,
    register,
    review,
)

pytestmark = pytest.mark.anyio
ASKS_FOR_FPGA = """
(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c,
  c.?resources.?limits.orValue({}).exists(k, k.startsWith('fpga.intel.com/')) ||
  c.?resources.?requests.orValue({}).exists(k, k.startsWith('fpga.intel.com/')))
"""
ANNOTATE = patch({"op": "add", "path": "/metadata/annotations", "value": {"x": "yes"}})


def rules(*operations: str) -> Json:
    """A hook for these operations on mappings."""
    rule: Json = {"operations": list(operations), "apiVersions": ["v2"], "resources": ["*"]}
    return {"rules": [rule | {"apiGroups": ["fpga.intel.com"]}]}


async def test_a_patch_is_applied_and_the_pod_defaulted_again(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    logical = "fpga.intel.com/arria10-nlb0"
    base, escaped = "/spec/containers/0/resources", logical.replace("/", "~1")
    webhook.answers["/mutate"] = lambda _: patch(
        {"op": "remove", "path": f"{base}/limits/{escaped}"},
        {"op": "remove", "path": f"{base}/requests/{escaped}"},
        {"op": "add", "path": f"{base}/limits/{PHYSICAL.replace('/', '~1')}", "value": 2},
    )
    await register(http, webhook.config(mutate={}))
    made = await created(http, PODS, pod(resource=logical, count=2))
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {PHYSICAL: "2"},
        "requests": {PHYSICAL: "2"},
    }
    seen = webhook.reviews()[0]["object"]
    assert seen["spec"]["containers"][0]["resources"]["requests"] == {logical: "2"}
    assert "uid" not in seen["metadata"]


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            {"code": 403, "message": "no such thing", "reason": "Forbidden"},
            (403, ": no such thing"),
        ),
        ({"code": 200, "reason": "Because"}, (400, ": Because")),
        ({}, (400, " without explanation")),
    ],
)
async def test_a_refusal_reaches_the_asker_with_its_warnings(
    http: httpx2.AsyncClient,
    webhook: FakeWebhook,
    kind: str,
    status: Json,
    expected: tuple[int, str],
) -> None:
    code, text = expected
    warned = {"allowed": False, "warnings": ['mixed "modes"\nhere', "two"]}
    webhook.answers["/mutate"] = lambda _: warned | {"status": status}
    await register(http, webhook.config(kind=kind, mutate={}))
    answer = await http.post(PODS, json=pod())
    assert answer.status_code == code
    message = f'admission webhook "mutate.test.example" denied the request{text}'
    assert answer.json()["message"] == message
    warnings = ['299 - "mixed \\"modes\\" here"', '299 - "two"']
    assert answer.headers.get_list("Warning") == warnings
    assert (await http.get(f"{PODS}/p")).status_code == 404


async def test_audit_annotations_are_kept_with_the_name_of_the_webhook(
    api: ApiServerStandIn, http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    noted = {"auditAnnotations": {"rewrites": "c: x -> y"}}
    webhook.answers["/mutate"] = lambda _: ANNOTATE | noted
    await register(http, webhook.config(mutate={}))
    await created(http, PODS, pod())
    text = (api.kubeconfig_path.parent / "audit.jsonl").read_text()
    entry = json.loads(text)
    assert entry["responseStatus"]["code"] == 201
    assert entry["annotations"]["mutate.test.example/rewrites"] == "c: x -> y"
    prefix = "webhook.admission.k8s.io/round_0_index_0"
    hook = {"configuration": "hooks", "webhook": "mutate.test.example"}
    assert json.loads(entry["annotations"][f"mutation.{prefix}"]) == hook | {"mutated": True}
    assert json.loads(entry["annotations"][f"patch.{prefix}"])["patch"][0]["op"] == "add"


async def test_validating_webhooks_see_the_finished_object_and_the_old_one(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    webhook.answers["/mutate"] = lambda _: ANNOTATE
    await register(http, webhook.config(mutate=rules("CREATE")))
    await register(http, webhook.config(kind="Validating", check=rules("*")))
    await created(http, FUNCTIONS, function())
    change = {"spec": {"mode": "region"}}
    await http.patch(f"{FUNCTIONS}/nlb0", json=change, headers=MERGE)
    await http.delete(f"{FUNCTIONS}/nlb0")
    _, first, second, third = webhook.reviews()
    assert first["object"]["metadata"]["annotations"] == {"x": "yes"}
    assert first["object"]["metadata"]["uid"]
    assert [one["operation"] for one in (first, second, third)] == ["CREATE", "UPDATE", "DELETE"]
    assert second["oldObject"]["spec"]["mode"] == "af"
    assert second["object"]["spec"]["mode"] == "region"
    assert second["options"]["kind"] == "UpdateOptions"
    assert (third["object"], third["oldObject"]["metadata"]["name"]) == (None, "nlb0")


NAME = "kubernetes.io/metadata.name"


@pytest.mark.parametrize(
    ("selector", "fields", "asked"),
    [
        ("namespace", {"key": NAME, "operator": "NotIn", "values": ["a", "default"]}, False),
        ("object", {"matchLabels": {"fpga": "yes"}}, False),
        ("object", {"key": "x", "operator": "DoesNotExist"}, True),
        ("object", {"key": "app", "operator": "In", "values": ["a", "b"]}, True),
    ],
)
async def test_selectors_decide_who_is_asked(
    http: httpx2.AsyncClient, webhook: FakeWebhook, selector: str, fields: Json, asked: bool
) -> None:
    found = {"matchExpressions": [fields]} if "key" in fields else fields
    await register(http, webhook.config(mutate={f"{selector}Selector": found}))
    item = pod()
    item["metadata"]["labels"] = {"app": "a"}
    await created(http, PODS, item)
    assert bool(webhook.asked) is asked


# Match conditions


@needs_cel
@pytest.mark.parametrize(
    ("resources", "kind", "expected"),
    [
        ({"limits": {PHYSICAL: "1"}}, "containers", True),
        ({"limits": {"cpu": "1"}}, "containers", False),
        ({}, "containers", False),
        ({"limits": {"x": "1", PHYSICAL: "1"}}, "initContainers", True),
    ],
)
async def test_a_match_condition_keeps_other_pods_away_from_a_webhook(
    http: httpx2.AsyncClient, webhook: FakeWebhook, resources: Json, kind: str, expected: bool
) -> None:
    conditions = {"matchConditions": [{"name": "fpga", "expression": ASKS_FOR_FPGA}]}
    await register(http, webhook.config(mutate=conditions))
    item = pod()
    container = item["spec"]["containers"][0]
    item["spec"][kind] = [container | {"name": "asking", "resources": resources}]
    await http.post(PODS, json=item)
    assert bool(webhook.asked) is expected


@needs_cel
@pytest.mark.parametrize(("policy", "code"), [("Fail", 403), ("Ignore", 201)])
async def test_a_match_condition_without_a_value_counts_by_the_policy(
    http: httpx2.AsyncClient, webhook: FakeWebhook, policy: str, code: int
) -> None:
    condition = {"name": "odd", "expression": "object.spec.nothing == 1"}
    hook = {"failurePolicy": policy, "matchConditions": [condition]}
    await register(http, webhook.config(mutate=hook))
    answer = await http.post(PODS, json=pod())
    assert answer.status_code == code
    assert webhook.asked == []


@needs_cel
async def test_a_match_condition_that_cant_be_compiled_is_refused(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    hook = {"matchConditions": [{"name": "odd", "expression": "subject.spec"}]}
    with pytest.raises(AssertionError, match="matchConditions: compilation failed"):
        await register(http, webhook.config(mutate=hook))


def test_without_the_library_every_condition_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.apiserver.crd.library", None)
    assert compile_expression("object.nothing == 'only compiled here'").holds({"object": {}})


# Failures


def patch_of(text: bytes) -> Json:
    return {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(text).decode()}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Response(500, b"out of order"), "status 500: out of order"),
        ({"uid": "another", "allowed": True}, 'expected response.uid="'),
        (review({"allowed": True}, apiVersion="admission.k8s.io/v1beta1"), "invalid webhook resp"),
        ({"allowed": True, "patch": "W10="}, "go together"),
        ({"allowed": True, "patchType": "JSONPatch", "patch": "!"}, "invalid webhook response"),
        (patch_of(b"{}"), "invalid webhook response"),
    ],
)
async def test_an_answer_that_cant_be_understood_counts_by_the_policy(
    http: httpx2.AsyncClient, webhook: FakeWebhook, answer: Any, expected: str
) -> None:
    webhook.answers["/mutate"] = lambda _: answer
    await register(http, webhook.config(mutate={}))
    result = await http.post(PODS, json=pod())
    assert (result.status_code, result.json()["reason"]) == (500, "InternalError")
    assert 'failed calling webhook "mutate.test.example": ' in result.json()["message"]
    assert expected in result.json()["message"]
    assert (await http.delete(f"{CONFIG}/hooks")).is_success
    await register(http, webhook.config(mutate={"failurePolicy": "Ignore"}))
    await created(http, PODS, pod())


CONFIG = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/spec/nothing"},
        {"op": "test", "path": "/metadata/name", "value": "other"},
        {"op": "fly", "path": "/spec"},
    ],
)
async def test_a_patch_that_cant_be_applied_is_an_error_even_where_failures_are_ignored(
    http: httpx2.AsyncClient, webhook: FakeWebhook, operation: Json
) -> None:
    webhook.answers["/mutate"] = lambda _: patch(operation)
    await register(http, webhook.config(mutate={"failurePolicy": "Ignore"}))
    result = await http.post(PODS, json=pod())
    assert (result.status_code, result.json()["reason"]) == (500, "InternalError")


async def test_a_validating_webhook_may_not_patch(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    webhook.answers["/check"] = lambda _: ANNOTATE
    await register(http, webhook.config(kind="Validating", check={}))
    message = (await http.post(PODS, json=pod())).json()["message"]
    assert message.endswith("a validating webhook may not patch")


async def test_a_webhook_that_is_away_late_or_of_another_authority_is_named(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    async def never(_: Json) -> Json:
        await asyncio.Event().wait()
        return {}

    config = webhook.config(late={"timeoutSeconds": 1})
    webhook.answers["/late"] = never
    await register(http, config)
    message = (await http.post(PODS, json=pod())).json()["message"]
    assert message.endswith('/late?timeout=1s": context deadline exceeded')
    webhook.pair = make_pair(["127.0.0.1"])
    change = {"webhooks": webhook.config(late={})["webhooks"]}
    assert (await http.patch(f"{CONFIG}/hooks", json=change, headers=MERGE)).is_success
    message = (await http.post(PODS, json=pod())).json()["message"]
    assert "certificate verify failed" in message
    await webhook.server.close(0.1)
    message = (await http.post(PODS, json=pod())).json()["message"]
    assert message.startswith(
        'Internal error occurred: failed calling webhook "late.test.example": failed to call'
        f' webhook: Post "{webhook.url}/late?timeout=10s": ConnectError: '
    )


async def test_a_patch_is_tried_again_on_an_object_that_changed_meanwhile(
    api: ApiServerStandIn, http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    def meddle(_: Json) -> Json:
        stored = api.get("AcceleratorFunction", "nlb0")
        assert stored is not None
        if len(webhook.asked) % 2:
            stored["spec"]["afuId"] = f"{len(webhook.asked):08x}"
            api.put(stored)
        return {"allowed": True}

    webhook.answers["/check"] = meddle
    await register(http, webhook.config(kind="Validating", check=rules("UPDATE")))
    made = await created(http, FUNCTIONS, function())
    change = {"spec": {"mode": "region"}}
    answer = await http.patch(f"{FUNCTIONS}/nlb0", json=change, headers=MERGE)
    assert answer.status_code == 200
    assert answer.json()["spec"] == made["spec"] | {"mode": "region", "afuId": "00000001"}
    assert len(webhook.asked) == 2
    assert (await http.put(f"{FUNCTIONS}/nlb0", json=made | {"spec": {}})).status_code == 409
