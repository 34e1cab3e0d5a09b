"""What becomes of a pod between its author and the store, and what is refused."""

import httpx2
import pytest

from tests.simulator.apiserver.support import MERGE, PODS, Json, created, pod

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
    assert made["status"]["qosClass"] == "Burstable"


async def test_equal_limits_and_requests_are_guaranteed(http: httpx2.AsyncClient) -> None:
    made = await created(http, PODS, asking(limits={"cpu": "1", "memory": "1Gi"}))
    assert made["status"]["qosClass"] == "Guaranteed"


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


async def test_the_rules_hold_for_init_containers_too(http: httpx2.AsyncClient) -> None:
    bad = {"name": "i", "image": "x", "resources": {"limits": {EXTENDED: "1.5"}}}
    message = await refusal(http, pod(initContainers=[bad]))
    assert f"spec.initContainers[0].resources.limits[{EXTENDED}]" in message


async def test_a_broken_quantity_is_a_400(http: httpx2.AsyncClient) -> None:
    answer = await http.post(PODS, json=asking(limits={EXTENDED: "two"}))
    assert answer.status_code == 400
    assert "quantities must match the regular expression" in answer.json()["message"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": []}, "spec.containers: Required value"),
        ({"containers": [{"image": "x"}]}, "spec.containers[0].name: Required value"),
        ({"containers": [{"name": "c"}]}, "spec.containers[0].image: Required value"),
        ({"containers": [{"name": "A.B", "image": "x"}]}, "lowercase RFC 1123 label"),
        (
            {"initContainers": [{"name": "c", "image": "x"}]},
            'spec.containers[0].name: Duplicate value: "c"',
        ),
        ({"restartPolicy": "Maybe"}, 'spec.restartPolicy: Unsupported value: "Maybe"'),
        (
            {"containers": [{"name": "c", "image": "x", "env": [{"value": "x"}]}]},
            "spec.containers[0].env[0].name: Required value",
        ),
        (
            {
                "containers": [
                    {
                        "name": "c",
                        "image": "x",
                        "env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {}}}],
                    }
                ]
            },
            "may not be specified when `value` is not empty",
        ),
    ],
)
async def test_a_pod_that_makes_no_sense_is_refused(
    http: httpx2.AsyncClient, spec: Json, expected: str
) -> None:
    assert expected in await refusal(http, pod(**spec))


async def test_labels_need_qualified_names(http: httpx2.AsyncClient) -> None:
    item = pod()
    item["metadata"]["labels"] = {"a b": "c"}
    assert "metadata.labels: Invalid value" in await refusal(http, item)


@pytest.mark.parametrize(
    "spec",
    [
        [],
        {"containers": {}},
        {"containers": ["c"]},
        {"containers": [{"name": "c", "env": {}}]},
        {"nodeSelector": []},
    ],
)
async def test_what_cant_be_decoded_as_a_pod_is_a_400(
    http: httpx2.AsyncClient, spec: object
) -> None:
    answer = await http.post(PODS, json=pod() | {"spec": spec})
    assert answer.status_code == 400
    assert "cannot be handled as a Pod" in answer.json()["message"]


async def test_only_some_fields_of_a_pod_can_be_changed(http: httpx2.AsyncClient) -> None:
    made = await created(http, PODS, pod(nodeName="n"))
    made["spec"]["containers"][0]["image"] = "reg/app:2"
    answer = await http.put(f"{PODS}/p", json=made)
    assert answer.status_code == 200, answer.text
    assert answer.json()["metadata"]["generation"] == 2
    change = {"spec": {"nodeName": "other"}}
    answer = await http.patch(f"{PODS}/p", json=change, headers=MERGE)
    assert answer.status_code == 422
    assert "pod updates may not change fields other than" in answer.json()["message"]


async def test_a_pod_is_bound_once(http: httpx2.AsyncClient) -> None:
    await created(http, PODS, pod())
    binding = {"target": {"name": "n"}}
    assert (await http.post(f"{PODS}/p/binding", json={})).status_code == 400
    assert (await http.post(f"{PODS}/p/binding", json=binding)).status_code == 201
    answer = await http.post(f"{PODS}/p/binding", json=binding)
    assert answer.status_code == 409
    assert 'already assigned to node "n"' in answer.json()["message"]
