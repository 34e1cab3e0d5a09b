"""What becomes of a pod between its author and the store, and what is refused."""

import httpx2
import pytest

from tests.simulator.apiserver.support import PODS, Json, created, pod

pytestmark = pytest.mark.anyio
EXTENDED = "fpga.intel.com/nlb0"


def asking(**resources: Json) -> Json:
    item = pod()
    item["spec"]["containers"][0]["resources"] = resources
    return item


async def refusal(http: httpx2.AsyncClient, item: Json) -> str:
    answer = await http.post(PODS, json=item)
    assert answer.status_code == 422, answer.text
    return str(answer.json()["message"])


async def test_defaults_are_filled_in(http: httpx2.AsyncClient) -> None:
    item = pod()
    item["spec"]["containers"][0] |= {
        "image": "registry:5000/app",
        "ports": [{"containerPort": 80}],
        "readinessProbe": {"httpGet": {"port": 80}},
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }
    item["spec"]["volumes"] = [{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}]
    made = await created(http, PODS, item)
    spec, container = made["spec"], made["spec"]["containers"][0]
    assert container["imagePullPolicy"] == "Always"
    assert container["ports"][0]["protocol"] == "TCP"
    assert container["readinessProbe"]["httpGet"] == {"path": "/", "port": 80, "scheme": "HTTP"}
    assert container["readinessProbe"]["failureThreshold"] == 3
    assert container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert container["resources"] == {}
    assert spec["volumes"][0]["emptyDir"] == {}
    assert spec["volumes"][1]["secret"]["defaultMode"] == 420
    assert (spec["dnsPolicy"], spec["restartPolicy"], spec["priority"]) == (
        "ClusterFirst",
        "Always",
        0,
    )
    assert {one["key"] for one in spec["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
    assert made["status"]["phase"] == "Pending"
    assert made["metadata"]["generation"] == 1


async def test_limits_are_copied_into_requests_that_are_missing(
    http: httpx2.AsyncClient,
) -> None:
    item = asking(limits={"cpu": "1000m", EXTENDED: 2, "memory": "1024Mi"}, requests={"cpu": 0.5})
    made = await created(http, PODS, item)
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "1", EXTENDED: "2", "memory": "1Gi"},
        "requests": {"cpu": "500m", EXTENDED: "2", "memory": "1Gi"},
    }


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (
            {"limits": {EXTENDED: "2"}, "requests": {EXTENDED: "1"}},
            (
                'Pod "p" is invalid: spec.containers[0].resources.requests: Invalid value: "1":'
                f" must be equal to {EXTENDED} limit of 2"
            ),
        ),
        (
            {"requests": {EXTENDED: "1"}},
            (
                "spec.containers[0].resources.limits: Required value: Limit must be set for non"
                " overcommitable resources"
            ),
        ),
        (
            {"limits": {EXTENDED: "500m"}},
            (
                f'spec.containers[0].resources.limits[{EXTENDED}]: Invalid value: "500m":'
                " must be an integer"
            ),
        ),
        ({"limits": {EXTENDED: "-1"}}, "must be greater than or equal to 0"),
        ({"limits": {"fpga": "1"}}, "must be a standard resource type or fully qualified"),
        ({"limits": {f"fpga.intel.com/{'x' * 64}": "1"}}, "must be no more than 63 bytes"),
        ({"limits": {"fpga.intel.com/-x": "1"}}, "name part must consist of alphanumeric"),
        ({"limits": {"Fpga/x": "1"}}, "prefix part a lowercase RFC 1123 subdomain"),
        (
            {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
            "must be less than or equal to cpu limit of 1",
        ),
    ],
)
async def test_resources_that_cant_be_are_refused(
    http: httpx2.AsyncClient, resources: Json, expected: str
) -> None:
    assert expected in await refusal(http, asking(**resources))


async def test_a_pod_is_bound_once(http: httpx2.AsyncClient) -> None:
    await created(http, PODS, pod())
    binding = {"target": {"name": "n"}}
    assert (await http.post(f"{PODS}/p/binding", json={})).status_code == 400
    assert (await http.post(f"{PODS}/p/binding", json=binding)).status_code == 201
    answer = await http.post(f"{PODS}/p/binding", json=binding)
    assert answer.status_code == 409
    assert 'already assigned to node "n"' in answer.json()["message"]
