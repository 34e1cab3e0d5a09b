"""Webhooks as a real API server calls them: order, patches, failures, warnings, audit."""

import json
from typing import Any

import httpx2
import pytest

from simulator.apiserver.standin import ApiServerStandIn, Options
from tests.simulator.apiserver.support import (
    FUNCTIONS,
    MERGE,
    PHYSICAL,
    PODS,
    FakeWebhook,
    Json,
    client_of,
    created,
    function,
    needs_cel,
    patch,
    pod,
    register,
)
from tests.simulator.apiserver.test_cel import ASKS_FOR_FPGA

pytestmark = pytest.mark.anyio


def _always(answer: Json, _review: Json) -> Json:
    return answer


def annotate(name: str) -> Json:
    return patch({"op": "add", "path": "/metadata/annotations", "value": {name: "yes"}})


async def test_a_patch_is_applied_and_the_pod_defaulted_again(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    logical = "fpga.intel.com/arria10-nlb0"
    escaped = logical.replace("/", "~1")
    base = "/spec/containers/0/resources"
    webhook.answers["/mutate"] = lambda _: patch(
        {"op": "remove", "path": f"{base}/limits/{escaped}"},
        {"op": "remove", "path": f"{base}/requests/{escaped}"},
        {"op": "add", "path": f"{base}/limits/{PHYSICAL.replace('/', '~1')}", "value": 2},
    )
    await register(http, webhook.config(mutate={}))
    made = await created(http, PODS, pod(resource=logical, count="2000m"))
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {PHYSICAL: "2"},
        "requests": {PHYSICAL: "2"},
    }
    seen = webhook.reviews()[0]["object"]["spec"]["containers"][0]["resources"]
    assert seen == {"limits": {logical: "2"}, "requests": {logical: "2"}}


