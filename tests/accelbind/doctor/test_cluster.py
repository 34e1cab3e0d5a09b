"""`accelbind doctor` on clusters, over TLS: what is well, and each thing that isn't."""

import asyncio
import base64
import copy
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from accelbind.cli import main
from accelbind.doctor.access import (
    EXCESSIVE,
    NEEDED,
    NEEDED_TO_ENFORCE,
    NEEDED_TO_PROGRAM,
)
from accelbind.doctor.definitions import ACCOUNT, DEFINITIONS, POLICY, VALIDATIONS
from accelbind.doctor.model import CheckStatus, Result
from accelbind.doctor.webhooks import PATHS, Hook, hook_lines
from certs.folder import issue
from simulator.apiserver.http_server import Request
from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.doctor import answers as cluster
from tests.accelbind.doctor.answers import (
    SYSTEM,
    Json,
    answering,
    furnish,
    looked_at,
    told,
)
from tests.accelbind.doctor.answers import (
    looked_in_thread as looked,
)
from tests.accelbind.running import run_process
from tests.simulator.apiserver.support import PHYSICAL, function, node_with, pod
from tests.support import REPOSITORY
from webhook.handler import ENDPOINTS

pytestmark = pytest.mark.anyio


async def test_a_cluster_that_is_well_has_no_red_line(
    api: ApiServerStandIn, tmp_path: Path
) -> None:
    answers = cluster.first_of(
        cluster.judging(cluster.as_the_manifests_say),
        cluster.with_policy(cluster.policies()),
        cluster.pools([cluster.daemonset()], [cluster.plugin_on("n1")]),
    )
    async with cluster.serving(tmp_path / "tls") as (port, bundle):
        furnish(api, port, bundle)
        with answering(api, answers):
            flags = ("--cluster", "--kubeconfig", api.kubeconfig_path, "-o", "json")
            done = await asyncio.to_thread(run_process, "doctor", *flags)
    document = json.loads(done.stdout)
    wrong = [each for each in document["checks"] if each["state"] != "ok"]
    assert wrong == []
    assert (done.returncode, done.stderr, document["ok"]) == (0, "", True)
    assert len(document["checks"]) == document["counts"]["ok"] > 14


async def test_an_api_server_that_is_away_is_one_red_line(api: ApiServerStandIn) -> None:
    async with api.away():
        results = await looked(api)
    assert results.pop("cluster.api-server").state is CheckStatus.FAILED
    assert {result.state for result in results.values()} == {CheckStatus.UNSEEN}
    assert "see cluster.api-server" in told(results["cluster.served"])


async def test_credentials_that_are_refused_are_one_red_line(api: ApiServerStandIn) -> None:
    with answering(api, lambda _: 401):
        results = await looked(api)
    assert results.pop("cluster.api-server").state is CheckStatus.FAILED
    assert {told(result) for result in results.values()} == {
        "unseen: cannot query the API server: see cluster.api-server → "
    }


async def test_who_may_see_nothing_says_what_it_takes(api: ApiServerStandIn) -> None:
    def forbidden(request: Request) -> int | None:
        return None if request.path == "/version" else 403

    with answering(api, forbidden):
        results = await looked(api)
    assert results.pop("cluster.api-server").state is CheckStatus.OK
    states = {result.id: result.state for result in results.values()}
    assert set(states.values()) == {CheckStatus.UNSEEN}, states
    assert "RBAC" in told(results["cluster.nodes"])


async def test_an_old_cluster_is_warned_of(api: ApiServerStandIn) -> None:
    with answering(api, cluster.one("/version", {"gitVersion": "v1.28.4"})):
        result = await looked_at(api, "cluster.api-server")
    assert (result.state, "older than 1.30" in told(result)) == (CheckStatus.WARNING, True)


# Definitions -------------------------------------------------------------------------------------


def loose(definition: Json) -> None:
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec.pop("x-kubernetes-validations", None)
    for each in spec["properties"].values():
        each.pop("enum", None)


def unserved(definition: Json) -> None:
    definition["spec"]["versions"][0]["served"] = False


def of_old(definition: Json) -> None:
    definition["spec"]["versions"][0]["name"] = "v1"
    definition["status"] = {"storedVersions": ["v1"]}


def cluster_wide(definition: Json) -> None:
    definition["spec"]["scope"] = "Cluster"


