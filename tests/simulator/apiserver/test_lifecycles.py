"""How objects come and go: finalizers, namespaces, pods on nodes, custom resource definitions."""

import httpx2
import pytest

from simulator.apiserver.standin import ApiServerStandIn
from tests.simulator.apiserver.support import (
    FUNCTIONS,
    MERGE,
    NODES,
    PODS,
    created,
    function,
    node,
    pod,
)

pytestmark = pytest.mark.anyio


async def test_a_finalizer_holds_an_object(http: httpx2.AsyncClient) -> None:
    item = function()
    item["metadata"]["finalizers"] = ["test.example/hold"]
    await created(http, FUNCTIONS, item)
    answer = await http.delete(f"{FUNCTIONS}/nlb0")
    assert "deletionTimestamp" in answer.json()["metadata"]
    change = {"metadata": {"finalizers": None}}
    await http.patch(f"{FUNCTIONS}/nlb0", json=change, headers=MERGE)
    assert (await http.get(f"{FUNCTIONS}/nlb0")).status_code == 404


async def test_a_namespace_is_created_labelled_and_deleted_with_its_content(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    item = {"metadata": {"name": "team"}}
    made = await created(http, "/api/v1/namespaces", item)
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
    assert made["status"] == {"phase": "Active"}
    await created(http, FUNCTIONS.replace("default", "team"), function())
    answer = await http.delete("/api/v1/namespaces/team")
    assert answer.json()["status"]["phase"] == "Terminating"
    assert api.objects("AcceleratorFunction") == []
    assert (await http.get("/api/v1/namespaces/team")).status_code == 404


async def test_a_namespace_waits_for_pods_that_still_run(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    await created(http, "/api/v1/namespaces", {"metadata": {"name": "team"}})
    await created(http, NODES, node("n"))
    pods = PODS.replace("default", "team")
    await created(http, pods, pod(nodeName="n"))
    await http.delete("/api/v1/namespaces/team")
    assert (await http.get("/api/v1/namespaces/team")).is_success
    answer = await http.post(pods, json=pod("late"))
    assert answer.status_code == 403
    assert "because it is being terminated" in answer.json()["message"]
    await http.request("DELETE", f"{pods}/p", json={"gracePeriodSeconds": 0})
    assert (await http.get("/api/v1/namespaces/team")).status_code == 404
    assert api.get("Pod", "p", "team") is None


async def test_a_pod_on_a_node_waits_for_its_kubelet(http: httpx2.AsyncClient) -> None:
    await created(http, PODS, pod(nodeName="n"))
    answer = await http.delete(f"{PODS}/p", params={"gracePeriodSeconds": "soon"})
    assert answer.status_code == 400
    marked = (await http.delete(f"{PODS}/p")).json()
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert (await http.get(f"{PODS}/p")).is_success
    now = {"gracePeriodSeconds": "0"}
    assert (await http.delete(f"{PODS}/p", params=now)).is_success
    assert (await http.get(f"{PODS}/p")).status_code == 404


async def test_a_crd_that_is_created_is_served(http: httpx2.AsyncClient) -> None:
    definition = {
        "metadata": {"name": "widgets.test.example"},
        "spec": {
            "group": "test.example",
            "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget", "singular": "widget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"size": {"type": "integer", "minimum": 1, "default": 3}},
                        }
                    },
                }
            ],
        },
    }
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await created(http, crds, definition)
    found = (await http.get(f"{crds}/widgets.test.example")).json()
    conditions = {one["type"]: one["status"] for one in found["status"]["conditions"]}
    assert conditions["Established"] == "True"
    widgets = "/apis/test.example/v1/widgets"
    assert (await created(http, widgets, {"metadata": {"name": "w"}}))["size"] == 3
    answer = await http.post(widgets, json={"metadata": {"name": "x"}, "size": 0})
    assert "size in body should be greater than or equal to 1" in answer.json()["message"]
    await http.delete(f"{crds}/widgets.test.example")
    assert (await http.get(widgets)).status_code == 404
