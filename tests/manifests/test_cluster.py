"""The manifests in an API server stand-in, and the real processes that they would start.

The stand-in knows no roles: what the processes ask for is held against the manifests' afterwards.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from plugin.dra.slices import slice_name
from simulator.apiserver.crd import compile_expression
from simulator.apiserver.standin import ApiServerStandIn
from simulator.cards import NLB0, NLB3, CardSpec, Rack
from simulator.kubelet.standin import KubeletStandIn
from tests.manifests.rendering import (
    NAMESPACE,
    WEBHOOK_KINDS,
    Json,
    one,
    own_overlay,
    rendered,
    workloads,
)
from tests.manifests.rights import Access, asked, beyond, idle, rights_of
from tests.manifests.running import bundled, certs, cluster, mounted, plugin, webhook
from tests.plugin.support import AF, REGION, container, functions, pod
from tests.plugin.test_mode import annotate
from tests.services.building import function
from tests.support import Processes, eventually_async

pytestmark = pytest.mark.usefixtures("no_proxy")


async def test_the_webhook_asks_for_what_its_account_may_and_for_all_of_it(
    tmp_path: Path, processes: Processes
) -> None:
    async with cluster(tmp_path) as (api, services):
        keeper = certs(processes, api.address)
        await eventually_async(lambda: mounted(api.get, tmp_path / "tls"))
        await eventually_async(lambda: bundled(api.get))
        assert keeper.terminate() == 0
        others = asked(api)
        await webhook(processes, api, tmp_path, services)
        rights = rights_of(rendered("base"), "accelbind-webhook")
        await eventually_async(lambda: not idle(rights, asked(api) - others), what="all in use")
        assert beyond(rights, asked(api) - others) == set()


async def test_the_certificates_ask_for_what_their_account_may_and_for_all_of_it(
    tmp_path: Path, processes: Processes
) -> None:
    async with cluster(tmp_path) as (api, _):
        certs(processes, api.address)
        rights = rights_of(rendered("base"), "accelbind-certs")
        await eventually_async(lambda: bundled(api.get) and not idle(rights, asked(api)))
        assert beyond(rights, asked(api)) == set()


def reported(api: ApiServerStandIn, reason: str) -> bool:
    return any(each["reason"] == reason for each in api.objects("Event"))


SERVED = {"af": (AF, NLB0), "region": (REGION, NLB3)}
"""What a node of a mode offers, and the function that its pod asks for.

In mode region the card has NLB0, and no bitstream of NLB3 is to be had.
"""


@pytest.mark.parametrize("mode", SERVED)
async def test_the_plugin_asks_for_what_its_account_may_and_for_all_of_it(
    mode: str, short_dir: Path, tmp_path: Path, processes: Processes
) -> None:
    """Whoever may ask who starts a container must, where it starts on what the pod names."""
    resource, afu = SERVED[mode]
    enforced = mode == "af"
    (tmp_path / "own").mkdir()
    enforcing = own_overlay(tmp_path / "own", "enforce-mappings")
    items = enforcing if enforced else rendered("overlays/region")
    rights = rights_of(items, workloads(items)["accelbind-plugin"]["serviceAccountName"])
    Rack(short_dir / "root").add_card(CardSpec())
    async with (
        cluster(tmp_path) as (api, _),
        KubeletStandIn(short_dir / "k", node_name="n1", retry_seconds=0.05) as kubelet,
    ):
        annotate(api, mode)
        process = plugin(processes, short_dir, api, enforced=enforced)
        await kubelet.until(lambda: kubelet.allocatable.get(resource) == 1)
        named = functions(afu) if mode == "region" else []
        spec = pod("p", container("c", resource, 1, named))
        api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
        api.put(spec)
        api.put(function("nlb", mode, afu=afu, namespace="ns"))
        await kubelet.settled(await kubelet.admit(spec))
        if afu == NLB3:
            await eventually_async(partial(reported, api, "ProgrammingFailed"))
        annotate(api, "nonsense")
        process.terminate()
        plugin(processes, short_dir, api, enforced=enforced)
        await eventually_async(partial(reported, api, "ModeAnnotationInvalid"))
        await eventually_async(lambda: not idle(rights, asked(api)))
        assert beyond(rights, asked(api)) == set()


def test_other_overlays_give_the_plugin_those_rights_or_less(tmp_path: Path) -> None:
    def rights(items: list[Json]) -> set[Access]:
        return rights_of(items, workloads(items)["accelbind-plugin"]["serviceAccountName"])

    af, develop, region = (
        rights(rendered(f"overlays/{name}")) for name in ("af", "regiondevel", "region")
    )
    assert af < develop == rights(own_overlay(tmp_path, "enforce-mappings")) < region


# What the certificates' account may change, by the expressions of its policy


def admitted(items: list[Json], policy: str, scope: Json) -> bool:
    """Whether a policy lets a write pass; which operations it is about is its rules' to say."""
    pytest.importorskip("cel_expr_python")
    spec = one(items, "ValidatingAdmissionPolicy", policy)["spec"]
    concerned = [compile_expression(each["expression"]) for each in spec["matchConditions"]]
    if not all(each.holds(scope) for each in concerned):
        return True
    values = {
        each["name"]: compile_expression(each["expression"]).value(scope)
        for each in spec.get("variables", ())
    }
    rules = [compile_expression(each["expression"]) for each in spec["validations"]]
    return all(each.holds(scope | {"variables": values}) for each in rules)