def unestablished(definition: Json) -> None:
    condition = {"type": "Established", "status": "False", "message": "names clash"}
    definition["status"] = {"conditions": [condition]}


@pytest.mark.parametrize(
    ("spoil", "state", "words"),
    [
        (None, CheckStatus.FAILED, "is not defined"),
        (loose, CheckStatus.WARNING, "is not accelbind's"),
        (unserved, CheckStatus.FAILED, "does not serve version v2"),
        (of_old, CheckStatus.FAILED, "save them, delete the definition"),
        (cluster_wide, CheckStatus.FAILED, "something other"),
        (unestablished, CheckStatus.FAILED, "names clash"),
    ],
)
async def test_definitions_that_are_not_ours(
    api: ApiServerStandIn, spoil: Callable[[Json], None] | None, state: CheckStatus, words: str
) -> None:
    found = {each["metadata"]["name"]: each for each in cluster.definitions()}

    def answer(request: Request) -> Json | None:
        return found.get(request.path.rpartition("/")[2])

    with answering(api, answer):
        assert (await looked_at(api, "cluster.definitions")).state is CheckStatus.OK
    for each in found.values():
        if spoil:
            spoil(each)
    if spoil is None:
        found.clear()
    with answering(api, answer):
        result = await looked_at(api, "cluster.definitions")
    assert (result.state, words in told(result)) == (state, True), told(result)
    assert "manifests/crd" in told(result)


def test_what_is_expected_of_definitions_is_what_the_manifests_say() -> None:
    assert {each["spec"]["names"]["plural"] for each in cluster.definitions()} == {*DEFINITIONS}
    for each in cluster.definitions():
        expected = DEFINITIONS[each["spec"]["names"]["plural"]]
        (version,) = each["spec"]["versions"]
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        fields = properties["spec"]["properties"]
        assert {
            name: one.get("pattern", tuple(one.get("enum", ()))) for name, one in fields.items()
        } == (dict(expected.fields))
        of_name = properties["metadata"]["properties"]["name"]["x-kubernetes-validations"]
        of_spec = properties["spec"].get("x-kubernetes-validations", [])
        assert len(of_name) + len(of_spec) == expected.rules


# Webhook configurations --------------------------------------------------------------------------


async def test_configurations_that_are_missing(api: ApiServerStandIn) -> None:
    result = await looked_at(api, "cluster.webhooks")
    assert result.state is CheckStatus.FAILED
    assert [line.state for line in result.lines].count(CheckStatus.FAILED) == 2
    assert (await looked(api, only="cluster.webhook-rules"))[
        "cluster.webhook-rules"
    ].state is CheckStatus.OK


async def test_the_public_suites_webhook_is_found(api: ApiServerStandIn) -> None:
    public = cluster.configurations("https://127.0.0.1:1", b"")[0]
    public["metadata"]["name"] = "inteldeviceplugins-mutating-webhook-configuration"
    public["webhooks"] = public["webhooks"][:1]
    public["webhooks"][0]["name"] = "fpga.mutator.webhooks.intel.com"
    api.put(public)
    result = await looked_at(api, "cluster.other-webhooks")
    assert (result.state, "docs/migration.md" in told(result)) == (CheckStatus.FAILED, True)
    assert (await looked_at(api, "cluster.webhooks")).state is CheckStatus.FAILED, "it isn't ours"


