"""Pods come to nodes that have what they ask for, and say why where none has."""

import httpx2
import pytest

from simulator.apiserver.pods import requests_of
from simulator.apiserver.standin import ApiServerStandIn
from tests.simulator.apiserver.support import (
    MERGE,
    NODES,
    PODS,
    Json,
    created,
    node_with,
    pod,
)
from tests.support import eventually_async

pytestmark = pytest.mark.anyio
FPGA = "fpga.intel.com/region-ce48969398f05f33946d560708be108a"


def node_of(api: ApiServerStandIn, name: str) -> str:
    found = api.get("Pod", name)
    assert found is not None
    assert "nodeName" in found["spec"]
    return str(found["spec"]["nodeName"])


def message_of(api: ApiServerStandIn, name: str) -> str:
    found = api.get("Pod", name)
    assert found is not None
    condition = found["status"]["conditions"][0]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    assert condition["reason"] == "Unschedulable"
    return str(condition["message"])


async def test_a_pod_that_fits_nowhere_says_why_and_is_tried_again(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    for name in ("a", "b"):
        await created(http, NODES, node_with(name, {FPGA: 1}))
    await created(http, PODS, pod(resource=FPGA, count=2))
    text = await eventually_async(lambda: message_of(api, "p"))
    assert text == (f"0/2 nodes are available: 2 Insufficient {FPGA}.")
    event = next(one for one in api.objects("Event") if one["reason"] == "FailedScheduling")
    assert (event["type"], event["message"]) == ("Warning", text)
    grown = {"status": {"allocatable": {FPGA: "2"}}}
    await http.patch(f"{NODES}/b/status", json=grown, headers=MERGE)
    assert await eventually_async(lambda: node_of(api, "p")) == "b"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"spec": {"unschedulable": True}}, "1 node(s) were unschedulable"),
        (
            {"metadata": {"labels": {"disk": "slow"}}},
            "1 node(s) didn't match Pod's node affinity/selector",
        ),
        ({"status": {"allocatable": {"cpu": "1"}}}, "1 Insufficient cpu"),
        ({"status": {"allocatable": {"pods": "0"}}}, "1 Too many pods"),
    ],
)
async def test_what_a_node_has_against_a_pod(
    api: ApiServerStandIn, http: httpx2.AsyncClient, change: Json, expected: str
) -> None:
    item = node_with("a", {FPGA: 1})
    for part, fields in change.items():
        item[part] = item.get(part, {}) | fields
    await created(http, NODES, item)
    wanting = pod(resource=FPGA, nodeSelector={"disk": "fast"} if "metadata" in change else {})
    wanting["spec"]["containers"][0]["resources"]["limits"] |= {"cpu": 2}
    item["status"]["allocatable"].setdefault(FPGA, 1)
    await created(http, PODS, wanting)
    assert expected in await eventually_async(lambda: message_of(api, "p"))


def container(count: int, **fields: str) -> Json:
    return {"name": "c", "resources": {"requests": {FPGA: str(count)}}} | fields


@pytest.mark.parametrize(
    ("init", "app", "expected"),
    [
        ([container(5)], [container(1)], 5),
        ([container(2, restartPolicy="Always"), container(3)], [container(1)], 5),
        ([container(3), container(2, restartPolicy="Always")], [container(2)], 4),
    ],
)
def test_init_containers_count_as_the_scheduler_counts_them(
    init: list[Json], app: list[Json], expected: int
) -> None:
    asked = requests_of({"spec": {"initContainers": init, "containers": app}})
    assert asked[FPGA] == expected