def verdict(old: Json, new: Json, user: str, *, policy: str = "accelbind-certs") -> bool:
    scope = {"object": new, "oldObject": old, "request": {"userInfo": {"username": user}}}
    return admitted(rendered("base"), policy, scope)


CERTS = f"system:serviceaccount:{NAMESPACE}:accelbind-certs"
OTHER_FIELDS: Json = {
    "rules": [],
    "failurePolicy": "Ignore",
    "matchPolicy": "Exact",
    "namespaceSelector": {},
    "objectSelector": {"matchLabels": {"a": "b"}},
    "sideEffects": "Unknown",
    "timeoutSeconds": 30,
    "admissionReviewVersions": ["v1beta1"],
    "matchConditions": [{"name": "no", "expression": "false"}],
    "reinvocationPolicy": "Never",
}
OTHER_METADATA: Json = {
    "labels": {"a": "b"},
    "annotations": {"cert-manager.io/inject-ca-from": "a/b"},
    "ownerReferences": [{"uid": "1"}],
    "finalizers": ["a.b/c"],
}


def configuration(kind: str) -> Json:
    found = one(rendered("base"), kind, "accelbind")
    for hook in found["webhooks"]:
        hook.setdefault("objectSelector", {})
        hook["clientConfig"]["caBundle"] = "b2xk"
    return found


@pytest.mark.parametrize("kind", WEBHOOK_KINDS)
def test_the_certificates_account_may_change_bundles_and_nothing_else(kind: str) -> None:
    old, new = configuration(kind), configuration(kind)
    for hook in new["webhooks"]:
        hook["clientConfig"]["caBundle"] = "bmV3"
    new["metadata"] |= {"resourceVersion": "2", "generation": 2, "managedFields": [{}]}
    assert verdict(old, new, CERTS)
    for what, changed in changes(kind):
        if changed == old:
            continue
        assert not verdict(old, changed, CERTS), what
        assert not verdict(old, changed, CERTS.replace(NAMESPACE, "elsewhere"))
        for other in ("kubernetes-admin", f"{CERTS}-2", f"x{CERTS}"):
            assert verdict(old, changed, other), "others go by RBAC"
        if "webhooks" in changed:
            assert not verdict(changed, old, CERTS), what


