"""`accelbind doctor` on clusters, over TLS: what is well, and each thing that isn't."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from accelbind.doctor.command import lines
from accelbind.doctor.model import Result, failed
from accelbind.doctor.webhooks import CERTS, POLICIES
from certs.folder import issue
from simulator.apiserver.standin import ApiServerStandIn
from simulator.cards import A10_INTERFACE, NLB0
from tests.accelbind.doctor import answers as cluster
from tests.accelbind.doctor.answers import SYSTEM, Json, answering, expect, looked, told
from tests.accelbind.running import run, write_config
from tests.simulator.apiserver.support import PHYSICAL, function, node_with, pod
from tests.support import require

TARGET, ALSO = "example.com/gpu", "example.com/nic"
"""Resources that an Accelerator stands for."""


async def test_a_cluster_that_is_well_has_no_red_line(
    api: ApiServerStandIn, tmp_path: Path
) -> None:
    answers = cluster.first_of(
        cluster.account,
        cluster.with_policies(cluster.policies()),
        cluster.pools(
            [cluster.daemonset()], [cluster.plugin_on("n1")], n1=cluster.says("af", PHYSICAL)
        ),
    )
    api.put(function("nlb0"))
    api.put(cluster.labelled("n1", {PHYSICAL: "2", "cpu": "4"}))
    async with cluster.serving(tmp_path / "tls") as (port, bundle):
        for each in cluster.configurations(f"https://127.0.0.1:{port}", bundle):
            api.put(each)
        with answering(api, answers):
            results = await looked(api)
    assert [each for each in results.values() if each.state != "ok"] == []


async def test_who_may_see_nothing_is_told_for_each_check(api: ApiServerStandIn) -> None:
    with answering(api, lambda request: None if request.path == "/version" else 403):
        results = await looked(api)
    assert results.pop("cluster.api-server").state == "ok"
    assert {result.state for result in results.values()} == {"unseen"}
    assert "RBAC" in told(results["cluster.pools"])


# Webhook configurations --------------------------------------------------------------------------


async def test_a_cluster_without_accelbind_has_no_configurations(api: ApiServerStandIn) -> None:
    result = await expect(api, "cluster.webhooks", "failed")
    states = [str(line.state) for line in result.lines]
    assert states == ["failed", "failed"]
    await expect(api, "cluster.served", "skipped")
    await expect(api, "cluster.workloads", "skipped")
    await expect(api, "cluster.other-suites", "ok")
    await expect(api, "cluster.policy", "skipped", "no account")


def conditions(expression: str) -> Json:
    return {"matchConditions": [{"name": "x", "expression": expression}]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"failurePolicy": "Ignore"}, "pods are not checked"),
        ({"matchConditions": []}, "no pod can be created"),
        (conditions("'other/' in initContainers"), "does not name fpga.intel.com/"),
    ],
)
async def test_an_entry_about_pods_that_lets_pods_through(
    api: ApiServerStandIn, changes: Json, words: str
) -> None:
    mutating, validating = cluster.configurations("https://h", b"x")
    mutating["webhooks"][0] |= changes
    for each in (mutating, validating):
        api.put(each)
    await expect(api, "cluster.webhooks", "failed" if words else "ok", words)


async def test_the_guard_is_no_last_check_and_needs_no_domains_of_ours(
    api: ApiServerStandIn,
) -> None:
    mutating, validating = cluster.configurations("https://h", b"x")
    last = validating["webhooks"][0]
    guard = copy.deepcopy(last) | conditions("'nvidia.com/' in initContainers")
    guard["clientConfig"]["url"] = "https://h/guard"
    validating["webhooks"].append(guard)
    for each in (mutating, validating):
        api.put(each)
    await expect(api, "cluster.webhooks", "ok")
    validating["webhooks"].remove(last)
    api.put(validating)
    await expect(api, "cluster.webhooks", "failed", "changes by other webhooks are not checked")


# Certificates ------------------------------------------------------------------------------------


async def served(
    api: ApiServerStandIn, port: int, bundle: bytes, state: str, *words: str
) -> Result:
    for each in cluster.configurations(f"https://127.0.0.1:{port}", bundle):
        api.put(each)
    return await expect(api, "cluster.served", state, *words)


async def test_the_api_server_says_whether_it_trusts_the_webhook(
    api: ApiServerStandIn, tmp_path: Path
) -> None:
    other = issue(tmp_path / "other", ["127.0.0.1"]).ca_certificate.read_bytes()
    async with cluster.serving(tmp_path / "tls") as (port, bundle):
        await served(api, port, bundle, "ok", "calls webhook pods.accelbind.dev and trusts")
        await served(api, port, other + bundle, "ok")  # while a CA changes
        await served(api, port, other, "failed", "failed calling webhook", "certs show")
        await served(api, port, b"", "failed", "failed calling webhook")
        api.put(cluster.configurations(f"https://127.0.0.1:{port}", bundle)[0])
        await expect(api, "cluster.served", "warning", "trust different CAs")
    async with cluster.serving(tmp_path / "elsewhere", "elsewhere.svc") as (port, bundle):
        await served(api, port, bundle, "failed", "failed calling webhook")
    await served(api, port, bundle, "failed", "cluster.workloads")
    assert api.objects("Pod") == [], "a dry run"


async def test_a_pod_that_is_not_sent_to_the_webhook_shows_nothing_of_it(
    api: ApiServerStandIn,
) -> None:
    mutating, validating = cluster.configurations("https://127.0.0.1:1", b"x")
    for entry in (*mutating["webhooks"], *validating["webhooks"]):
        entry["namespaceSelector"] = {"matchLabels": {"accelerators": "yes"}}
    for each in (mutating, validating):
        api.put(each)
    await expect(api, "cluster.served", "unseen", "it was not sent to the webhook")
    answers = cluster.one("/api/v1/namespaces/default/pods", 403)
    await expect(api, "cluster.served", "unseen", "as the test says", answers=answers)


# Workloads, nodes, pods --------------------------------------------------------------------------


async def test_workloads_that_are_not_ready_are_named(api: ApiServerStandIn) -> None:
    ready = {"spec": {"replicas": 2}, "status": {"readyReplicas": 1}}
    where = f"/apis/apps/v1/namespaces/{SYSTEM}"
    answers = cluster.first_of(
        cluster.items(f"{where}/deployments", {"metadata": {"name": "w"}} | ready),
        cluster.items(f"{where}/daemonsets", {"metadata": {"name": "p"}, "status": {}}),
    )
    words = ("Deployment w: 1 of 2 ready", f"kubectl describe deployment -n {SYSTEM} w")
    result = await expect(api, "cluster.workloads", "failed", *words, answers=answers)
    assert [str(line.state) for line in result.lines] == ["failed", "ok"], "a pool may be empty"


async def test_other_suites_and_their_webhook_are_found(api: ApiServerStandIn) -> None:
    public, _ = cluster.configurations("https://127.0.0.1:1", b"")
    public["metadata"]["name"] = "inteldeviceplugins-mutating-webhook-configuration"
    public["webhooks"][0]["name"] = "fpga.mutator.webhooks.intel.com"
    api.put(public)

    def item(name: str, namespace: str = "kube-system") -> Json:
        return {"metadata": {"name": name, "namespace": namespace}}

    answers = cluster.first_of(
        cluster.items("/apis/deviceplugin.intel.com/v1/fpgadeviceplugins", item("sample")),
        cluster.items(
            "/apis/apps/v1/daemonsets",
            item("intel-fpga-plugin-sample"),
            item("accelerator-device-plugin-daemonset"),
            item("accelbind-plugin", SYSTEM),
        ),
    )
    words = ("kubectl delete fpgadeviceplugin sample", "only one webhook can replace names")
    result = await expect(api, "cluster.other-suites", "failed", *words, answers=answers)
    assert len(result.lines) == 4
    await expect(api, "cluster.webhooks", "failed")  # it isn't ours


FPGA = cluster.attributes(type="fpga", interfaceID=A10_INTERFACE, afuID=NLB0)
TAINTED = FPGA | {"taints": [{"key": "accelbind.dev/unhealthy", "effect": "NoSchedule"}]}
REGION = f"fpga.intel.com/region-{A10_INTERFACE}"
RNG = "device.accelbind.dev/rng"
PUBLISHED_RNG = cluster.published("n1", cluster.attributes(type="rng"))
TAINTED_RNG = cluster.attributes(type="rng") | {"taints": TAINTED["taints"]}


@pytest.mark.parametrize(
    ("offers", "state"),
    [
        ([cluster.published("n1", FPGA)], "ok"),
        ([cluster.published("n1", TAINTED)], "warning"),
        ([cluster.published("n1", FPGA), cluster.published("n1", generation=2)], "warning"),
        ([PUBLISHED_RNG, cluster.device_class("rng.accelbind.dev", RNG)], "ok"),
        ([PUBLISHED_RNG], "ok"),
        ([PUBLISHED_RNG, cluster.device_class("random", RNG)], "ok"),
        ([cluster.published("n1", TAINTED_RNG)], "warning"),
        ([cluster.published("n1", cluster.attributes(type="fpga"))], "ok"),
        ([cluster.published("n1", FPGA) | {"spec": {"driver": "gpu.nvidia.com"}}], "warning"),
        ([cluster.labelled("n2", {RNG: "1"})], "ok"),
        ([cluster.labelled("n2", {RNG: "0"})], "warning"),
    ],
)
async def test_some_node_offers_an_accelerator(
    api: ApiServerStandIn, offers: list[Json], state: str
) -> None:
    """Beside a node that a plugin has served before."""
    api.put(cluster.labelled("n1", {REGION: "0"}))
    for each in offers:
        api.put(each)
    pods = [cluster.plugin_on(node) for node in ("n1", "n2")]
    answers = cluster.pools([cluster.daemonset()], pods)
    words = "none offers an accelerator" if state == "warning" else "plugins cover"
    await expect(api, "cluster.pools", state, words, answers=answers)


async def test_a_pod_that_waits_for_what_is_published_without_a_class(
    api: ApiServerStandIn,
) -> None:
    api.put(cluster.published("n1", FPGA))
    api.put(stuck("p", REGION))
    await expect(api, "cluster.pending-pods", "failed", "no DeviceClass has it")
    api.put(cluster.device_class("region-x", REGION))
    await expect(api, "cluster.pending-pods", "warning", "of which nodes have 1")


def stuck(name: str, resource: str, *, node: str = "", **status: Any) -> Json:
    made = pod(name, resource)
    if node:
        made["spec"]["nodeName"] = node
    made["status"] = {"phase": "Pending", **status}
    return made


async def test_pods_that_wait_in_vain_are_told_from_those_in_a_queue(
    api: ApiServerStandIn,
) -> None:
    refusal = "rpc error: PreStartContainer: no bitstream for AFU"
    state = {"waiting": {"reason": "CreateContainerConfigError", "message": refusal}}
    scheduling = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes: Insufficient"}
    noted = stuck("noted", "vendor.example/other")
    names = {"accelbind.dev/claimed": 1}
    note = {"c": names | {"env:OWN": 1}, "d": names}
    noted["metadata"]["annotations"] = {"accelbind.dev/requested": json.dumps(note)}
    for each in (
        noted,
        stuck("logical", "fpga.intel.com/nlb0"),
        stuck("unknown", "fpga.intel.com/region-ffffffff"),
        stuck("broken", "fpga.intel.com/region-00000000"),
        stuck("queued", PHYSICAL, conditions=[scheduling]),
        stuck("refused", PHYSICAL, node="n1", containerStatuses=[{"name": "c", "state": state}]),
        stuck("starting", PHYSICAL, node="n1"),
        stuck("units", "b-com.com/accelerator"),
        stuck("mapped", TARGET),
        stuck("also", ALSO),
        stuck("typed", "device.accelbind.dev/x"),
        stuck("other", "vendor.example/other"),
    ):
        api.put(each)
    amounts: Json = {PHYSICAL: "1", "device.accelbind.dev/x": "1"}
    amounts |= dict.fromkeys(("fpga.intel.com/region-00000000", ALSO), "0")
    api.put(node_with("n1", amounts))
    named = {"spec": {"target": {"resource": TARGET}, "alsoRequest": [{"resource": ALSO}]}}
    answers = cluster.items("/apis/accelbind.dev/v1alpha1/accelerators", named)
    result = await expect(api, "cluster.pending-pods", "failed", answers=answers)
    found = {line.what.split()[1].partition("/")[2]: line for line in result.lines}
    words = {
        "noted": "waits for accelbind.dev/claimed: 2: no message",
        "logical": "no webhook has replaced",
        "unknown": "which no node knows",
        "broken": "no node has a healthy one",
        "queued": "Insufficient",
        "refused": "no bitstream for AFU",
        "units": "which no node knows",
        "mapped": "which no node knows",
        "also": "no node has a healthy one",
        "typed": "of which nodes have 1",
    }
    assert found.keys() == words.keys()
    assert [name for name in words if words[name] not in found[name].what] == []
    waiting = {name for name, line in found.items() if line.state == "warning"}
    assert waiting == {"queued", "noted", "typed"}
    api.put(node_with("n2", {"b-com.com/accelerator": "40"}))
    api.put(cluster.device_class("gpus", TARGET))
    words_of_both = ("of which nodes have 40", "of a DeviceClass")
    await expect(api, "cluster.pending-pods", "failed", *words_of_both, answers=answers)


async def test_pending_pods_are_found_where_mappings_may_not_be_read(
    api: ApiServerStandIn,
) -> None:
    api.put(stuck("unknown", "fpga.intel.com/region-ffffffff"))
    words = ("which no node knows", "what Accelerators stand for")
    answers = cluster.denied("accelerators")
    await expect(api, "cluster.pending-pods", "failed", *words, answers=answers)


# The policies of the certificates' account ------------------------------------------------------

POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"


@pytest.mark.parametrize(
    ("kind", "actions", "state", "words"),
    [
        ("", [], "ok", "is there and bound"),
        (POLICY, [], "warning", f"there is no {POLICY} {{name}}"),
        (BINDING, [], "failed", f"no {BINDING} of {{name}} denies"),
        (BINDING, ["Audit"], "failed", f"no {BINDING} of {{name}} denies"),
    ],
)
async def test_a_policy_that_does_not_hold_the_account_is_told(
    api: ApiServerStandIn, kind: str, actions: list[str], state: str, words: str
) -> None:
    """An object of a kind is missing, or denies nothing."""
    name = [*POLICIES][-1]
    found = {(each["kind"], each["metadata"]["name"]): each for each in cluster.policies()}
    if actions:
        found[kind, name]["spec"]["validationActions"] = actions
    elif kind:
        del found[kind, name]
    answers = cluster.first_of(cluster.account, cluster.with_policies([*found.values()]))
    await expect(api, "cluster.policy", state, words.format(name=name), answers=answers)


def test_the_policies_that_are_expected_are_those_of_the_manifests() -> None:
    found = [each for each in cluster.policies() if each["kind"] == POLICY]
    assert [each["metadata"]["name"] for each in found] == [*POLICIES]
    for each in found:
        (condition,) = each["spec"]["matchConditions"]
        assert f":{CERTS}$" in condition["expression"]


# What people see: not all at once, and one cause once


def test_of_many_findings_the_first_are_shown() -> None:
    found = Result("check.0", "Question?", [failed(f"device {n}") for n in range(23)])
    assert [line for _, line in lines([found])][:-2] == [
        "FAILED   check.0  Question?",
        *(f"         failed: device {n}" for n in range(20)),
        "         … and 3 more (-o json lists them)",
    ]


@pytest.mark.parametrize(
    ("exists", "cause"),
    [
        (True, "connect: connection refused"),
        (False, "kubeconfig does not exist"),
    ],
)
def test_a_wrong_kubeconfig_is_one_finding(tmp_path: Path, *, exists: bool, cause: str) -> None:
    require("kubectl")
    path = write_config(tmp_path, {"server": "https://127.0.0.1:1"})
    if not exists:
        path.unlink()
    command = ("doctor", "--cluster", "--kubeconfig", path)
    code, out, _ = run(*command)
    assert (out.count(cause), out.count("→ check --kube"), "\\n" in out) == (1, 1, False)
    assert (code, len(out.splitlines())) == (2, 5)
    code, out, _ = run(*command, "--only", "cluster.pools")
    assert (code, out.count(cause), out.splitlines()[-1]) == (2, 1, "1 check: 1 unseen")
    code, out, _ = run(*command, "-o", "json")
    document = json.loads(out)
    assert (code, document["ok"]) == (2, False)
    assert document["counts"]["unseen"] == len(document["checks"]) == 1