def entry(index: int = 0, **changes: Any) -> Hook:
    """The entry about pods of the mutating configuration, changed."""
    mutating = cluster.configurations("https://h", b"x")[0]
    return Hook("mutating accelbind", copy.deepcopy(mutating["webhooks"][index]) | changes, True)


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({"failurePolicy": "Ignore"}, CheckStatus.FAILED, "pods are not checked"),
        ({"matchConditions": []}, CheckStatus.FAILED, "no pod can be created"),
        (
            {"matchConditions": [{"name": "x", "expression": "'other.domain/' in initContainers"}]},
            CheckStatus.FAILED,
            "do not name fpga.intel.com/",
        ),
        (
            {"matchConditions": [{"name": "x", "expression": "'fpga.intel.com/' in containers"}]},
            CheckStatus.FAILED,
            "leave out init containers",
        ),
        ({"reinvocationPolicy": "Never"}, CheckStatus.WARNING, "reinvocationPolicy"),
        ({"matchPolicy": "Exact"}, CheckStatus.WARNING, "matchPolicy"),
        ({"timeoutSeconds": 30}, CheckStatus.WARNING, "timeoutSeconds is 30"),
        ({"admissionReviewVersions": ["v1beta1"]}, CheckStatus.FAILED, "admission.k8s.io/v1"),
        ({"clientConfig": {"url": "https://h/mutate"}}, CheckStatus.FAILED, "certs run sets it"),
        (
            {"clientConfig": {"service": {"path": "/validate"}, "caBundle": "eA=="}},
            CheckStatus.FAILED,
            "calls /validate for pods, not /mutate or /pods",
        ),
        (
            {"clientConfig": {"url": "https://h", "caBundle": "eA=="}},
            CheckStatus.FAILED,
            "calls / for pods",
        ),
        (
            {"namespaceSelector": {"matchLabels": {"fpga": "yes"}}},
            CheckStatus.WARNING,
            "namespaceSelector leaves out what has no label fpga",
        ),
        (
            {"rules": [{"operations": ["UPDATE"], "resources": ["pods"]}]},
            CheckStatus.FAILED,
            "is not called when pods are created",
        ),
    ],
)
def test_configurations_that_are_wrong(changes: Json, state: CheckStatus, words: str) -> None:
    assert [*hook_lines(entry(), ("fpga.intel.com/",))] == []
    assert [*hook_lines(entry(1), ("fpga.intel.com/",))] == []
    (line,) = hook_lines(entry(**changes), ("fpga.intel.com/",))
    assert (line.state, words in line.what + line.todo) == (state, True), line


def test_the_paths_are_the_webhooks() -> None:
    assert {path for *_, known in PATHS for path in known} == set(ENDPOINTS)
    for each in cluster.configurations("https://h/through/a/proxy", b"x"):
        mutating = each["kind"].startswith("Mutating")
        for one in each["webhooks"]:
            assert [*hook_lines(Hook("x", one, mutating), ("fpga.intel.com/",))] == []


# Certificates ------------------------------------------------------------------------------------


async def served(api: ApiServerStandIn, port: int, bundle: bytes, **values: Any) -> Result:
    for each in cluster.configurations(f"https://127.0.0.1:{port}", bundle):
        api.put(each)
    return await looked_at(api, "cluster.served", **values)


async def test_a_certificate_that_the_bundle_does_not_fit(
    api: ApiServerStandIn, tmp_path: Path
) -> None:
    other = issue(tmp_path / "other", ["127.0.0.1"]).ca_certificate.read_bytes()
    async with cluster.serving(tmp_path / "tls") as (port, bundle):
        assert (await served(api, port, bundle)).state is CheckStatus.OK
        assert (await served(api, port, other + bundle)).state is CheckStatus.OK, (
            "while a CA changes"
        )
        result = await served(api, port, other)
        assert result.state is CheckStatus.FAILED
        assert "it is for 127.0.0.1, by " in told(result)
        assert "certs run sets the bundle" in told(result)
        empty = await served(api, port, b"no certificate")
        assert empty.state is CheckStatus.FAILED
        assert (await looked_at(api, "cluster.bundles")).state is CheckStatus.FAILED


@pytest.mark.parametrize(
    ("days_ago", "name", "state", "words"),
    [
        (300, "127.0.0.1", CheckStatus.WARNING, "its renewal is overdue"),
        (100, "127.0.0.1", CheckStatus.OK, "valid until"),
        (400, "127.0.0.1", CheckStatus.FAILED, "expired"),
        (0, "elsewhere.svc", CheckStatus.FAILED, "it is for elsewhere.svc"),
    ],
)
async def test_certificates_that_end_or_are_for_others(
    api: ApiServerStandIn,
    tmp_path: Path,
    *,
    days_ago: int,
    name: str,
    state: CheckStatus,
    words: str,
) -> None:
    now = datetime.now(UTC).replace(microsecond=0) - timedelta(days=days_ago)
    async with cluster.serving(tmp_path / "tls", name, now=now) as (port, bundle):
        result = await served(api, port, bundle)
    assert (result.state, words in told(result)) == (state, True), told(result)


