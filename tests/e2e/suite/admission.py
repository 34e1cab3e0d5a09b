"""What the webhook makes of pods: the samples, and what must be refused with a sentence."""

import json

import pytest

from services.mappings.kinds import ACCELERATOR, TABLE
from services.names import DOMAIN, UNIT_RESOURCE
from simulator.cards import A10_INTERFACE, D5005_INTERFACE, NLB3
from tests.e2e.api import Json
from tests.e2e.cluster import GUARD_LABEL, Cluster
from tests.e2e.hosts import FUNCTION, REGION, Hosts
from tests.e2e.pods import Pods, containers, limits_of, pod_of, sample_pods, simple

NLB0_NAME = f"{DOMAIN}/arria10-nlb0"
PROGRAMMED_NAME = f"{DOMAIN}/arria10-nlb0-programmed"
BECOMES = {
    "af": FUNCTION,
    "region": REGION,
    "regiondevel": REGION,
    "init-container": FUNCTION,
    "non-root": FUNCTION,
    "deployment": FUNCTION,
    "units": UNIT_RESOURCE,
}
"""What each sample asks for once it is admitted."""


def pod_in(item: Json) -> Json:
    return pod_of(item, "of-a-deployment") if item["kind"] == "Deployment" else item


def devices(amounts: dict[str, str]) -> dict[str, str]:
    """Those of a device plugin: Kubernetes' own, as memory and huge pages, have no domain."""
    return {name: amount for name, amount in amounts.items() if "/" in name}


@pytest.mark.parametrize("name", sample_pods())
def test_a_sample_is_admitted_as_it_is_documented(pods: Pods, name: str) -> None:
    for item in map(pod_in, sample_pods()[name]):
        made = pods.admitted(item)
        for each in containers(made):
            assert devices(limits_of(each)) == {BECOMES[name]: "1"}
            requests = each["resources"].get("requests", {})
            assert devices(requests) == {BECOMES[name]: "1"}, "what is scheduled by"
        noted = made["metadata"].get("annotations", {}).get("accelbind.dev/requested", "{}")
        asked = {each["name"]: devices(limits_of(each)) for each in containers(item)}
        assert json.loads(noted) == ({} if name == "units" else asked)
        env = {each["name"]: each.get("value") for each in containers(made)[-1].get("env") or []}
        assert ("FPGA_AFU_1" in env) == (name == "region")


def test_a_plain_pod_is_admitted_as_it_is(pods: Pods, elsewhere: Pods) -> None:
    for each in (pods, elsewhere):
        made = each.try_out(simple("plain", {}))
        assert "accelbind.dev/requested" not in made["metadata"].get("annotations", {})
        assert not limits_of(containers(made)[0])


def test_an_admitted_pod_is_admitted_again_unchanged(pods: Pods) -> None:
    """As a Job's or a backup's pods, which have been through the webhook before."""
    made = pods.admitted(simple("again", {NLB0_NAME: 1}))
    spec = {"containers": made["spec"]["containers"], "restartPolicy": "Never"}
    metadata = {"name": "again", "annotations": made["metadata"]["annotations"]}
    again = pods.try_out({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    assert limits_of(containers(again)[0]) == {FUNCTION: "1"}
    assert again["metadata"]["annotations"] == metadata["annotations"]


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (simple("misspelt", {f"{DOMAIN}/arria10-nlbo": 1}), "did you mean arria10"),
        (simple("physical", {f"{DOMAIN}/region-{D5005_INTERFACE}": 1}), "no mapping"),
        (simple("many", {NLB0_NAME: 100_000}), "the limit is"),
        (
            simple(
                "differing", {}, resources={"limits": {NLB0_NAME: 2}, "requests": {NLB0_NAME: 1}}
            ),
            "make them equal",
        ),
        (
            simple(
                "half-forged", {PROGRAMMED_NAME: 1}, env=[{"name": "FPGA_AFU_1", "value": NLB3}]
            ),
            "FPGA_AFU_1",
        ),
        (
            simple(
                "forged",
                {REGION: 1},
                env=[
                    {"name": "FPGA_REGION_1", "value": A10_INTERFACE},
                    {"name": "FPGA_AFU_1", "value": "0" * 32},
                ],
            ),
            "no mapping",
        ),
    ],
    ids=lambda value: value["metadata"]["name"] if isinstance(value, dict) else "",
)
def test_a_pod_is_refused_with_what_to_do(pods: Pods, pod: Json, words: str) -> None:
    pods.admitted(simple("ready", {NLB0_NAME: 1}))
    refused = pods.refusal(pod)
    # Without a webhook the API server would refuse one of them itself, as invalid (422).
    assert refused.code in (400, 403, 422), refused
    assert words in refused.text
    assert "admission webhook" in refused.text


def test_another_namespace_can_use_nothing_of_this_ones_mappings(
    pods: Pods, elsewhere: Pods
) -> None:
    pods.admitted(simple("here", {NLB0_NAME: 1}))
    refused = elsewhere.refusal(simple("there", {NLB0_NAME: 1}))
    assert "the namespace has no mappings" in refused.text


MIG = "nvidia.com/mig-1g.10gb"
SMALL = "accelbind.dev/gpu-small"


@pytest.fixture(scope="module")
def guarded(hosts: Hosts, cluster: Cluster) -> Pods:
    """Pods in a guarded namespace, where a name stands for a resource of another vendor."""
    assert hosts.url
    namespace = cluster.namespace("guarded", **{GUARD_LABEL: "true"})
    metadata = {"name": "gpu-small", "namespace": namespace}
    kind = TABLE[ACCELERATOR]
    item = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
    cluster.api.create(item | {"spec": {"target": {"resource": MIG}}})
    return Pods(cluster, namespace)


def requesting(name: str, limits: dict[str, int], noted: object = None) -> Json:
    item = simple(name, limits)
    if noted is not None:
        item["metadata"]["annotations"] = {"accelbind.dev/requested": json.dumps(noted)}
    return item


def test_names_are_the_only_way_to_a_guarded_resource(guarded: Pods, pods: Pods) -> None:
    made = guarded.admitted(requesting("by-name", {SMALL: 1}))
    assert limits_of(containers(made)[0]) == {MIG: "1"}
    assert json.loads(made["metadata"]["annotations"]["accelbind.dev/requested"]) == {
        "show": {SMALL: 1}
    }
    guarded.admitted(requesting("fits", {MIG: 1}, {"show": {SMALL: 1}}))
    pods.admitted(requesting("not-guarded", {MIG: 1}))
    for name, limits, noted in (
        ("physical", {MIG: 1}, None),
        ("more", {MIG: 2}, {"show": {SMALL: 1}}),
        ("beside", {MIG: 1, SMALL: 1}, None),
        ("other-container", {MIG: 1}, {"other": {SMALL: 1}}),
        ("unmapped", {MIG: 1}, {"show": {"accelbind.dev/gpu": 1}}),
    ):
        refused = guarded.refusal(requesting(name, limits, noted))
        assert 'admission webhook "guard.accelbind.dev" denied the request' in refused.text
