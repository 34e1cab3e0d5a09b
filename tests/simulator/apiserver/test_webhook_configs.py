"""Webhook configurations: defaults, and what is refused."""

import httpx2
import pytest

from tests.simulator.apiserver.support import (
    CONFIGS,
    CRS,
    FakeWebhook,
    Json,
    created,
    needs_cel,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": "short"}, "should be a domain with at least three segments"),
        ({"sideEffects": "Some"}, 'Unsupported value: "Some": supported values: "None"'),
        ({"sideEffects": None}, "must specify one of None, NoneOnDryRun"),
        ({"admissionReviewVersions": []}, "must specify one of v1, v1beta1"),
        ({"admissionReviewVersions": ["v2"]}, "must include at least one of v1, v1beta1"),
        ({"timeoutSeconds": 31}, "the timeout value must be between 1 and 30 seconds"),
        ({"failurePolicy": "Maybe"}, 'Unsupported value: "Maybe"'),
        ({"clientConfig": {}}, "exactly one of url or service is required"),
        ({"clientConfig": {"url": "http://x/"}}, "'https' is the only allowed URL scheme"),
        ({"clientConfig": {"url": "https:///x"}}, "host must be specified"),
        ({"clientConfig": {"url": "https://x/?a=b"}}, "query parameters are not permitted"),
        ({"clientConfig": {"service": {"name": "x"}}}, "service namespace is required"),
        (
            {"clientConfig": {"url": "https://x/", "caBundle": "eA=="}},
            "unable to load root certificates",
        ),
        pytest.param(
            {"matchConditions": [{"name": "x", "expression": "objet.spec == 1"}]},
            "undeclared reference to 'objet",
            marks=needs_cel,
        ),
        ({"matchConditions": [{"expression": "true"}]}, "matchConditions[0].name: Required"),
        ({"rules": [{"operations": ["CREATE"]}]}, "rules[0].resources: Required value"),
    ],
)
async def test_a_configuration_that_makes_no_sense_is_refused(
    http: httpx2.AsyncClient, webhook: FakeWebhook, fields: Json, expected: str
) -> None:
    config = webhook.config(mutate=fields)
    answer = await http.post(f"{CONFIGS}/mutatingwebhookconfigurations", json=config)
    assert answer.status_code == 422
    assert expected in answer.json()["message"]


async def test_a_configuration_shows_its_defaults(
    http: httpx2.AsyncClient, webhook: FakeWebhook
) -> None:
    config = webhook.config(mutate={})
    made = await created(http, f"{CONFIGS}/mutatingwebhookconfigurations", config)
    hook = made["webhooks"][0]
    assert hook["failurePolicy"] == "Fail"
    assert hook["matchPolicy"] == "Equivalent"
    assert hook["timeoutSeconds"] == 10
    assert hook["reinvocationPolicy"] == "Never"
    assert hook["namespaceSelector"] == hook["objectSelector"] == {}
    assert hook["rules"][0]["scope"] == "*"
    assert (await http.get(f"{CRS}/fpgaregions")).json()["items"] == []
