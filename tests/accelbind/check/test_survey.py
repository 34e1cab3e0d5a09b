"""What a cluster is found to hold, over real TLS against the API server stand-in."""

import pytest

from accelbind.check.survey import Survey, survey
from services.admission.findings import ResourceUse
from services.admission.mutate import Policy
from services.kube.client import ClusterClient
from services.process.errors import ClusterError
from simulator.apiserver.faults import Matches
from simulator.apiserver.http_server import Request
from simulator.apiserver.standin import ApiServerStandIn
from simulator.cards import A10_INTERFACE, NLB0
from tests.accelbind.doctor import answers
from tests.simulator.apiserver.support import PHYSICAL, Json, function, node_with, pod


async def look(
    api: ApiServerStandIn, namespace: str | None = None, shared_namespace: str = ""
) -> Survey:
    async with ClusterClient(api.access) as client:
        policy = Policy(shared_namespace=shared_namespace)
        return await survey(client, policy, namespace=namespace)


def of(plural: str) -> Matches:
    def matches(request: Request) -> bool:
        return request.method == "GET" and request.path.endswith(f"/{plural}")

    return matches


async def test_mappings_nodes_and_pods_are_seen(api: ApiServerStandIn) -> None:
    def within(namespace: str, obj: Json) -> Json:
        return obj | {"metadata": obj["metadata"] | {"namespace": namespace}}

    seen = await look(api)
    assert (len(seen.index), seen.advertised, seen.uses, seen.missing) == (0, {}, [], [])
    owned, ended = pod("three", "fpga.intel.com/c"), pod("done", "fpga.intel.com/a")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}
    owned["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    ended["status"] = {"phase": "Succeeded"}
    for each in (
        *(function("a"), within("team", function("a"))),
        *(node_with("n1", {PHYSICAL: "2", "cpu": "4"}), node_with("n2", {PHYSICAL: "1"})),
        *(pod("one", "fpga.intel.com/a"), pod("plain"), owned, ended),
        within("team", pod("two", "fpga.intel.com/b")),
    ):
        api.put(each)
    seen = await look(api)
    assert set(seen.index.namespaces) == {"default", "team"}
    assert seen.advertised == {PHYSICAL.partition("/")[2]: 3}
    assert seen.uses == [
        ResourceUse("default", "Pod one", "fpga.intel.com/a"),
        ResourceUse("team", "Pod two", "fpga.intel.com/b"),
    ]
    assert seen.missing == [], "what a cluster doesn't serve isn't missed"
    only = await look(api, "team")
    assert only.index.namespaces == ("team",)
    with_shared = await look(api, "team", "default")
    assert set(with_shared.index.namespaces) == {"default", "team"}
    assert [wish.user for wish in only.uses] == ["Pod two"]
    assert only.advertised == seen.advertised


async def test_devices_published_to_dra_count_as_advertised(api: ApiServerStandIn) -> None:
    """A class of another driver is enough: which devices it has is unknown."""
    for each in (
        answers.published("n1", answers.attributes(type="fpga", interfaceID=A10_INTERFACE)),
        answers.published("n2", answers.attributes(type="rng")),
        answers.device_class("rng.accelbind.dev", "device.accelbind.dev/rng"),
        answers.device_class("gpu", "nvidia.com/gpu"),
        answers.device_class(f"region-{NLB0}", f"fpga.intel.com/region-{NLB0}"),
    ):
        api.put(each)
    seen = await look(api)
    names = (f"region-{A10_INTERFACE}", "device.accelbind.dev/rng", "nvidia.com/gpu")
    assert seen.advertised == dict.fromkeys(names, 1)


async def test_kinds_that_may_not_be_listed_are_named(api: ApiServerStandIn) -> None:
    api.put(function("a"))
    with api.faults.failing(403, matches=of("nodes")), api.faults.failing(403, matches=of("pods")):
        seen = await look(api)
    assert (len(seen.index), seen.advertised, seen.uses) == (1, None, [])
    assert [each.partition(": the API server ")[0] for each in seen.missing] == ["nodes", "pods"]


async def test_without_mappings_or_with_other_errors_there_is_no_answer(
    api: ApiServerStandIn,
) -> None:
    for plural, code in (("fpgaregions", 403), ("nodes", 500)):
        with api.faults.failing(code, matches=of(plural)), pytest.raises(ClusterError):
            await look(api)
