"""Mappings in a cluster: made through the webhook, and left out where they got past it.

The webhook is a real process that the API server stand-in asks over TLS, with our definitions.
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from simulator.apiserver.standin import ApiServerStandIn
from tests.simulator.apiserver.support import FUNCTIONS, MERGE, PODS, client_of, created, register
from tests.simulator.apiserver.support import function as made_function
from tests.simulator.apiserver.support import pod as made_pod
from tests.support import REPOSITORY, eventually_async
from tests.webhook.reviews import AFU, INTERFACE, RESOURCE
from tests.webhook.running import Webhook, start_webhook

pytestmark = pytest.mark.anyio
Json = dict[str, Any]

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
REGIONS = FUNCTIONS.replace("acceleratorfunctions", "fpgaregions")
ANNOTATION = "accelbind.dev/resource"
DEPRECATED = "accelbind.dev/deprecated"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServerStandIn]:
    (tmp_path / "api").mkdir()
    async with ApiServerStandIn(tmp_path / "api") as running:
        yield running


@pytest.fixture
async def http(api: ApiServerStandIn) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(api) as client:
        yield client


@pytest.fixture
async def webhook(api: ApiServerStandIn, tmp_path: Path) -> AsyncIterator[Webhook]:
    """A webhook that follows the cluster, and is ready."""
    (tmp_path / "webhook").mkdir()
    flags = ("--kubeconfig", api.kubeconfig_path)
    running = await asyncio.to_thread(start_webhook, tmp_path / "webhook", *flags, mappings=None)
    try:
        await eventually_async(lambda: is_ready(running), what="the webhook is ready")
        yield running
    finally:
        await asyncio.to_thread(running.process.kill)


async def is_ready(webhook: Webhook) -> bool:
    return (await asyncio.to_thread(webhook.plain, "/readyz")).status == 200


async def metric(webhook: Webhook, name: str) -> float:
    return await asyncio.to_thread(webhook.metric, name)


def region(name: str) -> Json:
    return made_function(name) | {"kind": "FpgaRegion", "spec": {"interfaceId": INTERFACE}}


def configuration(webhook: Webhook, kind: str, **paths: tuple[str, list[str]]) -> Json:
    """A configuration as a cluster has it: names, with path and resources."""
    bundle = base64.b64encode((webhook.tls / "ca.crt").read_bytes()).decode()
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": "accelbind"},
        "webhooks": [
            {
                "name": f"{name}.accelbind.dev",
                "clientConfig": {
                    "url": f"https://localhost:{webhook.port}{path}",
                    "caBundle": bundle,
                },
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "rules": [
                    {
                        "operations": ["CREATE", "UPDATE"],
                        "apiGroups": ["", "fpga.intel.com"],
                        "apiVersions": ["*"],
                        "resources": resources,
                    }
                ],
            }
            for name, (path, resources) in paths.items()
        ],
    }


@pytest.fixture
async def guarded(
    http: httpx2.AsyncClient, webhook: Webhook, api: ApiServerStandIn
) -> httpx2.AsyncClient:
    """A cluster with our definitions and our webhook before it."""
    for file in ("acceleratorfunctions", "fpgaregions"):
        text = (REPOSITORY / "manifests" / "crd" / f"{file}.yaml").read_text()
        await created(http, CRDS, yaml.safe_load(text))
    kinds = ["acceleratorfunctions", "fpgaregions"]
    pods = ("/mutate", ["pods"])
    mutating = configuration(webhook, "Mutating", pods=pods, note=("/mutate-mapping", kinds))
    await register(http, mutating)
    checks = configuration(webhook, "Validating", mappings=("/validate-mapping", kinds))
    await register(http, checks)
    assert api.objects("AcceleratorFunction") == []
    return http


def lists(api: ApiServerStandIn) -> int:
    """How often functions have been listed."""
    return sum(
        "/v2/acceleratorfunctions?" in seen.request.target and not seen.request.is_watch
        for seen in api.seen
    )


def warned(answer: httpx2.Response) -> list[str]:
    return answer.headers.get_list("warning")


async def test_a_mapping_is_noted_and_its_name_is_its_own(
    guarded: httpx2.AsyncClient, webhook: Webhook
) -> None:
    stored = await created(guarded, FUNCTIONS, made_function("nlb0"))
    assert stored["metadata"]["annotations"] == {ANNOTATION: RESOURCE.partition("/")[2]}

    async def refused() -> bool:
        answer = await guarded.post(REGIONS, json=region("nlb0"), params={"dryRun": "All"})
        return answer.status_code == 403 and "has the same name" in answer.json()["message"]

    await eventually_async(refused, what="the webhook knows of the function")
    answer = await guarded.post(REGIONS, json=region("nlb0"))
    assert answer.json()["message"].startswith(
        'admission webhook "mappings.accelbind.dev" denied the request: FpgaRegion default/nlb0: '
        "AcceleratorFunction default/nlb0 has the same name"
    )
    changed = await guarded.patch(
        f"{FUNCTIONS}/nlb0", json={"spec": {"mode": "region"}}, headers=MERGE
    )
    assert changed.status_code == 200
    assert changed.json()["metadata"]["annotations"] == {ANNOTATION: f"region-{INTERFACE}"}
    labels = {"metadata": {"labels": {"team": "a"}}}
    one = f"{FUNCTIONS}/nlb0"
    assert (await guarded.patch(one, json=labels, headers=MERGE)).status_code == 200
    assert (await guarded.delete(one)).status_code == 200
    assert webhook.events("mapping refused")


async def test_duplicates_and_deprecated_names_are_warned_of_where_made_and_where_used(
    guarded: httpx2.AsyncClient,
) -> None:
    await created(guarded, FUNCTIONS, made_function("old"))

    async def duplicate() -> bool:
        answer = await guarded.post(FUNCTIONS, json=made_function("new"), params={"dryRun": "All"})
        return any("duplicate of old: " in text for text in warned(answer))

    await eventually_async(duplicate, what="the webhook knows of the other name")
    assert (await guarded.post(FUNCTIONS, json=made_function("new"))).status_code == 201

    async def pod_warnings(name: str) -> list[str]:
        asking = made_pod("p", f"fpga.intel.com/{name}")
        return warned(await guarded.post(PODS, json=asking, params={"dryRun": "All"}))

    async def warned_of_both() -> bool:
        same = "fpga.intel.com/new is a duplicate of fpga.intel.com/old"
        return any(same in told for told in await pod_warnings("new"))

    await eventually_async(warned_of_both)
    deprecation = {"metadata": {"annotations": {DEPRECATED: "use new"}}}
    answer = await guarded.patch(f"{FUNCTIONS}/old", json=deprecation, headers=MERGE)
    assert "deprecated: pods that use it get a warning: use new" in warned(answer)[0]

    async def warned_of_the_old_one() -> bool:
        note = "fpga.intel.com/old is deprecated: use new"
        return any(note in told for told in await pod_warnings("old"))

    await eventually_async(warned_of_the_old_one)
    assert await pod_warnings("new") == []


async def test_what_got_past_is_left_out_logged_once_counted_and_refused_with_the_reason(
    api: ApiServerStandIn, http: httpx2.AsyncClient, webhook: Webhook
) -> None:
    bad = {
        "id": made_function("id", interfaceId="12345"),
        "mode": made_function("mode", mode="xregion"),
        "odd": made_function("odd", afuId="0" * 9),
        "both": made_function("both"),
    }
    for obj in (*bad.values(), region("both"), made_function("good", afuId="0" * 32)):
        api.put(obj)
    await register(http, configuration(webhook, "Mutating", pods=("/mutate", ["pods"])))
    reasons = {
        "id": 'spec.interfaceId "12345" is not 8 to 32 hex digits',
        "mode": 'spec.mode must be af or region, not "xregion"',
        "odd": "no whole bytes",
        "both": "have the same name, so neither can be used",
    }

    async def counted(number: int) -> bool:
        return await metric(webhook, "accelbind_mappings_rejected") == number

    async def all_counted() -> bool:
        return await counted(4)

    await eventually_async(all_counted)
    assert await metric(webhook, 'accelbind_mappings{kind="AcceleratorFunction"}') == 1
    for name, reason in reasons.items():
        answer = await http.post(PODS, json=made_pod("p", f"fpga.intel.com/{name}"))
        assert answer.status_code == 403
        assert f"fpga.intel.com/{name} can't be used: " in answer.text
        assert reason in answer.json()["message"]
    await created(http, PODS, made_pod("good", "fpga.intel.com/good"))

    # Another list logs nothing that was logged before.
    before = lists(api)
    api.compact()
    api.end_watches()
    api.put(made_function("late", afuId="1" * 32))

    async def admitted() -> bool:
        asking = made_pod("late", "fpga.intel.com/late")
        answer = await http.post(PODS, json=asking, params={"dryRun": "All"})
        return answer.status_code == 201

    await eventually_async(admitted, timeout=60, what="the new list has come")
    assert lists(api) > before
    told = [str(line["problem"]) for line in webhook.events("mapping can't be used")]
    assert len(told) == len(set(told))
    assert {name for name in reasons if any(reasons[name] in text for text in told)} == set(reasons)
    assert await counted(4)

    for name, spec in (("id", {"interfaceId": INTERFACE}), ("mode", {"mode": "region"})):
        obj = bad[name]
        api.put(obj | {"spec": obj["spec"] | spec})
    api.put(bad["odd"] | {"spec": bad["odd"]["spec"] | {"afuId": AFU}})
    api.drop("FpgaRegion", "both")

    async def none_counted() -> bool:
        return await counted(0)

    await eventually_async(none_counted)
    for name in reasons:
        await created(http, PODS, made_pod(f"again-{name}", f"fpga.intel.com/{name}"))


async def test_both_kinds_of_one_name_made_at_once_are_caught_afterwards(
    guarded: httpx2.AsyncClient, api: ApiServerStandIn, webhook: Webhook
) -> None:
    for obj in (made_function("x"), region("x")):
        api.put(obj)  # as if the reviews of both had passed before either was known

    one = f"{FUNCTIONS}/x"
    labels = {"metadata": {"labels": {"team": "a"}}}

    async def told() -> bool:
        answer = await guarded.patch(one, json=labels, headers=MERGE)
        assert answer.status_code == 200
        return any("pods can't use it" in text for text in warned(answer))

    await eventually_async(told, what="the one who changes it is warned")
    assert await metric(webhook, "accelbind_mappings_rejected") == 1
    answer = await guarded.patch(one, json={"spec": {"mode": "region"}}, headers=MERGE)
    assert answer.status_code == 403
    assert (await guarded.delete(one)).status_code == 200