def changes(kind: str) -> Iterator[tuple[str, Json]]:
    """A configuration with one thing changed, each with what it is."""
    for at in range(len(configuration(kind)["webhooks"])):
        for field, value in OTHER_FIELDS.items():
            other, without = configuration(kind), configuration(kind)
            other["webhooks"][at][field] = value
            without["webhooks"][at].pop(field, None)
            yield f"{field} of webhook {at}", other
            yield f"no {field} of webhook {at}", without
    for field, value in OTHER_METADATA.items():
        changed = configuration(kind)
        changed["metadata"][field] = value
        yield field, changed
    elsewhere, service, none = (configuration(kind) for _ in range(3))
    elsewhere["webhooks"][0]["clientConfig"] = {"url": "https://evil.example/"}
    yield "another URL", elsewhere
    service["webhooks"][-1]["clientConfig"]["service"]["name"] = "another"
    yield "another Service", service
    del none["webhooks"]
    yield "no webhooks", none
    first, *others = configuration(kind)["webhooks"]
    for what, hooks in (
        ("a webhook less", others),
        ("a webhook more", [first, *others, first | {"name": "new.accelbind.dev"}]),
        ("a webhook twice", [first, first, *others[1:]]),
    ):
        yield what, configuration(kind) | {"webhooks": hooks}


@pytest.mark.parametrize(
    ("kind", "user", "passes"),
    [
        ("Opaque", CERTS, True),
        ("kubernetes.io/service-account-token", CERTS, False),
        ("kubernetes.io/tls", CERTS, False),
        ("kubernetes.io/service-account-token", "kubernetes-admin", True),
    ],
)
def test_the_certificates_account_creates_secrets_that_are_data_only(
    kind: str, user: str, passes: bool
) -> None:
    """A Secret of another type may become a token of any account in the namespace."""
    secret = {"kind": "Secret", "metadata": {"name": "accelbind-ca"}, "type": kind}
    policy = one(rendered("base"), "ValidatingAdmissionPolicy", "accelbind-certs-secrets")
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["secrets"])
    assert verdict({}, secret, user, policy="accelbind-certs-secrets") is passes


DRA = f"system:serviceaccount:{NAMESPACE}:accelbind-dra"
NODE = {"authentication.kubernetes.io/node-name": ["n1"]}


def resource_slice(
    driver: str = "accelbind.dev", pool: str = "n1", name: str = "", **spec: object
) -> Json:
    own = {"driver": driver, "pool": {"name": pool}}
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": name or slice_name("n1", 0)},
        "spec": own | (spec or {"nodeName": "n1"}),
    }


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
@pytest.mark.parametrize(
    ("item", "extra", "passes"),
    [
        (resource_slice(), NODE, True),
        (resource_slice(nodeName="n2", pool="n2"), NODE, False),
        (resource_slice(nodeName="n2"), NODE, False),
        (resource_slice(pool="n2"), NODE, False),
        (resource_slice(allNodes=True), NODE, False),
        (resource_slice("gpu.example.com"), NODE, False),
        (resource_slice(), {}, False),
        (resource_slice(), None, False),
        (resource_slice(nodeName=""), {}, False),
        (resource_slice(), {"authentication.kubernetes.io/node-name": ["n2"]}, False),
        (resource_slice(name=slice_name("n2", 0)), NODE, None),
        (
            resource_slice(name=slice_name("n" * 253, 1), pool="n" * 253, nodeName="n" * 253),
            {"authentication.kubernetes.io/node-name": ["n" * 253]},
            True,
        ),
    ],
)
def test_the_dra_account_writes_slices_of_its_own_node_driver_and_pool_only(
    item: Json, extra: Json | None, operation: str, *, passes: bool | None
) -> None:
    """A name of another node's slice may not be created; one that is there may be deleted."""
    passes = operation != "CREATE" if passes is None else passes
    items = rendered("overlays/dra")
    spec = one(items, "ValidatingAdmissionPolicy", "accelbind-dra")["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["apiVersions"]) == (["resourceslices"], ["*"])
    assert operation in rule["operations"]
    assert {each["reason"] for each in spec["validations"]} == {"Forbidden"}
    for user, held in ((DRA, passes), (f"{DRA}-2", True), ("kubernetes-admin", True)):
        info = {"username": user} | ({} if extra is None else {"extra": extra})
        scope: Json = {
            "object": None if operation == "DELETE" else item,
            "oldObject": None if operation == "CREATE" else item,
            "request": {"operation": operation, "userInfo": info},
        }
        assert admitted(items, "accelbind-dra", scope) is held, user
