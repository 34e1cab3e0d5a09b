"""Slices and claims: one test a fact, over real sockets."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from simulator.apiserver.standin import ApiServerStandIn, Options
from tests.simulator.apiserver.support import PODS, Json, client_of, created, node_with, pod
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
DRIVER = "accelbind.dev"
UNHEALTHY = {"key": "accelbind.dev/unhealthy", "value": "hot", "effect": "NoSchedule"}
RESOURCE = "fpga.intel.com/af-x"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServerStandIn]:
    async with ApiServerStandIn(tmp_path) as running:
        running.put(node_with("n1", {"pods": "10"}))
        yield running


@pytest.fixture
async def http(api: ApiServerStandIn) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(api) as client:
        yield client


def device(name: str, afu: str = "", *taints: Json) -> Json:
    attributes = {"type": {"string": "fpga"}, "afuID": {"string": afu}}
    return {"name": name, "attributes": attributes} | ({"taints": [*taints]} if taints else {})


def slice_of(node: str, *devices: Json, name: str = "", driver: str = DRIVER) -> Json:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{node}-{driver}"},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": [*devices]},
    }


def device_class(name: str, *expressions: str, **spec: object) -> Json:
    tests = (f'device.driver == "{DRIVER}"', *expressions)
    selectors = [{"cel": {"expression": " && ".join(tests)}}]
    metadata = {"name": name}
    return {"kind": "DeviceClass", "metadata": metadata, "spec": {"selectors": selectors} | spec}


def afu_is(value: str) -> str:
    return f'device.attributes["{DRIVER}"].afuID == "{value}"'


async def test_the_wipe_of_a_kubelet_deletes_the_slices_of_its_node(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    for node, driver in (("n1", "a"), ("n1", "b"), ("n2", "a")):
        await created(http, SLICES, slice_of(node, driver=driver))
    answer = await http.delete(SLICES, params={"fieldSelector": "spec.nodeName=n1,spec.driver=a"})
    assert [each["spec"]["driver"] for each in answer.json()["items"]] == ["a"]
    await http.delete(SLICES, params={"fieldSelector": "spec.nodeName=n1"})
    assert [each["metadata"]["name"] for each in api.objects("ResourceSlice")] == ["n2-a"]


async def test_taints_are_dated_once_and_generation_counts_changes(
    http: httpx2.AsyncClient,
) -> None:
    wanted = slice_of("n1", device("d", "", UNHEALTHY))
    made = await created(http, SLICES, wanted)
    (taint,) = made["spec"]["devices"][0]["taints"]
    again = await http.put(f"{SLICES}/{made['metadata']['name']}", json=wanted)
    assert taint["timeAdded"]
    assert again.json() == made, "nothing changed, so nothing was written"


async def test_taints_are_dropped_where_the_feature_is_off(tmp_path: Path) -> None:
    options = Options(device_taints=False)
    async with ApiServerStandIn(tmp_path, options) as api, client_of(api) as http:
        made = await created(http, SLICES, slice_of("n1", device("d", "", UNHEALTHY)))
    assert "taints" not in made["spec"]["devices"][0]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"nodeName": "n2"}, "spec.nodeName: Invalid value"),
        ({"devices": [device(f"d{n}") for n in range(129)]}, "must have at most 128"),
        ({"devices": [device("d", "", UNHEALTHY)] * 65}, "must have at most 64"),
        ({"devices": [device("d"), device("d")]}, "Duplicate value"),
        ({"devices": [device("dfl-fme.0")]}, "RFC 1123 label"),
        ({"devices": [device("d", "x" * 65)]}, "Too long"),
    ],
)
async def test_what_breaks_a_limit_is_refused(
    http: httpx2.AsyncClient, change: Json, text: str
) -> None:
    made = await created(http, SLICES, slice_of("n1"))
    made["spec"] |= change
    answer = await http.put(f"{SLICES}/{made['metadata']['name']}", json=made)
    assert answer.status_code == 422
    assert text in answer.json()["message"]


async def test_preconditions_guard_a_deletion(http: httpx2.AsyncClient) -> None:
    path = f"{SLICES}/{(await created(http, SLICES, slice_of('n1')))['metadata']['name']}"
    body = {"preconditions": {"resourceVersion": "1"}}
    assert (await http.request("DELETE", path, json=body)).status_code == 409
    assert (await http.delete(path)).is_success


async def test_slices_go_with_their_node(api: ApiServerStandIn) -> None:
    item, node = slice_of("n1"), api.objects("Node")[0]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node["metadata"]["uid"]}
    item["metadata"]["ownerReferences"] = [owner]
    api.put(item)
    api.drop("Node", "n1", "")
    await eventually_async(lambda: not api.objects("ResourceSlice"))


async def test_an_extended_resource_becomes_a_claim_with_mappings(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    """As measured: the init container uses the request of the app container."""
    api.put(slice_of("n1", device("d0", "other"), device("d1", "f"), device("d2", "f")))
    api.put(device_class("af-x", afu_is("f"), extendedResourceName=RESOURCE))
    item = pod("p", RESOURCE, 2)
    item["spec"]["initContainers"] = [
        {"name": "i", "image": "x", "resources": {"limits": {RESOURCE: "1"}}}
    ]
    await created(http, PODS, item)

    def bound() -> Json | None:
        found = api.get("Pod", "p") or {"spec": {}}
        return found if found["spec"].get("nodeName") else None

    status = (await eventually_async(bound))["status"]["extendedResourceClaimStatus"]
    claim = api.get("ResourceClaim", status["resourceClaimName"]) or {}
    assert status["resourceClaimName"].startswith("p-extended-resources-")
    assert {each["containerName"]: each["requestName"] for each in status["requestMappings"]} == {
        "c": "container-1-request-0",
        "i": "container-1-request-0",
    }
    results = claim["status"]["allocation"]["devices"]["results"]
    assert [each["device"] for each in results] == ["d1", "d2"]
    await http.delete(f"{PODS}/p", params={"gracePeriodSeconds": "0"})
    await eventually_async(lambda: not api.objects("ResourceClaim"))


async def test_the_first_alternative_with_a_device_counts(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    api.put(slice_of("n1", device("d0"), device("d1", "f"), device("d2", "f", UNHEALTHY)))
    api.put(device_class("region", config=[{"opaque": {"driver": DRIVER, "parameters": {}}}]))
    loaded = {"cel": {"expression": afu_is("f")}}
    ways = [
        {"name": "loaded", "deviceClassName": "region", "selectors": [loaded]},
        {"name": "any", "deviceClassName": "region"},
    ]
    spec = {"devices": {"requests": [{"name": "fpga", "firstAvailable": ways}]}}
    api.put({"kind": "ResourceClaimTemplate", "metadata": {"name": "t"}, "spec": {"spec": spec}})
    uses = [{"name": "own", "resourceClaimTemplateName": "t"}]
    got = []
    for name in ("first", "second"):
        await created(http, PODS, pod(name, resourceClaims=uses))

        def allocation(name: str = name) -> Json | None:
            status = (api.get("Pod", name) or {}).get("status", {})
            (made,) = status.get("resourceClaimStatuses") or [{"resourceClaimName": ""}]
            claim = api.get("ResourceClaim", made["resourceClaimName"]) or {}
            found: Json | None = claim.get("status", {}).get("allocation")
            return found

        got.append((await eventually_async(allocation))["devices"])
    results = [each["results"][0] for each in got]
    assert [(each["request"], each["device"]) for each in results] == [
        ("fpga/loaded", "d1"),
        ("fpga/any", "d0"),
    ]
    assert got[0]["config"][0]["requests"] == ["fpga/loaded"]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (f'device.attributes["{DRIVER}"].unknown == ""', "Key not found"),
        (afu_is("absent"), "cannot allocate all claims"),
    ],
)
async def test_an_attribute_that_a_device_lacks_ends_the_attempt(
    api: ApiServerStandIn, http: httpx2.AsyncClient, expression: str, text: str
) -> None:
    api.put(slice_of("n1", device("d0")))
    api.put(device_class("af-x", expression, extendedResourceName=RESOURCE))
    await created(http, PODS, pod("p", RESOURCE))

    def message() -> bool:
        conditions = (api.get("Pod", "p") or {})["status"].get("conditions") or [{}]
        return text in conditions[0].get("message", "")

    await eventually_async(message)
