"""What the administrator decides, and what is told about a pod, through the running process."""

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulator.apiserver.standin import ApiServerStandIn, Options
from tests.simulator.apiserver.support import CONFIGS, PODS, client_of
from tests.webhook.conftest import Starter
from tests.webhook.reviews import (
    AFU,
    INTERFACE,
    NAME,
    RESOURCE,
    body,
    mapping_yaml,
    patch_of,
    pod,
    response_of,
)
from tests.webhook.running import Webhook, start_webhook

OURS, OTHER = "fpga.intel.com", "accel.example"
REGION = "region-nlb0"
MAPPINGS = {"m.yaml": mapping_yaml() + "---\n" + mapping_yaml(REGION, mode="region")}
QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    flags = ("--domain", OURS, "--domain", OTHER, "--domain", "b-com.com", "--max-units", "5")
    started = start_webhook(tmp_path_factory.mktemp("webhook"), *flags, mappings=MAPPINGS)
    yield started
    started.process.kill()


def ask(webhook: Webhook, *containers: dict[str, str]) -> dict[str, Any]:
    made = pod()
    (container,) = made["spec"]["containers"]
    made["spec"]["containers"] = [
        container | {"name": f"c{number}", "resources": {"limits": limits, "requests": limits}}
        for number, limits in enumerate(containers)
    ]
    return response_of(webhook.ask("/mutate", body(made)).body)


def message_of(response: dict[str, Any]) -> str:
    assert response["allowed"] is False
    return str(response["status"]["message"])


def test_names_of_each_domain_become_physical_ones_of_it(webhook: Webhook) -> None:
    for domain in (OURS, OTHER):
        answer = webhook.ask("/mutate", body(pod(f"{domain}/{REGION}", "2"))).body
        added = {step["path"]: step["value"] for step in patch_of(answer) if step["op"] == "add"}
        path = f"/spec/containers/0/resources/limits/{domain}~1region-{INTERFACE}"
        assert added[path] == "2"
        values = [
            (step["value"]["name"], step["value"]["value"])
            for step in patch_of(answer)
            if step["path"].endswith("/env/-")
        ]
        assert values == [
            ("FPGA_REGION_1", INTERFACE),
            ("FPGA_AFU_1", AFU),
            ("FPGA_REGION_2", INTERFACE),
            ("FPGA_AFU_2", AFU),
        ]
        noted = json.loads(added["/metadata/annotations"]["accelbind.dev/requested"])
        assert noted == {"c0": {f"{domain}/{REGION}": 2}}


def test_refusals_speak_of_the_domain_that_was_asked(webhook: Webhook) -> None:
    for domain in (OURS, OTHER):
        message = message_of(ask(webhook, {f"{domain}/arria10-nlb1": "1"}))
        assert f"{domain}/arria10-nlb1 does not exist in" in message
        assert f"did you mean {NAME}?" in message
        physical = f"{domain}/region-{'0' * 32}"
        assert f"{physical} is a physical resource" in message_of(ask(webhook, {physical: "1"}))
    assert ask(webhook, {"elsewhere.example/arria10-nlb1": "1"})["allowed"]


def test_units_are_asked_for_as_they_are(webhook: Webhook) -> None:
    response = ask(webhook, {"b-com.com/accelerator": "5"})
    assert response["allowed"]
    assert "patch" not in response


def test_the_limit_counts_all_domains_of_a_container(webhook: Webhook) -> None:
    assert ask(webhook, {f"{OURS}/{NAME}": "3", f"{OTHER}/{NAME}": "2"})["allowed"]
    message = message_of(ask(webhook, {f"{OURS}/{NAME}": "3", f"{OTHER}/{NAME}": "3"}))
    assert "6 accelerators are requested, but the limit is 5 per container" in message
    assert "--max-units" in message