async def test_a_bundle_whose_cas_have_expired(api: ApiServerStandIn, tmp_path: Path) -> None:
    then = datetime.now(UTC).replace(microsecond=0) - timedelta(days=20)
    old = issue(tmp_path / "old", ["h"], days=1, ca_days=2, now=then).ca_certificate.read_bytes()
    new = issue(tmp_path / "new", ["h"]).ca_certificate.read_bytes()
    for bundle, state, words in (
        (old, CheckStatus.FAILED, "0 of 1 CAs"),
        (old + new, CheckStatus.OK, "1 of 2 CAs"),
    ):
        for each in cluster.configurations("https://127.0.0.1:1", bundle):
            api.put(each)
        result = await looked_at(api, "cluster.bundles")
        assert (result.state, words in told(result)) == (state, True)


async def test_a_webhook_that_is_away(api: ApiServerStandIn, tmp_path: Path) -> None:
    async with cluster.serving(tmp_path / "tls") as (port, bundle):
        pass
    result = await served(api, port, bundle)
    assert (result.state, "connection refused" in told(result)) == (CheckStatus.FAILED, True)
    for each in cluster.configurations("https://nowhere.invalid", bundle):
        api.put(each)
    result = await looked_at(api, "cluster.served")
    assert (result.state, "from here" in told(result)) == (CheckStatus.UNSEEN, True)


async def test_each_pod_behind_the_service_is_called(api: ApiServerStandIn, tmp_path: Path) -> None:
    for each in cluster.documents("base/webhook-mutating.yaml"):
        api.put(each)
    server = f"accelbind-webhook.{SYSTEM}.svc"
    service = cluster.one(
        f"/api/v1/namespaces/{SYSTEM}/services/accelbind-webhook",
        {"spec": {"ports": [{"name": "https", "port": 443}]}},
    )
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{SYSTEM}/endpointslices"
    assert "does not exist" in told(await looked_at(api, "cluster.served"))
    with answering(api, service):
        (line,) = (await looked_at(api, "cluster.served")).lines
        assert "no pod behind the Service" in line.what, "once, for all entries"
    async with (
        cluster.serving(tmp_path / "a", server) as (good, bundle),
        cluster.serving(tmp_path / "b", server) as (bad, _),
    ):
        (mutating,) = cluster.documents("base/webhook-mutating.yaml")
        for each in mutating["webhooks"]:
            each["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
        api.put(mutating)

        def behind(*ports: int) -> cluster.Answers:
            endpoint = [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}]
            each = [{"endpoints": endpoint, "ports": [{"name": "https", "port": p}]} for p in ports]
            return cluster.first_of(service, cluster.items(slices, *each))

        with answering(api, behind(good)):
            result = await looked_at(api, "cluster.served")
            assert (result.state, f"{server} at 127.0.0.1:{good}" in told(result)) == (
                CheckStatus.OK,
                True,
            )
        with answering(api, behind(good, bad)):
            result = await looked_at(api, "cluster.served")
            assert [line.state for line in result.lines] == [CheckStatus.OK, CheckStatus.FAILED]
        result = await looked_at(api, "cluster.served", address=("127.0.0.1", good))
        assert result.state is CheckStatus.OK, "as --webhook-address says"


# Rights ------------------------------------------------------------------------------------------


