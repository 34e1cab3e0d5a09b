"""Webhooks that fail: what the asker reads, and what failurePolicy makes of it."""

import asyncio
from typing import Any

import httpx2
import pytest

from simulator.apiserver import tls
from simulator.apiserver.http_server import Response
from simulator.apiserver.standin import ApiServerStandIn
from tests.simulator.apiserver.support import (
    PHYSICAL,
    PODS,
    FakeWebhook,
    Json,
    created,
    patch,
    pod,
    register,
    review,
)

pytestmark = pytest.mark.anyio


def annotate(name: str) -> Json:
    return patch({"op": "add", "path": "/metadata/annotations", "value": {name: "yes"}})


BROKEN: list[tuple[Any, str]] = [
    (
        Response(500, b"out of order"),
        (
            'failed to call webhook: an error on the server ("out of order") has prevented the'
            " request from succeeding"
        ),
    ),
    (
        Response(404, b""),
        "failed to call webhook: the server could not find the requested resource",
    ),
    (
        Response(400, b"what?"),
        "failed to call webhook: the server rejected our request for an unknown reason",
    ),
    (
        {"uid": "another", "allowed": True},
        'received invalid webhook response: expected response.uid="',
    ),
    (
        Response(200, b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}'),
        "received invalid webhook response: webhook response was absent",
    ),
    (Response(200, b"{]"), "received invalid webhook response: couldn't get version/kind"),
    (Response(200, b"[]"), "received invalid webhook response: couldn't get version/kind"),
    (Response(200, b"{}"), "received invalid webhook response: Object 'Kind' is missing in '{}'"),
    (
        review({"allowed": True}, apiVersion="admission.k8s.io/v1beta1"),
        (
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got"
            " admission.k8s.io/v1beta1, Kind=AdmissionReview"
        ),
    ),
    (
        {"allowed": True, "patch": "W10="},
        "webhook returned response.patch but not response.patchType",
    ),
    (
        {"allowed": True, "patchType": "JSONPatch"},
        "webhook returned response.patchType but not response.patch",
    ),
    (
        {"allowed": True, "patchType": "Merge", "patch": "W10="},
        'webhook returned invalid response.patchType of "Merge"',
    ),
    ({"allowed": True, "patchType": "JSONPatch", "patch": "!"}, "the patch can't be decoded"),
    ({"allowed": True, "patchType": "JSONPatch", "patch": "e30="}, "cannot unmarshal the patch"),
    ({"allowed": "yes"}, "cannot unmarshal str into Go struct field"),
    ({"allowed": True, "warnings": [1]}, "cannot unmarshal non-string"),
]


@pytest.mark.parametrize(("answer", "expected"), BROKEN)
async def test_an_answer_that_cant_be_understood_fails_the_call(
    http: httpx2.AsyncClient, webhook: FakeWebhook, answer: Any, expected: str
) -> None:
    webhook.answers["/mutate"] = lambda _: answer
    await register(http, webhook.config(mutate={}))
    result = await http.post(PODS, json=pod())
    assert result.status_code == 500
    status = result.json()
    assert status["reason"] == "InternalError"
    start = 'Internal error occurred: failed calling webhook "mutate.test.example": '
    assert status["message"].startswith(start)
    assert expected in status["message"]


async def test_a_failed_call_passes_where_the_policy_is_ignore(
    api: ApiServerStandIn, http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    webhook.answers["/mutate"] = webhook.answers["/check"] = lambda _: Response(500, b"")
    ignore = {"failurePolicy": "Ignore"}
    await register(http, webhook.config(mutate=ignore))
    await register(http, webhook.config(kind="Validating", check=ignore))
    await created(http, PODS, pod())
    keys = list(api.audit.entries[-1]["annotations"])
    assert any(key.startswith("failed-open.mutation.webhook") for key in keys)
    assert any(key.startswith("failed-open.validating.webhook") for key in keys)


@pytest.mark.parametrize(
    "answer",
    [
        patch({"op": "remove", "path": "/spec/nothing"}),
        patch({"op": "test", "path": "/metadata/name", "value": "other"}),
        patch({"op": "replace", "path": "", "value": []}),
        patch({"op": "fly", "path": "/spec"}),
        patch(
            {
                "op": "add",
                "path": "/spec/containers/0/resources/limits",
                "value": {PHYSICAL: "many"},
            }
        ),
    ],
)
async def test_a_patch_that_cant_be_applied_is_an_error_even_where_failures_are_ignored(
    http: httpx2.AsyncClient, webhook: FakeWebhook, answer: Json
) -> None:
    webhook.answers["/mutate"] = lambda _: answer
    await register(http, webhook.config(mutate={"failurePolicy": "Ignore"}))
    result = await http.post(PODS, json=pod())
    assert (result.status_code, result.json()["reason"]) == (500, "InternalError")


async def test_a_validating_webhook_may_not_patch(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    webhook.answers["/check"] = lambda _: annotate("x")
    await register(http, webhook.config(kind="Validating", check={}))
    message = (await http.post(PODS, json=pod())).json()["message"]
    assert message.endswith("validating webhook may not return response.patch")


async def test_a_webhook_that_is_away_is_named_with_gos_words(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    await register(http, webhook.config(mutate={}))
    await webhook.server.close(0.1)
    message = (await http.post(PODS, json=pod())).json()["message"]
    where = f"127.0.0.1:{webhook.server.port}"
    assert message == (
        'Internal error occurred: failed calling webhook "mutate.test.example": failed to call'
        f' webhook: Post "https://{where}/mutate?timeout=10s": dial tcp {where}: connect:'
        " connection refused"
    )


async def test_a_webhook_that_is_late_is_given_up(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    async def never(_: Json) -> Json:
        await asyncio.Event().wait()
        return {"allowed": True}

    webhook.answers["/mutate"] = never
    await register(http, webhook.config(mutate={"timeoutSeconds": 1}))
    message = (await http.post(PODS, json=pod())).json()["message"]
    assert message.endswith('/mutate?timeout=1s": context deadline exceeded')


async def test_a_certificate_of_another_authority_is_refused(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    config = webhook.config(mutate={})
    webhook.pair = tls.make_pair(["127.0.0.1"])
    config["webhooks"][0]["clientConfig"]["caBundle"] = webhook.bundle
    await register(http, config)
    message = (await http.post(PODS, json=pod())).json()["message"]
    assert "tls: failed to verify certificate: x509: " in message
