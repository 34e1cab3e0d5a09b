"""`accelbind names`: physical names; those of a namespace, where offered, and how many are free."""

import asyncio
import json
from typing import Any

import pytest

from accelbind.dra.objects import CLAIMS, CLASSES, SLICES
from accelbind.offers import Offer, read_offers
from services.kube.client import ClusterClient
from services.mappings.index import build_index
from services.mappings.model import read_entry
from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.doctor.answers import (
    Answers,
    Json,
    answering,
    attributes,
    denied,
    device_class,
    first_of,
    items,
    one,
    published,
)
from tests.accelbind.dra.test_objects import of, template
from tests.accelbind.running import Done, run, run_process
from tests.services.building import NLB0, accelerator
from tests.simulator.apiserver.support import function, node_with, pod

NIC, CLASSED = "mellanox.com/nic", "deviceclass.resource.kubernetes.io/"
CLASS, NPU = f"{CLASSED}gpu", "device.accelbind.dev/npu"
GPU, REGION = "nvidia.com/gpu", "fpga.intel.com/region-ce48969398f05f33946d560708be108a"
INTERFACE = "ce48969398f05f33946d560708be108a"
AF = "fpga.intel.com/af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"


@pytest.mark.parametrize(
    ("arguments", "known"),
    [
        (["af", INTERFACE.upper(), NLB0], {"resource": AF, "afuId": NLB0}),
        (["decode", AF], {"resource": AF, "afuId": NLB0}),
        (["region", INTERFACE], {"resource": REGION}),
        (["decode", REGION], {"resource": REGION}),
    ],
)
def test_programs_get_json(arguments: list[str], known: dict[str, str]) -> None:
    code, out, err = run("names", *arguments, "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"version": 1, "interfaceId": INTERFACE} | known


# names list


def node(name: str, amounts: Json, *, unschedulable: bool = False, **labels: str) -> Json:
    made = node_with(name, amounts)
    made["metadata"]["labels"] = labels
    return made | {"spec": {"unschedulable": unschedulable}}


def holder(name: str, spec: Json, phase: str = "Running") -> Json:
    made = pod(name)
    return made | {"spec": {"nodeName": "n1"} | spec, "status": {"phase": phase}}


def containers(*counts: object, **more: str) -> list[Json]:
    return [{"name": "c", "resources": {"limits": {GPU: count}}} | more for count in counts]


def region(name: str, **more: Any) -> Json:
    return {"name": name, **attributes(type="fpga", interfaceID=INTERFACE), **more}


def npu(name: str, shares: str) -> Json:
    more = {"allowMultipleAllocations": True, "capacity": {"shares": {"value": shares}}}
    return {"name": name, **attributes(type="npu"), **more}


def claim(driver: str, *devices: str, **more: Any) -> Json:
    results = [{"driver": driver, "pool": "n1", "device": each, **more} for each in devices]
    return {"metadata": {}, "status": {"allocation": {"devices": {"results": results}}}}


CLUSTER = {
    "/api/v1/nodes": [
        node("n1", {GPU: "8", REGION: "5", NIC: "1"}, model="a"),
        node("n2", {GPU: "4"}, unschedulable=True),
        node("n3", {GPU: "0"}),
    ],
    "/api/v1/pods": [
        holder("two", {"containers": containers(1, "1")}),
        holder("init", {"initContainers": containers(3), "containers": containers(1)}),
        holder(
            "sidecar",
            {"initContainers": containers(1, restartPolicy="Always"), "containers": containers()},
        ),
        holder("ended", {"containers": containers(1)}, "Succeeded"),
        holder("odd", {"containers": containers("x")}),
        holder("waits", {"containers": containers(1), "nodeName": ""}),
    ],
    SLICES: [
        published("n1", {"name": "old"}, driver="gpu.example"),
        published("n1", {"name": "g1"}, {"name": "g2"}, driver="gpu.example", generation=2),
        published(
            *("n1", region("r1"), region("r2"), npu("s1", "100"), npu("s2", "5"), npu("s3", "9")),
            region("broken", taints=[{"key": "accelbind.dev/unhealthy"}]),
        ),
        published("n1", npu("p1", "8"), driver="part.example"),
        published("", {"name": "far"}, driver="net.example"),
    ],
    CLASSES: [
        device_class("gpu", "", 'device.driver == "gpu.example"'),
        device_class("nic", "nic.example/port", 'device.driver == "nic.example"'),
        device_class("region", REGION),
        device_class("npu.accelbind.dev", NPU),
        device_class("part", "", 'device.driver == "part.example"'),
        device_class("net", "", 'device.driver == "net.example"'),
        device_class("any"),
    ],
    CLAIMS: [
        *(claim("gpu.example", "g2"), claim("gpu.example", "g1", adminAccess=True)),
        *(claim("accelbind.dev", "r1", "s3"), {"metadata": {}}),
        claim("accelbind.dev", "s1", "s2", shareID="a", consumedCapacity={"shares": "2"}),
        claim("accelbind.dev", "s1", shareID="b"),
    ],
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates": [template(of("gpu"))],
}


ANSWERS = first_of(*(items(path, *objects) for path, objects in CLUSTER.items()))


def mapped(target: Json, **spec: Any) -> Json:
    return accelerator("x", "", target=target, **spec)


def also(resource: str, count: int, per: str) -> Json:
    """A name that stands for a GPU and something else."""
    more = [{"resource": resource, "count": count, "per": per}]
    return mapped({"resource": GPU}, alsoRequest=more)


ON_GPUS = Offer(("n1", "n2"), 2)


@pytest.mark.parametrize(
    ("mapping", "hidden", "offer"),
    [
        (mapped({"resource": GPU}), "", ON_GPUS),
        (mapped({"resource": GPU, "count": 2}), "", Offer(("n1", "n2"), 1)),
        (mapped({"resource": GPU}, nodeSelector={"model": "a"}), "", Offer(("n1",), 2)),
        (mapped({"resource": GPU}, nodeSelector={"model": "b"}), "", Offer((), 0)),
        (also(NIC, 1, "Unit"), "", Offer(("n1",), 1)),
        (also(NIC, 1, "Container"), "", Offer(("n1",), 2)),
        (also(NIC, 2, "Container"), "", Offer(("n1",), 0)),
        (also("none.example/x", 1, "Unit"), "", Offer((), 0)),
        (also(CLASS, 1, "Unit"), "", Offer(("n1",), 1, is_bound=True)),
        (also(CLASS, 2, "Container"), "", Offer(("n1",), 0, is_bound=True)),
        (mapped({"resource": CLASS}, nodeSelector={"model": "b"}), "", Offer((), 0, is_bound=True)),
        (
            mapped({"claimTemplate": "pair"}, alsoRequest=[{"resource": "none.example/x"}]),
            *("", Offer((), 0, is_bound=True)),
        ),
        (mapped({"resource": GPU}), "/pods", Offer(("n1", "n2"))),
        (mapped({"resource": GPU}), "/nodes", Offer()),
        (mapped({"resource": "nvidia.com/other"}), "/pods", Offer((), 0)),
        (mapped({"resource": "nic.example/port"}), "", Offer((), 0, is_bound=True)),
        (mapped({"claimTemplate": "pair"}), "", Offer(("n1",), 1, is_bound=True)),
        (mapped({"claimTemplate": "pair"}), "/resourceclaims", Offer(("n1",))),
        (mapped({"claimTemplate": "pair"}), "/resourceslices", Offer()),
        (mapped({"claimTemplate": "none"}), "", Offer((), 0, is_bound=True)),
        (mapped({"resource": CLASS}), "", Offer(("n1",), 1, is_bound=True)),
        (mapped({"resource": NPU}), "", Offer(("n1",), 100)),
        (mapped({"resource": NPU, "count": 2}), "", Offer(("n1",), 3)),
        (also(NPU, 3, "Container"), "", Offer(("n1",), 0)),
        (mapped({"resource": f"{CLASSED}part"}), "", Offer(("n1",))),
        (mapped({"resource": f"{CLASSED}net"}), "", Offer()),
        (mapped({"resource": f"{CLASSED}any"}, nodeSelector={"model": "b"}), "", Offer()),
        (function("x", mode="region", interfaceId=INTERFACE), "", Offer(("n1",), 1)),
        (function("x", mode="region", interfaceId=INTERFACE), "/resourceclaims", Offer(("n1",))),
    ],
)
async def test_free_is_what_nodes_have_and_pods_and_claims_leave(
    api: ApiServerStandIn, mapping: Json, hidden: str, offer: Offer
) -> None:
    entry = read_entry({"metadata": {"namespace": "default"}} | mapping)
    assert entry is not None
    own = build_index([entry]).namespace("default")
    (found,) = [table.by_name["x"] for table in own.tables if "x" in table.by_name]
    with answering(api, first_of(denied(hidden), ANSWERS) if hidden else ANSWERS):
        async with ClusterClient(api.access) as client:
            offers = await read_offers(client, "default")
    assert offers.of(found, "default", "fpga.intel.com") == offer
    assert len(offers.missing) == bool(hidden)


async def listed(api: ApiServerStandIn, *flags: str, but: Answers = lambda _: None) -> Done:
    command = ("names", "list", "--api-server", api.address, *flags)
    with answering(api, first_of(but, ANSWERS)):
        return await asyncio.to_thread(run_process, *command)


async def test_names_of_the_namespace_and_shared_ones_are_listed(api: ApiServerStandIn) -> None:
    api.put(function("nlb0", mode="region", interfaceId=INTERFACE))
    more = [{"resource": NIC, "count": 2, "per": "Container"}]
    api.put(accelerator("gpu", "", target={"resource": GPU, "count": 2}, alsoRequest=more))
    api.put(accelerator("pair", "", target={"claimTemplate": "pair"}))
    api.put(accelerator("bad", "", target={"resource": "x"}))
    for name in ("gpu", "lib"):
        shared = accelerator(name, "", target={"resource": GPU})
        shared["metadata"]["namespace"] = "shared"
        api.put(shared)
    done = await listed(api, "--shared-namespace", "shared")
    rows = [line.split("   ") for line in done.stdout.splitlines()]
    assert [[cell.strip() for cell in row if cell] for row in rows] == [
        ["NAME", "FROM", "BECOMES", "OFFERED ON", "FREE", "NOTE"],
        ["fpga.intel.com/nlb0", "default", REGION, "n1", "1", "-"],
        [*("accelbind.dev/bad", "default", "can't be used", "-", "-"), rows[2][-1].strip()],
        ["accelbind.dev/gpu", "default", f"2 of {GPU} and 2 of {NIC}", "n1", "0", "-"],
        [*("accelbind.dev/pair", "default", "a claim of template pair"), *("n1", "at most 1", "-")],
        ["accelbind.dev/lib", "shared (shared)", GPU, "n1 and n2", "2", "-"],
    ]
    found = json.loads((await listed(api, "-o", "json")).stdout)
    assert [each["name"] for each in found["names"] if each["shared"]] == []
    assert found["names"][2]["free"] == 0


@pytest.mark.parametrize(
    ("published", "said"),
    [
        ({"data": {"sharedNamespace": "shared"}}, "accelbind.dev/lib   shared (shared)  "),
        ({"data": {"sharedNamespace": "../x"}}, "default has no names of its own: ask"),
        ({}, "share, if there are any, are those of --shared-namespace"),
    ],
)
async def test_the_namespace_of_shared_names_may_be_published(
    api: ApiServerStandIn, published: Json, said: str
) -> None:
    api.put(accelerator("lib", "", target={"resource": GPU}, namespace="shared"))
    path = "/api/v1/namespaces/kube-public/configmaps/accelbind"
    done = await listed(api, but=one(path, published))
    assert (done.returncode, said in done.stdout) == (0, True)


async def test_a_missing_right_is_named_and_what_it_hides_is_unknown(api: ApiServerStandIn) -> None:
    api.put(accelerator("gpu", "", target={"resource": GPU}))
    done = await listed(api, but=denied("/pods"))
    assert done.stdout.splitlines()[1:] == [
        "accelbind.dev/gpu   default   nvidia.com/gpu   n1 and n2    unknown   -",
        "names that all namespaces share, if there are any, are those of --shared-namespace",
        "unknown, since you may not list pods of all namespaces",
    ]
    done = await listed(api, but=denied("/kube-public/"))
    assert done.returncode == 0
    done = await listed(api, "--shared-namespace", "lib", but=denied("/lib/"))
    assert "you may not list the shared names in namespace lib" in done.stdout


async def test_a_namespace_without_names_differs_from_one_that_does_not_exist(
    api: ApiServerStandIn,
) -> None:
    for answer, code, words in (
        (200, 0, "namespace empty has no names"),
        (403, 0, "namespace empty has no names"),
        (404, 2, "error: namespace empty does not exist"),
        (500, 2, "500"),
    ):
        namespace = one("/api/v1/namespaces/empty", answer)
        done = await listed(api, "-n", "empty", but=namespace)
        assert (done.returncode, words in done.stdout + done.stderr) == (code, True), done