def test_the_audit_names_the_reason_and_each_rewrite(webhook: Webhook) -> None:
    response = ask(webhook, {f"{OURS}/{NAME}": "3"}, {"cpu": "1"}, {f"{OTHER}/{NAME}": "1"})
    other = RESOURCE.replace(OURS, OTHER)
    assert response["auditAnnotations"] == {
        "reason": "rewritten",
        "rewrites": f"c0: {OURS}/{NAME}=3 as {RESOURCE}; c2: {OTHER}/{NAME}=1 as {other}",
    }
    for response, reason in (
        (ask(webhook, {f"{OURS}/no": "1"}), "unknown-name"),
        (ask(webhook, {f"{OURS}/no": "1", f"{OURS}/{NAME}": "6"}), "too-many-units,unknown-name"),
        (ask(webhook, {RESOURCE: "1"}), "already-physical"),
    ):
        assert response["auditAnnotations"] == {"reason": reason}
        assert all(QUALIFIED.fullmatch(key) for key in response["auditAnnotations"])
    assert "auditAnnotations" not in ask(webhook, {"cpu": "1"})


def test_mixed_modes_are_warned_of_in_a_line_that_nobody_cuts(webhook: Webhook) -> None:
    response = ask(webhook, {f"{OURS}/{NAME}": "1"}, {f"{OURS}/{REGION}": "1"})
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning == "containers c0 (af) and c1 (region): a node runs one mode only"
    assert len(warning) <= 120
    message = message_of(ask(webhook, {f"{OURS}/{NAME}": "1", f"{OTHER}/{REGION}": "1"}))
    assert "resources of different modes" in message


def test_an_api_server_writes_it_into_its_audit_log_and_warns(
    start: Starter, tmp_path: Path
) -> None:
    webhook = start(mappings=MAPPINGS)
    hook: dict[str, Any] = {
        "name": "pods.accelbind.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }
        ],
        "clientConfig": {
            "url": f"https://localhost:{webhook.port}/mutate",
            "caBundle": _base64((webhook.tls / "ca.crt").read_bytes()),
        },
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "accelbind"},
        "webhooks": [hook],
    }

    url = f"https://localhost:{webhook.port}/validate"
    client = hook["clientConfig"] | {"url": url}
    last = configuration | {
        "kind": "ValidatingWebhookConfiguration",
        "webhooks": [hook | {"name": "last-check.accelbind.dev", "clientConfig": client}],
    }

    async def scenario() -> tuple[list[str], str]:
        options = Options(schedule=False)
        async with ApiServerStandIn(tmp_path, options) as api, client_of(api) as http:
            made = await http.post(f"{CONFIGS}/mutatingwebhookconfigurations", json=configuration)
            assert made.status_code == 201, made.text
            made = await http.post(f"{CONFIGS}/validatingwebhookconfigurations", json=last)
            assert made.status_code == 201, made.text
            asking = pod()
            asked = asking["spec"]["containers"][0]
            second = {"limits": {f"{OURS}/{REGION}": "1"}}
            asking["spec"]["containers"].append(asked | {"name": "c1", "resources": second})
            created = await http.post(PODS, json=asking)
            assert created.status_code == 201, created.text
            refused = await http.post(PODS, json=pod(f"{OURS}/no"))
            assert refused.status_code == 403
            return created.headers.get_list("Warning"), refused.json()["message"]

    warnings, message = asyncio.run(scenario())
    assert warnings == ['299 - "containers c0 (af) and c1 (region): a node runs one mode only"']
    assert message.startswith('admission webhook "pods.accelbind.dev" denied the request: ')
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    noted: dict[str, list[str]] = {}
    for line in lines:
        for key, value in line.get("annotations", {}).items():
            noted.setdefault(key, []).append(value)
    assert noted["pods.accelbind.dev/reason"] == ["rewritten", "unknown-name"]
    assert noted["last-check.accelbind.dev/reason"] == ["already-physical"]
    (rewrites,) = noted["pods.accelbind.dev/rewrites"]
    assert rewrites.startswith(f"c0: {OURS}/{NAME}=1 as {RESOURCE}; c1: ")


def _base64(content: bytes) -> str:
    return b64encode(content).decode()