def rules_of(file: str, name: str) -> set[tuple[str, ...]]:
    return {
        (verb, resource, group, each["metadata"].get("namespace", ""), object_name)
        for each in cluster.documents(file)
        if each["kind"] in {"Role", "ClusterRole"} and each["metadata"]["name"] == name
        for rule in each["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for group in rule["apiGroups"]
        for object_name in rule.get("resourceNames", [""])
    }


def test_the_rights_that_are_asked_about_are_those_of_the_manifests() -> None:
    for account, rights in NEEDED.items():
        name = account.removeprefix("accelbind-")
        assert rules_of(f"base/{name}-rbac.yaml", account) == {
            tuple(right._replace(namespace=right.namespace.replace(".", SYSTEM)))
            for right in rights
        }
    for more, rights in (("mappings", NEEDED_TO_ENFORCE), ("region", NEEDED_TO_PROGRAM)):
        rules = rules_of("base/plugin-rbac.yaml", f"accelbind-plugin-{more}")
        assert rules == {*map(tuple, rights)}


async def test_rights_that_are_missing_or_too_many(api: ApiServerStandIn) -> None:
    check = "cluster.access.plugin"
    assert (await looked_at(api, check)).state is CheckStatus.SKIPPED, "there is no such account"
    with answering(api, cluster.judging(cluster.as_the_manifests_say)):
        assert "4 of 4 rights" in told(await looked_at(api, "cluster.access.webhook"))
        assert "4 of 4 rights" in told(await looked_at(api, check))
    with answering(api, cluster.judging(lambda _: False)):
        result = await looked_at(api, check)
    assert result.state is CheckStatus.FAILED
    assert "accelbind-plugin may not watch nodes in the whole cluster" in told(result)
    assert "create events in namespace default" in told(result)
    with answering(api, cluster.judging(lambda _: True)):
        result = await looked_at(api, check)
    red = [line for line in result.lines if line.state is CheckStatus.FAILED]
    assert len(red) == len(EXCESSIVE)
    assert "may list secrets in the whole cluster, which it does not need" in told(result)


ENFORCED = {"name": "ACCELBIND_ENFORCE_MAPPINGS", "value": "always"}


class Use(NamedTuple):
    """A pool's mode, the annotation of its node, and what is set beside."""

    mode: str
    annotation: str
    env: list[Json]


@pytest.mark.parametrize(
    ("use", "count", "spare"),
    [
        (Use("af", "", []), 4, {"accelbind-plugin-mappings", "accelbind-plugin-region"}),
        (Use("units", "", [ENFORCED]), 4, {"accelbind-plugin-mappings", "accelbind-plugin-region"}),
        (Use("af", "", [ENFORCED]), 7, {"accelbind-plugin-region"}),
        (Use("af", "regiondevel", []), 7, {"accelbind-plugin-region"}),
        (Use("regiondevel", "", []), 7, {"accelbind-plugin-region"}),
        (Use("af", "region", []), 9, set()),
        (Use("region", "", []), 9, set()),
        (Use("region", "af", []), 9, set()),
    ],
)
async def test_the_plugin_s_rights_are_those_of_the_modes_in_use(
    use: Use, count: int, spare: set[str], api: ApiServerStandIn
) -> None:
    node = cluster.labelled("n1", {PHYSICAL: "1"})
    if use.annotation:
        node["metadata"]["annotations"] = {"fpga.intel.com/device-plugin-mode": use.annotation}
    api.put(node)
    pool = cluster.daemonset(mode=use.mode)
    pool["spec"]["template"]["spec"]["containers"][0]["env"] += use.env
    there = cluster.pools([pool], [])
    with answering(api, cluster.first_of(there, cluster.judging(lambda _: True))):
        result = await looked_at(api, "cluster.access.plugin")
    assert f"{count} of {count} rights" in told(result)
    yellow = [line for line in result.lines if line.state is CheckStatus.WARNING]
    assert {re.findall(r"only (\S+) needs", line.todo)[0] for line in yellow} == spare
    with answering(api, cluster.first_of(there, cluster.judging(cluster.as_the_manifests_say))):
        result = await looked_at(api, "cluster.access.plugin")
    assert f"4 of {count} rights" in told(result)
    assert ("component mapping-access" in told(result)) == (count > 4)
    assert ("overlays/region" in told(result)) == (count > 7)
    assert (result.state is CheckStatus.FAILED) == (count > 4)


async def test_who_may_not_ask_about_others_asks_about_itself(api: ApiServerStandIn) -> None:
    def answers(user: str) -> cluster.Answers:
        def answer(request: Request) -> Json | int | None:
            if request.path.endswith("/subjectaccessreviews"):
                return 403
            if request.path.endswith("/selfsubjectreviews"):
                return {"status": {"userInfo": {"username": user}}}
            return None

        return cluster.first_of(answer, cluster.judging(lambda _: False))

    account = f"system:serviceaccount:{SYSTEM}:accelbind-webhook"
    with answering(api, answers(account)):
        results = await looked(api, only="cluster.access")
    assert results["cluster.access.webhook"].state is CheckStatus.FAILED
    assert results["cluster.access.plugin"].state is CheckStatus.UNSEEN
    assert "subjectaccessreviews" in told(results["cluster.access.plugin"])


# Workloads, nodes, pods --------------------------------------------------------------------------


async def test_workloads_that_are_not_ready_say_why(api: ApiServerStandIn) -> None:
    assert (await looked_at(api, "cluster.workloads")).state is CheckStatus.SKIPPED
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    broken = {
        "metadata": {"name": "accelbind-plugin-x", "namespace": SYSTEM},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{"name": "plugin", "state": waiting}],
        },
    }
    deployment = {
        "metadata": {"name": "w"},
        "spec": {"replicas": 2},
        "status": {"readyReplicas": 1},
    }
    where = f"/apis/apps/v1/namespaces/{SYSTEM}"
    answers = cluster.first_of(
        cluster.items(f"{where}/deployments", deployment),
        cluster.items(f"{where}/daemonsets", {"metadata": {"name": "p"}, "status": {}}),
        cluster.items(f"/api/v1/namespaces/{SYSTEM}/pods", broken),
    )
    with answering(api, answers):
        result = await looked_at(api, "cluster.workloads")
    assert "Deployment w: 1 of 2 ready" in told(result)
    assert "plugin: ImagePullBackOff: no such image" in told(result)
    todo = " ".join(line.todo for line in result.lines)
    assert f"kubectl describe deployment -n {SYSTEM} w" in todo
    assert f"kubectl logs -n {SYSTEM} accelbind-plugin-x" in todo
    assert [line.state for line in result.lines] == [
        CheckStatus.FAILED,
        CheckStatus.WARNING,
        CheckStatus.FAILED,
    ]


