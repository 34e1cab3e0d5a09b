"""`accelbind doctor` on clusters, over TLS: what is well, and each thing that isn't."""

import base64
import copy
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from accelbind.cli import main
from accelbind.doctor import show
from accelbind.doctor.access import (
    CERTS,
    EXCESSIVE,
    NEEDED,
    NEEDED_TO_ENFORCE,
    NEEDED_TO_PROGRAM,
    POLICIES,
    Policy,
)
from accelbind.doctor.command import CLUSTER, NODE
from accelbind.doctor.model import Result
from accelbind.doctor.webhooks import DEFINITIONS, KINDS, REVIEWS, Hook, hook_lines
from certs.folder import issue
from simulator.apiserver.http_server import Request
from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.doctor import answers as cluster
from tests.accelbind.doctor.answers import (
    SYSTEM,
    Json,
    answering,
    expect,
    furnish,
    looked,
    told,
)
from tests.simulator.apiserver.support import PHYSICAL, function, node_with, pod
from tests.support import REPOSITORY
from webhook.handler import ENDPOINTS

pytestmark = pytest.mark.anyio


async def test_a_cluster_that_is_well_has_no_red_line(
    api: ApiServerStandIn, tmp_path: Path
) -> None:
    answers = cluster.first_of(
        cluster.judging(cluster.as_the_manifests_say),
        cluster.with_policies(cluster.policies()),
        cluster.pools([cluster.daemonset()], [cluster.plugin_on("n1")]),
    )
    async with cluster.serving(tmp_path / "tls") as (port, bundle):
        furnish(api, port, bundle)
        with answering(api, answers):
            results = await looked(api)
    assert [each for each in results.values() if each.state != "ok"] == []


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (lambda _: 401, "failed"),
        (lambda request: None if request.path == "/version" else 403, "ok"),
    ],
)
async def test_who_may_see_nothing_gets_one_cause(
    api: ApiServerStandIn, answer: cluster.Answers, state: str
) -> None:
    with answering(api, answer):
        results = await looked(api)
    assert results.pop("cluster.api-server").state == state
    assert {result.state for result in results.values()} == {"unseen"}
    words = "RBAC" if state == "ok" else "cannot query the API server: see cluster.api-server"
    assert words in told(results["cluster.nodes"])


async def test_a_cluster_without_accelbind_is_one_finding(api: ApiServerStandIn) -> None:
    results = [*(await looked(api)).values()]
    text = "\n".join(line for _, line in show.lines(results))
    assert text.count("failed: ") == text.count("accelbind is not installed in this cluster") == 1
    assert "is not defined" not in text
    every = "\n".join(line for _, line in show.lines(results, verbose=True))
    assert "is not defined" in every


async def test_an_old_cluster_is_warned_of(api: ApiServerStandIn) -> None:
    old = cluster.one("/version", {"gitVersion": "v1.28.4"})
    await expect(api, "cluster.api-server", "warning", "older than 1.30", answers=old)


# Definitions -------------------------------------------------------------------------------------


def loose(definition: Json) -> None:
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec.pop("x-kubernetes-validations", None)


def unserved(definition: Json) -> None:
    definition["spec"]["versions"][0]["served"] = False


def of_old(definition: Json) -> None:
    definition["spec"]["versions"][0]["name"] = "v1"
    definition["status"] = {"storedVersions": ["v1"]}


def unestablished(definition: Json) -> None:
    condition = {"type": "Established", "status": "False", "message": "names clash"}
    definition["status"] = {"conditions": [condition]}


@pytest.mark.parametrize(
    ("spoil", "state", "words"),
    [
        (lambda _: None, "ok", "is accelbind's"),
        (dict.clear, "failed", "something other"),
        (loose, "warning", "is not accelbind's"),
        (unserved, "failed", "does not serve version v2"),
        (of_old, "failed", "save them, delete the definition"),
        (unestablished, "failed", "names clash"),
    ],
)
async def test_definitions_that_are_not_ours(
    api: ApiServerStandIn, spoil: Callable[[Json], None], state: str, words: str
) -> None:
    await expect(api, "cluster.definitions", "failed", "is not defined", "manifests/crd")
    found = {each["metadata"]["name"]: each for each in cluster.definitions()}
    for each in found.values():
        spoil(each)

    def answer(request: Request) -> Json | None:
        return found.get(request.path.rpartition("/")[2])

    await expect(api, "cluster.definitions", state, words, answers=answer)