async def test_the_review_tells_who_asks_for_what(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    await register(http, webhook.config(mutate={}))
    await created(http, PODS, pod())
    asked = webhook.reviews()[0]
    assert list(asked) == [
        "uid",
        "kind",
        "resource",
        "requestKind",
        "requestResource",
        "name",
        "namespace",
        "operation",
        "userInfo",
        "object",
        "oldObject",
        "dryRun",
        "options",
    ]
    assert asked["userInfo"]["username"] == "admin"
    assert (asked["operation"], asked["dryRun"]) == ("CREATE", False)
    assert "uid" not in asked["object"]["metadata"]
    assert asked["object"]["status"] == {}


REFUSALS: list[tuple[Json, int, str | None, str]] = [
    (
        {"status": {"code": 403, "message": "no such function", "reason": "Forbidden"}},
        403,
        "Forbidden",
        'admission webhook "mutate.test.example" denied the request: no such function',
    ),
    (
        {"status": {"code": 200, "reason": "Because"}},
        400,
        "Because",
        'admission webhook "mutate.test.example" denied the request: Because',
    ),
    (
        {},
        400,
        None,
        'admission webhook "mutate.test.example" denied the request without explanation',
    ),
]


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
async def test_a_refusal_reaches_the_asker(
    http: httpx2.AsyncClient,
    webhook: FakeWebhook,
    kind: str,
    refusal: tuple[Json, int, str | None, str],
) -> None:
    given, code, reason, message = refusal
    webhook.answers["/mutate"] = lambda _: {"allowed": False} | given
    await register(http, webhook.config(kind=kind, mutate={}))
    answer = await http.post(PODS, json=pod())
    assert answer.status_code == code
    assert answer.json()["message"] == message
    assert answer.json().get("reason") == reason
    assert (await http.get(f"{PODS}/p")).status_code == 404


async def test_warnings_come_as_headers_even_with_a_refusal(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    verdict = {"allowed": True}
    webhook.answers["/mutate"] = lambda _: verdict | {"warnings": ['mixed "modes"\nhere', "two"]}
    await register(http, webhook.config(mutate={}))
    answer = await http.post(PODS, json=pod())
    expected = ['299 - "mixed \\"modes\\" here"', '299 - "two"']
    assert answer.headers.get_list("Warning") == expected
    verdict["allowed"] = False
    answer = await http.post(PODS, json=pod("q"))
    assert answer.headers.get_list("Warning") == expected


async def test_audit_annotations_are_kept_with_the_name_of_the_webhook(
    api: ApiServerStandIn, http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    webhook.answers["/mutate"] = lambda _: (
        annotate("a") | {"auditAnnotations": {"rewrites": "c: x -> y"}}
    )
    webhook.answers["/deny"] = lambda _: {
        "allowed": False,
        "auditAnnotations": {"reason": "unknown-name"},
    }
    await register(http, webhook.config(mutate={}))
    await created(http, PODS, pod())
    await register(http, webhook.config("more", kind="Validating", deny={}))
    await http.post(PODS, json=pod("q"))
    written = (api.kubeconfig_path.parent / "audit.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in written]
    assert [entry["responseStatus"]["code"] for entry in entries] == [201, 400]
    assert entries[0]["annotations"]["mutate.test.example/rewrites"] == "c: x -> y"
    noted = json.loads(
        entries[0]["annotations"]["mutation.webhook.admission.k8s.io/round_0_index_0"]
    )
    assert noted == {"configuration": "hooks", "webhook": "mutate.test.example", "mutated": True}
    assert entries[1]["annotations"]["deny.test.example/reason"] == "unknown-name"


async def test_a_later_change_has_earlier_webhooks_asked_again_if_they_want(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    webhook.answers["/changes"] = lambda _: annotate("x")
    again = {"reinvocationPolicy": "IfNeeded"}
    await register(http, webhook.config(wants=again, content={}, changes=again, after=again))
    await created(http, PODS, pod())
    paths = [one.path for one in webhook.asked]
    assert paths == ["/wants", "/content", "/changes", "/after", "/wants"]


async def test_validating_webhooks_see_the_finished_pod(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    webhook.answers["/mutate"] = lambda _: annotate("x")
    await register(http, webhook.config(mutate={}))
    await register(http, webhook.config(kind="Validating", check={}))
    await created(http, PODS, pod())
    seen = webhook.reviews()[-1]["object"]
    assert seen["metadata"]["annotations"] == {"x": "yes"}
    assert seen["metadata"]["uid"]
    assert seen["status"]["phase"] == "Pending"


async def test_updates_and_deletions_are_reviewed_with_the_old_object(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    rules = [
        {
            "operations": ["*"],
            "apiGroups": ["fpga.intel.com"],
            "apiVersions": ["v2"],
            "resources": ["*"],
        }
    ]
    await register(http, webhook.config(kind="Validating", check={"rules": rules}))
    await created(http, FUNCTIONS, function())
    change = {"spec": {"mode": "region"}}
    await http.patch(f"{FUNCTIONS}/nlb0", json=change, headers=MERGE)
    await http.delete(f"{FUNCTIONS}/nlb0")
    first, second, third = webhook.reviews()
    assert [one["operation"] for one in (first, second, third)] == ["CREATE", "UPDATE", "DELETE"]
    assert second["oldObject"]["spec"]["mode"] == "af"
    assert second["object"]["spec"]["mode"] == "region"
    assert second["options"]["kind"] == "UpdateOptions"
    assert third["object"] is None
    assert third["oldObject"]["metadata"]["name"] == "nlb0"


@pytest.mark.parametrize(
    ("selectors", "asked"),
    [
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, True),
        (
            {
                "namespaceSelector": {
                    "matchExpressions": [
                        {
                            "key": "kubernetes.io/metadata.name",
                            "operator": "NotIn",
                            "values": ["kube-system", "default"],
                        }
                    ]
                }
            },
            False,
        ),
        ({"objectSelector": {"matchLabels": {"fpga": "yes"}}}, False),
        ({"objectSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}, False),
        (
            {"objectSelector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}},
            True,
        ),
        (
            {
                "objectSelector": {
                    "matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]
                }
            },
            True,
        ),
    ],
)
async def test_selectors_decide_who_is_asked(
    http: httpx2.AsyncClient, webhook: FakeWebhook, selectors: Json, asked: bool
) -> None:
    await register(http, webhook.config(mutate=selectors))
    item = pod()
    item["metadata"]["labels"] = {"app": "a"}
    await created(http, PODS, item)
    assert bool(webhook.asked) is asked


async def test_a_service_is_found_through_the_map(webhook: FakeWebhook, tmp_path: Any) -> None:
    services = {"hook.tools.svc": f"127.0.0.1:{webhook.server.port}"}
    config = webhook.config(mutate={})
    service = {"name": "hook", "namespace": "tools", "path": "/mutate"}
    config["webhooks"][0]["clientConfig"] = {"service": service, "caBundle": webhook.bundle}
    async with (
        ApiServerStandIn(tmp_path, Options(services=services)) as api,
        client_of(api) as http,
    ):
        await register(http, config)
        await created(http, PODS, pod())
        assert webhook.asked[0].headers["host"] == "hook.tools.svc:443"


@needs_cel
async def test_a_match_condition_keeps_other_pods_away_from_a_webhook_that_is_down(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    conditions = {"matchConditions": [{"name": "fpga", "expression": ASKS_FOR_FPGA}]}
    await register(http, webhook.config(mutate=conditions))
    await register(http, webhook.config(kind="Validating", mutate=conditions))
    await webhook.server.close(0.1)
    await created(http, PODS, pod("plain"))
    answer = await http.post(PODS, json=pod("fpga", PHYSICAL))
    assert answer.status_code == 500
    assert "connection refused" in answer.json()["message"]


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


async def test_a_patch_is_tried_again_on_an_object_that_changed_meanwhile(
    api: ApiServerStandIn, http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    rule = {"operations": ["UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"]}
    hook = {"rules": [rule | {"resources": ["acceleratorfunctions"]}]}
    meddling = [True, True]

    def meddle(_: Json) -> Json:
        if meddling:
            meddling.pop()
            stored = api.get("AcceleratorFunction", "nlb0")
            assert stored is not None
            stored["spec"]["afuId"] = f"{len(meddling):08x}"
            api.put(stored)
        return {"allowed": True}

    webhook.answers["/check"] = meddle
    await register(http, webhook.config(kind="Validating", check=hook))
    await created(http, FUNCTIONS, function())
    change = {"spec": {"mode": "region"}}
    answer = await http.patch(f"{FUNCTIONS}/nlb0", json=change, headers=MERGE)
    assert answer.status_code == 200
    assert answer.json()["spec"]["mode"] == "region"
    assert answer.json()["spec"]["afuId"] == "00000000"
    assert len(webhook.asked) == 3


async def test_a_put_loses_to_a_change_during_its_review(
    api: ApiServerStandIn, http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    rule = {"operations": ["UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"]}
    hook = {"rules": [rule | {"resources": ["acceleratorfunctions"]}]}

    def delete(_: Json) -> Json:
        api.drop("AcceleratorFunction", "nlb0")
        return {"allowed": True}

    webhook.answers["/check"] = delete
    await register(http, webhook.config(kind="Validating", check=hook))
    made = await created(http, FUNCTIONS, function())
    made["spec"]["mode"] = "region"
    assert (await http.put(f"{FUNCTIONS}/nlb0", json=made)).status_code == 404