async def test_other_suites_are_found(api: ApiServerStandIn) -> None:
    assert (await looked_at(api, "cluster.other-suites")).state is CheckStatus.OK
    owner = [{"kind": "FpgaDevicePlugin", "controller": True}]
    named = {"name": "intel-fpga-plugin-sample", "namespace": "inteldeviceplugins-system"}
    answers = cluster.first_of(
        cluster.items(
            "/apis/deviceplugin.intel.com/v1/fpgadeviceplugins", {"metadata": {"name": "sample"}}
        ),
        cluster.items(
            "/apis/apps/v1/daemonsets",
            {"metadata": named | {"ownerReferences": owner}},
            {
                "metadata": {
                    "name": "accelerator-device-plugin-daemonset",
                    "namespace": "kube-system",
                }
            },
            {"metadata": {"name": "accelbind-plugin", "namespace": SYSTEM}},
        ),
    )
    with answering(api, answers):
        result = await looked_at(api, "cluster.other-suites")
    assert [line.state for line in result.lines] == [CheckStatus.FAILED] * 3
    assert "kubectl delete fpgadeviceplugin sample" in told(result)
    assert "its operator re-creates it" in told(result)


async def test_nodes_without_accelerators_or_in_no_mode(api: ApiServerStandIn) -> None:
    assert "none of 0 nodes" in told(await looked_at(api, "cluster.nodes"))
    bad = node_with("n1", {PHYSICAL: "0"})
    bad["metadata"]["annotations"] = {"fpga.intel.com/device-plugin-mode": "fast"}
    api.put(bad)
    result = await looked_at(api, "cluster.nodes")
    assert [line.state for line in result.lines] == [
        CheckStatus.FAILED,
        CheckStatus.WARNING,
        CheckStatus.FAILED,
    ]
    assert "kubectl annotate node n1" in told(result)
    api.put(node_with("n2", {PHYSICAL: "1"}))
    assert "1 node offers" in told(await looked_at(api, "cluster.nodes"))


async def test_a_mapping_that_no_node_serves_is_a_fault_only_once_a_pod_waits_for_it(
    api: ApiServerStandIn,
) -> None:
    api.put(function("nlb0"))
    result = await looked_at(api, "cluster.mappings")
    assert result.state is CheckStatus.WARNING
    (line,) = (line for line in result.lines if line.state is CheckStatus.WARNING)
    assert line.group == "mappings have a resource that no node serves"
    assert (await looked_at(api, "cluster.pending-pods")).state is CheckStatus.OK
    api.put(stuck("waits", PHYSICAL))
    assert (await looked_at(api, "cluster.mappings")).state is CheckStatus.WARNING
    result = await looked_at(api, "cluster.pending-pods")
    assert (result.state, "which no node knows" in told(result)) == (CheckStatus.FAILED, True)


async def test_mappings_are_checked_as_by_the_command_for_them(api: ApiServerStandIn) -> None:
    api.put(function("nlb0"))
    result = await looked_at(api, "cluster.mappings")
    assert (result.state, "never-advertised: default/AcceleratorFunction nlb0" in told(result)) == (
        CheckStatus.WARNING,
        True,
    )
    api.put(node_with("n1", {PHYSICAL: "1"}))
    api.put(function("same"))
    result = await looked_at(api, "cluster.mappings")
    assert (result.state, "duplicate" in told(result)) == (CheckStatus.WARNING, True)