def test_what_is_expected_of_definitions_is_what_the_manifests_say() -> None:
    found = {}
    for each in cluster.definitions():
        names, (version,) = each["spec"]["names"], each["spec"]["versions"]
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        ruled = (properties["spec"], properties["metadata"]["properties"]["name"])
        rules = sum(len(one.get("x-kubernetes-validations", [])) for one in ruled)
        found[names["plural"]] = (names["kind"], rules)
    assert found == dict(DEFINITIONS)


# Webhook configurations --------------------------------------------------------------------------


async def test_configurations_that_are_missing(api: ApiServerStandIn) -> None:
    result = await expect(api, "cluster.webhooks", "failed")
    assert [str(line.state) for line in result.lines].count("failed") == 2
    await expect(api, "cluster.webhook-rules", "ok")


async def test_the_public_suites_webhook_is_found(api: ApiServerStandIn) -> None:
    public = cluster.configurations("https://127.0.0.1:1", b"")[0]
    public["metadata"]["name"] = "inteldeviceplugins-mutating-webhook-configuration"
    public["webhooks"] = public["webhooks"][:1]
    public["webhooks"][0]["name"] = "fpga.mutator.webhooks.intel.com"
    api.put(public)
    await expect(api, "cluster.other-webhooks", "failed", "docs/migration.md")
    await expect(api, "cluster.webhooks", "failed")  # it isn't ours


def entry(index: int = 0, **changes: Any) -> Hook:
    """The entry about pods of the mutating configuration, changed."""
    mutating = cluster.configurations("https://h", b"x")[0]
    return Hook("mutating", "accelbind", copy.deepcopy(mutating["webhooks"][index]) | changes)


def conditions(expression: str) -> Json:
    return {"matchConditions": [{"name": "x", "expression": expression}]}


def client(**config: Any) -> Json:
    return {"clientConfig": config}


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({"failurePolicy": "Ignore"}, "failed", "pods are not checked"),
        ({"matchConditions": []}, "failed", "no pod can be created"),
        (conditions("'other/' in initContainers"), "failed", "does not name fpga.intel.com/"),
        (conditions("'fpga.intel.com/' in containers"), "failed", "leaves out init containers"),
        ({"reinvocationPolicy": "Never"}, "warning", "reinvocationPolicy"),
        ({"matchPolicy": "Exact"}, "warning", "matchPolicy"),
        ({"timeoutSeconds": 30}, "warning", "timeoutSeconds is 30"),
        ({"admissionReviewVersions": ["v1beta1"]}, "failed", "admission.k8s.io/v1"),
        (client(url="https://h/mutate"), "failed", "certs run sets it"),
        (client(url="https://h", caBundle="eA=="), "failed", "calls / for pods, not /mutate or"),
        ({"namespaceSelector": {"matchLabels": {"fpga": "yes"}}}, "warning", "no label fpga"),
        ({"rules": [{"operations": ["UPDATE"], "resources": ["pods"]}]}, "failed", "not called"),
    ],
)
def test_configurations_that_are_wrong(changes: Json, state: str, words: str) -> None:
    (line,) = hook_lines(entry(**changes), ("fpga.intel.com/",))
    assert (line.state, words in line.what + line.todo) == (state, True), line


def test_the_paths_are_the_webhooks() -> None:
    assert {path for review in REVIEWS for path in review.paths} == set(ENDPOINTS)
    found = cluster.configurations("https://h/through/a/proxy", b"x")
    for kind, each in zip(KINDS, found, strict=True):
        for one in each["webhooks"]:
            assert [*hook_lines(Hook(kind, "x", one), ("fpga.intel.com/",))] == []


# Certificates ------------------------------------------------------------------------------------


def install(api: ApiServerStandIn, url: str, bundle: bytes) -> None:
    for each in cluster.configurations(url, bundle):
        api.put(each)


async def served(
    api: ApiServerStandIn, port: int, bundle: bytes, state: str, *words: str
) -> Result:
    install(api, f"https://127.0.0.1:{port}", bundle)
    return await expect(api, "cluster.served", state, *words)


async def test_a_certificate_that_the_bundle_does_not_fit(
    api: ApiServerStandIn, tmp_path: Path
) -> None:
    other = issue(tmp_path / "other", ["127.0.0.1"]).ca_certificate.read_bytes()
    async with cluster.serving(tmp_path / "tls") as (port, bundle):
        await served(api, port, bundle, "ok")
        await served(api, port, other + bundle, "ok")  # while a CA changes
        await served(api, port, other, "failed", "certs run sets the bundle")
        await served(api, port, b"no certificate", "failed")
        await expect(api, "cluster.bundles", "failed")


@pytest.mark.parametrize(
    ("days_ago", "name", "state", "words"),
    [
        (300, "127.0.0.1", "warning", "its renewal is overdue"),
        (100, "127.0.0.1", "ok", "valid until"),
        (400, "127.0.0.1", "failed", "expired"),
        (0, "elsewhere.svc", "failed", "certificate is not valid for '127.0.0.1'"),
    ],
)
async def test_certificates_that_end_or_are_for_others(
    api: ApiServerStandIn, tmp_path: Path, *, days_ago: int, name: str, state: str, words: str
) -> None:
    now = datetime.now(UTC).replace(microsecond=0) - timedelta(days=days_ago)
    async with cluster.serving(tmp_path / "tls", name, now=now) as (port, bundle):
        await served(api, port, bundle, state, words)


async def test_a_bundle_whose_cas_have_expired(api: ApiServerStandIn, tmp_path: Path) -> None:
    then = datetime.now(UTC).replace(microsecond=0) - timedelta(days=20)
    old = issue(tmp_path / "old", ["h"], days=1, ca_days=2, now=then).ca_certificate.read_bytes()
    new = issue(tmp_path / "new", ["h"]).ca_certificate.read_bytes()
    install(api, "https://127.0.0.1:1", old)
    await expect(api, "cluster.bundles", "failed", "0 of 1 CAs")
    install(api, "https://127.0.0.1:1", old + new)
    await expect(api, "cluster.bundles", "ok", "1 of 2 CAs")


async def test_a_webhook_that_is_away(api: ApiServerStandIn, tmp_path: Path) -> None:
    async with cluster.serving(tmp_path / "tls") as (port, bundle):
        pass
    await served(api, port, bundle, "failed", "connection refused")
    install(api, "https://nowhere.invalid", bundle)
    await expect(api, "cluster.served", "unseen", "from here")