def stuck(
    name: str, resource: str, *, node: str = "", phase: str = "Pending", **status: Any
) -> Json:
    made = pod(name, resource)
    if node:
        made["spec"]["nodeName"] = node
    made["status"] = {"phase": phase, **status}
    return made


async def test_pods_that_wait_in_vain_are_told_from_those_in_a_queue(
    api: ApiServerStandIn,
) -> None:
    assert (await looked_at(api, "cluster.pending-pods")).state is CheckStatus.OK
    api.put(node_with("n1", {PHYSICAL: "1", "fpga.intel.com/region-00000000": "0"}))
    refusal = "rpc error: PreStartContainer: no bitstream for AFU"
    state = {"waiting": {"reason": "CreateContainerConfigError", "message": refusal}}
    scheduling = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes: Insufficient"}
    for each in (
        stuck("logical", "fpga.intel.com/nlb0"),
        stuck("unknown", "fpga.intel.com/region-ffffffff"),
        stuck("broken", "fpga.intel.com/region-00000000"),
        stuck("queued", PHYSICAL, conditions=[scheduling]),
        stuck("refused", PHYSICAL, node="n1", containerStatuses=[{"name": "c", "state": state}]),
        stuck("starting", PHYSICAL, node="n1"),
        stuck("units", "b-com.com/accelerator"),
        stuck("plain", "example.com/gpu"),
    ):
        api.put(each)
    result = await looked_at(api, "cluster.pending-pods")
    found = {line.what.split()[1].partition("/")[2]: line for line in result.lines}
    assert set(found) == {"logical", "unknown", "broken", "queued", "refused", "units"}
    assert "no webhook has replaced" in found["logical"].what
    assert "which no node knows" in found["unknown"].what
    assert "no node has a healthy one" in found["broken"].what
    assert "Insufficient" in found["queued"].what
    assert "no bitstream for AFU" in found["refused"].what
    assert "which no node knows" in found["units"].what
    states = {name: line.state for name, line in found.items()}
    assert states.pop("queued") is CheckStatus.WARNING
    assert set(states.values()) == {CheckStatus.FAILED}
    api.put(node_with("n2", {"b-com.com/accelerator": "40"}))
    assert "of which nodes have 40" in told(await looked_at(api, "cluster.pending-pods"))


async def test_pods_that_failed_for_their_device_are_told(api: ApiServerStandIn) -> None:
    api.put(
        stuck("f", PHYSICAL, phase="Failed", reason="UnexpectedAdmissionError", message="it went")
    )
    api.put(stuck("g", PHYSICAL, phase="Failed", reason="Evicted"))
    result = await looked_at(api, "cluster.failed-pods")
    assert [line.what for line in result.lines] == ["pod default/f has failed for good: it went"]


# The policy of the certificates' account --------------------------------------------------------


def unbound(found: dict[str, Json]) -> None:
    del found["ValidatingAdmissionPolicyBinding"]


def without_policy(found: dict[str, Json]) -> None:
    found.clear()


def auditing(found: dict[str, Json]) -> None:
    found["ValidatingAdmissionPolicyBinding"]["spec"]["validationActions"] = ["Audit"]


def bound_to_another(found: dict[str, Json]) -> None:
    found["ValidatingAdmissionPolicyBinding"]["spec"]["policyName"] = "another"


def lenient(found: dict[str, Json]) -> None:
    found["ValidatingAdmissionPolicy"]["spec"]["failurePolicy"] = "Ignore"


def about_one_kind(found: dict[str, Json]) -> None:
    constraints = found["ValidatingAdmissionPolicy"]["spec"]["matchConstraints"]
    constraints["resourceRules"][0]["resources"] = ["mutatingwebhookconfigurations"]


def shortened(found: dict[str, Json]) -> None:
    found["ValidatingAdmissionPolicy"]["spec"]["validations"].pop()


@pytest.mark.parametrize(
    ("spoil", "state", "words"),
    [
        (lambda _: None, CheckStatus.OK, "is there and bound"),
        (without_policy, CheckStatus.WARNING, "there is no ValidatingAdmissionPolicy"),
        (unbound, CheckStatus.FAILED, "no ValidatingAdmissionPolicyBinding"),
        (bound_to_another, CheckStatus.FAILED, "no ValidatingAdmissionPolicyBinding"),
        (auditing, CheckStatus.FAILED, "does not deny (validationActions: Audit)"),
        (lenient, CheckStatus.WARNING, "failurePolicy is Ignore"),
        (about_one_kind, CheckStatus.FAILED, "does not cover validatingwebhookconfigurations"),
        (shortened, CheckStatus.FAILED, "validations are missing"),
    ],
)
async def test_a_policy_that_holds_the_account_to_less_is_told(
    api: ApiServerStandIn, spoil: Callable[[dict[str, Json]], None], state: CheckStatus, words: str
) -> None:
    found = cluster.policies()
    spoil(found)
    known = cluster.judging(cluster.as_the_manifests_say)
    with answering(api, cluster.first_of(known, cluster.with_policy(found))):
        result = await looked_at(api, "cluster.policy")
    assert (result.state, words in told(result)) == (state, True), told(result)


async def test_no_policy_is_asked_for_without_an_account(api: ApiServerStandIn) -> None:
    result = await looked_at(api, "cluster.policy")
    assert (result.state, "no account" in told(result)) == (CheckStatus.SKIPPED, True)


def test_the_policy_that_is_looked_for_is_that_of_the_manifests() -> None:
    policy = cluster.policies()["ValidatingAdmissionPolicy"]
    assert policy["metadata"]["name"] == POLICY
    assert len(policy["spec"]["validations"]) == VALIDATIONS
    (condition,) = policy["spec"]["matchConditions"]
    assert f":{ACCOUNT}$" in condition["expression"]


# What stays -------------------------------------------------------------------------------------

IDS = [
    "node.driver",
    "node.cards",
    "node.device-nodes",
    "node.kubelet",
    "node.plugin-sockets",
    "node.checkpoint",
    "node.pod-resources",
    "node.pod-logs",
    "node.access",
    "node.cdi",
    "node.bitstreams",
    "node.state-dir",
    "node.hook",
    "node.plugin",
    "node.devices",
    "node.permissions",
    "cluster.api-server",
    "cluster.workloads",
    "cluster.other-suites",
    "cluster.nodes",
    "cluster.pools",
    "cluster.definitions",
    "cluster.webhooks",
    "cluster.webhook-rules",
    "cluster.other-webhooks",
    "cluster.bundles",
    "cluster.served",
    "cluster.mappings",
    "cluster.pending-pods",
    "cluster.failed-pods",
    "cluster.access.webhook",
    "cluster.access.plugin",
    "cluster.access.certs",
    "cluster.policy",
]


def test_ids_stay_since_scripts_name_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--node", "--cluster", "--root", str(tmp_path), "--kubelet-dir", str(tmp_path / "k")]
    flags += ["--kubeconfig", str(tmp_path / "absent"), "--metrics-port", "1", "-o", "json"]
    assert main(["doctor", *flags]) == 1
    found = [each["id"] for each in json.loads(capsys.readouterr().out)["checks"]]
    assert found == IDS


@pytest.mark.parametrize(
    "page", ["docs/administrators.md", "docs/migration.md", "docs/troubleshooting.md"]
)
def test_pages_name_checks_that_there_are(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    named = set(re.findall(r"`((?:node|cluster)\.[a-z.-]+)`", text))
    assert named - set(IDS) == set()
    assert named


def test_pages_name_objects_and_folders_that_there_are() -> None:
    text = (REPOSITORY / "docs/migration.md").read_text()
    for folder in re.findall(r"-k (manifests/[a-z/]+)", text):
        if not folder.endswith("/"):  # an overlay of which the mode is chosen
            assert (REPOSITORY / folder / "kustomization.yaml").exists(), folder
    commands = "\n".join(re.findall(r"^\$ kubectl.*$", text, re.MULTILINE))
    named = set(re.findall(r"\baccelbind[a-z-]*\b", commands)) - {"accelbind-system"}
    kept = {
        each["metadata"]["name"]
        for path in (REPOSITORY / "manifests/base").glob("*.yaml")
        for each in yaml.safe_load_all(path.read_text())
        if each.get("metadata")
    }
    assert named - kept == set()