async def test_each_pod_behind_the_service_is_called(api: ApiServerStandIn, tmp_path: Path) -> None:
    (mutating,) = cluster.documents("base/webhook-mutating.yaml")
    api.put(mutating)
    server = f"accelbind-webhook.{SYSTEM}.svc"
    path = f"/api/v1/namespaces/{SYSTEM}/services/accelbind-webhook"
    service = cluster.one(path, {"spec": {"ports": [{"name": "https", "port": 443}]}})

    def behind(*ports: int) -> cluster.Answers:
        labels = {"kubernetes.io/service-name": "accelbind-webhook"}
        endpoint = [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}]
        common = {"metadata": {"labels": labels}, "endpoints": endpoint}
        each = [common | {"ports": [{"name": "https", "port": port}]} for port in ports]
        other = common | {"metadata": {}, "ports": [{"name": "https", "port": 1}]}
        slices = f"/apis/discovery.k8s.io/v1/namespaces/{SYSTEM}/endpointslices"
        return cluster.first_of(service, cluster.items(slices, other, *each))

    await expect(api, "cluster.served", "failed", "there is no Service")
    (line,) = (await expect(api, "cluster.served", "failed", answers=service)).lines
    assert "no pod behind the Service" in line.what, "once, for all entries"
    async with (
        cluster.serving(tmp_path / "a", server) as (good, bundle),
        cluster.serving(tmp_path / "b", server) as (bad, _),
    ):
        for each in mutating["webhooks"]:
            each["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
        api.put(mutating)
        words = f"{server} at 127.0.0.1:{good}"
        await expect(api, "cluster.served", "ok", words, answers=behind(good))
        result = await expect(api, "cluster.served", "failed", answers=behind(good, bad))
        assert [str(line.state) for line in result.lines] == ["ok", "failed"]
        await expect(api, "cluster.served", "ok", address=("127.0.0.1", good))


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
    await expect(api, check, "skipped", "there is no account")
    right = cluster.judging(cluster.as_the_manifests_say)
    await expect(api, "cluster.access.webhook", "ok", "4 of 4 rights", answers=right)
    words = ("may not watch nodes in the whole cluster", "create events in namespace default")
    await expect(api, check, "failed", *words, answers=cluster.judging(lambda _: False))
    spare = "may list secrets in the whole cluster, which it does not need"
    everything = cluster.judging(lambda _: True)
    result = await expect(api, check, "failed", spare, answers=everything)
    assert [str(line.state) for line in result.lines].count("failed") == len(EXCESSIVE)


ENFORCED = {"name": "ACCELBIND_ENFORCE_MAPPINGS", "value": "always"}


class Use(NamedTuple):
    """A pool's mode, the annotation of its node, and what is set beside."""

    mode: str
    annotation: str = ""
    env: tuple[Json, ...] = ()


@pytest.mark.parametrize(
    ("use", "count"),
    [
        (Use("af"), 3),
        (Use("af", "", (ENFORCED,)), 6),
        (Use("af", "regiondevel"), 6),
        (Use("af", "region"), 7),
    ],
)
async def test_the_plugin_s_rights_are_those_of_the_modes_in_use(
    use: Use, count: int, api: ApiServerStandIn
) -> None:
    node = cluster.labelled("n1", {PHYSICAL: "1"})
    node["metadata"]["annotations"] = {"fpga.intel.com/device-plugin-mode": use.annotation}
    api.put(node)
    pool = cluster.daemonset(mode=use.mode)
    pool["spec"]["template"]["spec"]["containers"][0]["env"] += use.env
    answers = cluster.first_of(
        cluster.pools([pool], [cluster.plugin_on("n1")]),
        cluster.judging(cluster.as_the_manifests_say),
    )
    state, words = "failed" if count > 3 else "ok", f"3 of {count} rights"
    result = await expect(api, "cluster.access.plugin", state, words, answers=answers)
    assert ("component mapping-access" in told(result)) == (count > 3)
    assert ("overlays/region" in told(result)) == (count > 6)


async def test_who_may_not_ask_about_others_is_told_so(api: ApiServerStandIn) -> None:
    def forbidden(request: Request) -> int | None:
        return 403 if request.path.endswith("/subjectaccessreviews") else None

    answers = cluster.first_of(forbidden, cluster.judging(lambda _: False))
    words = "RBAC must allow us to create subjectaccessreviews"
    await expect(api, "cluster.access.webhook", "unseen", words, answers=answers)


# Workloads, nodes, pods --------------------------------------------------------------------------


async def test_workloads_that_are_not_ready_say_why(api: ApiServerStandIn) -> None:
    await expect(api, "cluster.workloads", "skipped")
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    statuses = [{"name": "plugin", "state": waiting}]
    pod = {
        "metadata": {"name": "accelbind-plugin-x", "namespace": SYSTEM},
        "status": {"phase": "Pending", "containerStatuses": statuses},
    }
    ready = {"spec": {"replicas": 2}, "status": {"readyReplicas": 1}}
    where = f"/apis/apps/v1/namespaces/{SYSTEM}"
    answers = cluster.first_of(
        cluster.items(f"{where}/deployments", {"metadata": {"name": "w"}} | ready),
        cluster.items(f"{where}/daemonsets", {"metadata": {"name": "p"}, "status": {}}),
        cluster.items(f"/api/v1/namespaces/{SYSTEM}/pods", pod),
    )
    words = (
        "Deployment w: 1 of 2 ready",
        "plugin: ImagePullBackOff: no such image",
        f"kubectl describe deployment -n {SYSTEM} w",
        f"kubectl logs -n {SYSTEM} accelbind-plugin-x",
    )
    result = await expect(api, "cluster.workloads", "failed", *words, answers=answers)
    assert [str(line.state) for line in result.lines] == ["failed", "warning", "failed"]


async def test_other_suites_are_found(api: ApiServerStandIn) -> None:
    await expect(api, "cluster.other-suites", "ok")

    def item(name: str, namespace: str = "kube-system", **metadata: Any) -> Json:
        return {"metadata": {"name": name, "namespace": namespace} | metadata}

    owner = [{"kind": "FpgaDevicePlugin", "controller": True}]
    answers = cluster.first_of(
        cluster.items("/apis/deviceplugin.intel.com/v1/fpgadeviceplugins", item("sample")),
        cluster.items(
            "/apis/apps/v1/daemonsets",
            item("intel-fpga-plugin-sample", ownerReferences=owner),
            item("accelerator-device-plugin-daemonset"),
            item("accelbind-plugin", SYSTEM),
        ),
    )
    words = ("kubectl delete fpgadeviceplugin sample", "its operator re-creates it")
    result = await expect(api, "cluster.other-suites", "failed", *words, answers=answers)
    assert len(result.lines) == 3


async def test_nodes_without_accelerators_or_in_no_mode(api: ApiServerStandIn) -> None:
    await expect(api, "cluster.nodes", "failed", "none of 0 nodes")
    bad = node_with("n1", {PHYSICAL: "0"})
    bad["metadata"]["annotations"] = {"fpga.intel.com/device-plugin-mode": "fast"}
    api.put(bad)
    result = await expect(api, "cluster.nodes", "failed", "kubectl annotate node n1")
    assert [str(line.state) for line in result.lines] == ["failed", "warning", "failed"]
    api.put(node_with("n2", {PHYSICAL: "1"}))
    await expect(api, "cluster.nodes", "failed", "1 node offers")


async def test_a_mapping_that_no_node_serves_is_a_fault_only_once_a_pod_waits_for_it(
    api: ApiServerStandIn,
) -> None:
    api.put(function("nlb0"))
    words = "never-advertised: default/AcceleratorFunction nlb0"
    result = await expect(api, "cluster.mappings", "warning", words)
    assert "mappings have a resource that no node serves" in {line.group for line in result.lines}
    await expect(api, "cluster.pending-pods", "ok")
    api.put(stuck("waits", PHYSICAL))
    await expect(api, "cluster.mappings", "warning")
    await expect(api, "cluster.pending-pods", "failed", "which no node knows")
    api.put(node_with("n1", {PHYSICAL: "1"}))
    api.put(function("same"))
    await expect(api, "cluster.mappings", "warning", "duplicate")


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
    result = await expect(api, "cluster.pending-pods", "failed")
    found = {line.what.split()[1].partition("/")[2]: line for line in result.lines}
    words = {
        "logical": "no webhook has replaced",
        "unknown": "which no node knows",
        "broken": "no node has a healthy one",
        "queued": "Insufficient",
        "refused": "no bitstream for AFU",
        "units": "which no node knows",
    }
    assert found.keys() == words.keys()
    assert [name for name in words if words[name] not in found[name].what] == []
    states = {name: str(line.state) for name, line in found.items()}
    assert states == dict.fromkeys(words, "failed") | {"queued": "warning"}
    api.put(node_with("n2", {"b-com.com/accelerator": "40"}))
    await expect(api, "cluster.pending-pods", "failed", "of which nodes have 40")


async def test_pods_that_failed_for_their_device_are_told(api: ApiServerStandIn) -> None:
    refused = {"reason": "UnexpectedAdmissionError", "message": "it went"}
    api.put(stuck("f", PHYSICAL, phase="Failed", **refused))
    api.put(stuck("g", PHYSICAL, phase="Failed", reason="Evicted"))
    (line,) = (await expect(api, "cluster.failed-pods", "warning")).lines
    assert line.what == "pod default/f has failed for good: it went"


# The policies of the certificates' account ------------------------------------------------------

POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"


class Spoiled(NamedTuple):
    """A kind, and the field that is changed; without a field the object is missing."""

    kind: str
    field: str = ""
    value: object = None


@pytest.mark.parametrize(
    ("spoiled", "state", "words"),
    [
        (Spoiled(BINDING, "any", 1), "ok", "is there and bound"),
        (Spoiled(POLICY), "warning", f"there is no {POLICY} {{name}}"),
        (Spoiled(BINDING), "failed", f"no {BINDING} names {{name}}"),
        (Spoiled(BINDING, "validationActions", ["Audit"]), "failed", "validationActions: Audit"),
        (Spoiled(POLICY, "validations", []), "failed", "{name}: validations are missing"),
    ],
)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
async def test_a_policy_that_holds_the_account_to_less_is_told(
    api: ApiServerStandIn, policy: Policy, spoiled: Spoiled, state: str, words: str
) -> None:
    found = {(each["kind"], each["metadata"]["name"]): each for each in cluster.policies()}
    if spoiled.field:
        found[spoiled.kind, policy.name]["spec"][spoiled.field] = spoiled.value
    else:
        del found[spoiled.kind, policy.name]
    known = cluster.judging(cluster.as_the_manifests_say)
    answers = cluster.first_of(known, cluster.with_policies([*found.values()]))
    await expect(api, "cluster.policy", state, words.format(name=policy.name), answers=answers)


async def test_no_policy_is_asked_for_without_an_account(api: ApiServerStandIn) -> None:
    await expect(api, "cluster.policy", "skipped", "no account")


def test_the_policies_that_are_expected_are_those_of_the_manifests() -> None:
    found = [each for each in cluster.policies() if each["kind"] == POLICY]
    assert [each["metadata"]["name"] for each in found] == [each.name for each in POLICIES]
    for each, policy in zip(found, POLICIES, strict=True):
        assert len(each["spec"]["validations"]) == policy.validations
        (condition,) = each["spec"]["matchConditions"]
        assert f":{CERTS}$" in condition["expression"]


# The documentation ------------------------------------------------------------------------------

IDS = [*NODE, *CLUSTER]


def test_both_lists_are_run_in_their_order(
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
    assert named
    assert named <= set(IDS)
