"""What requests want: who decides about functions, and what contradicts whom."""

import contextlib
import json
from typing import Any

import msgspec
import pytest

from plugin.dra.claims import ClaimRef, read_claim
from plugin.dra.preparation import require_regions
from plugin.dra.wants import Kind, MappingsNeeded, Want, decide, require_healthy
from services.containers.permission import Enforce
from services.containers.wanted import confirm_pod
from services.devices.dra import DraDevice
from services.devices.model import Device, DeviceNode, Inventory
from services.mappings.index import NamespaceMappings, build_index
from services.mappings.model import parse
from services.names import DOMAIN, function_name
from services.node.regions import RegionContents
from services.process.errors import ExternalFailure, InvalidName, NotAllowed, NotMapped
from services.process.problem import Problem
from services.programming.assignment import regions_of
from simulator.cards import A10_INTERFACE, NLB0, NLB3
from tests.plugin.dra.support import (
    DEVELOP,
    claim,
    config,
    extended_claim,
    mapping,
    region,
    result,
    with_claim,
)
from tests.plugin.support import container, functions, pod
from tests.services.building import REGION
from tests.services.cards import card, port

OTHER = "f" * 32
PROGRAM_ID = "a" * 40
AF = f"{DOMAIN}/{function_name(A10_INTERFACE, NLB0)}"


def device(
    name: str, interface: str = A10_INTERFACE, kind: str = "", node: str = "ve"
) -> DraDevice:
    resource = "device.accelbind.dev/ve" if kind else REGION
    nodes = (DeviceNode(node, inside="modem0"),) if kind == "modem" else ()
    made = Device(f"id-{name}", resource, interface_id=interface, type=kind, nodes=nodes)
    return DraDevice(name, made, {})


DEVICES = {
    each.name: each
    for each in (
        device("a"),
        device("b"),
        device("odd", OTHER),
        device("blind", ""),
        device("ve", "", "nec"),
        device("ve2", "", "nec"),
        device("modem1", "", "modem", node="ttyUSB1"),
        device("modem2", "", "modem", node="ttyUSB2"),
    )
}

MAPPED = (
    mapping("nlb0"),
    mapping("nlb3", NLB3),
    mapping("af0", mode="af"),
    mapping("program", PROGRAM_ID, "af"),
    region("mine"),
    region("clash"),
    mapping("clash"),
)


def mapped(*objects: dict[str, Any]) -> NamespaceMappings:
    return build_index(map(parse, objects)).namespace("ns")


def wants(
    item: dict[str, Any],
    *,
    owner: dict[str, Any] | None = None,
    enforce: Enforce = Enforce.ALWAYS,
    mappings: tuple[dict[str, Any], ...] | None = MAPPED,
) -> tuple[Want, ...]:
    metadata = item["metadata"]
    ref = ClaimRef("ns", metadata["name"], metadata["uid"])
    read = read_claim(json.dumps(item).encode(), ref, pool="n1")
    found = None
    if owner is not None and read.owner is not None:
        found = confirm_pod(json.dumps(owner).encode(), read.owner, node="n1")
    known = None if mappings is None else mapped(*mappings)
    return decide(read, DEVICES, owner=found, mappings=known, enforce=enforce)


def watched(name: str) -> dict[str, Any]:
    return result(name, adminAccess=True)


def never(afu: str) -> dict[str, Any]:
    return config({"afu": afu, "program": "Never"})


def named(name: str) -> dict[str, Any]:
    return config({"mapping": name}, "FromClaim")


@pytest.mark.parametrize(
    ("results", "configs", "kind", "wanted"),
    [
        ((result("ve"), result("ve2")), (), Kind.PLAIN, ()),
        ((watched("a"),), (), Kind.ADMIN, ()),
        ((watched("modem1"), watched("modem2")), (), Kind.ADMIN, ()),
        ((result("a"),), (never(NLB0),), Kind.NEVER, (NLB0,)),
        ((result("a"),), (never(NLB0), named("af0")), Kind.NEVER, (NLB0,)),
        ((result("a"),), (never(PROGRAM_ID),), Kind.NEVER, (PROGRAM_ID,)),
        ((result("a"),), (named("af0"),), Kind.NEVER, (NLB0,)),
        ((result("a"),), (config(DEVELOP),), Kind.DEVELOP, ()),
        ((result("a"),), (config(DEVELOP), named("mine")), Kind.DEVELOP, ()),
        ((result("a"), result("b")), (named("nlb3"),), Kind.PROGRAM, (NLB3, NLB3)),
    ],
)
def test_a_request_wants_the_function_of_its_class_or_mapping(
    results: tuple[dict[str, Any], ...],
    configs: tuple[dict[str, Any], ...],
    kind: Kind,
    wanted: tuple[str, ...],
) -> None:
    (found,) = wants(claim("c", *results, configs=configs))
    assert (found.kind, found.functions) == (kind, wanted)
    assert found.devices == tuple(each["device"] for each in results)
    assert found.ids == tuple(f"id-{name}" for name in found.devices)


@pytest.mark.parametrize(
    ("results", "configs", "error", "reason"),
    [
        ((result("gone"),), (), ExternalFailure, "this node hasn't now"),
        ((result("ve"),), (named("nlb0"),), NotAllowed, "a configuration is for FPGAs"),
        ((result("ve"), result("a")), (), NotAllowed, "different kinds"),
        ((result("modem1"), result("modem2")), (), NotAllowed, "/dev/modem0 in the container"),
        (
            (result("modem1"), result("modem2", "other")),
            (),
            NotAllowed,
            "id-modem1 and id-modem2 together",
        ),
        ((result("a"), result("odd")), (), NotAllowed, "different kinds"),
        ((result("blind"),), (named("nlb0"),), NotAllowed, "can't be read"),
        ((result("odd"),), (named("nlb0"),), NotAllowed, "is for interface"),
        ((result("a"),), (), NotAllowed, "names no function"),
        ((result("a"),), (named("nlb1"),), NotMapped, "did you mean nlb0?"),
        ((result("a"),), (named("zzzzzzzz"),), NotMapped, "is not mapped in namespace ns$"),
        ((result("a"),), (named("clash"),), NotMapped, "have the same name"),
        ((result("a"),), (named("mine"),), NotAllowed, "needs a DeviceClass"),
        ((result("a"),), (never(NLB0), named("nlb3")), NotAllowed, "for something else"),
        ((result("a"),), (config(DEVELOP), named("nlb0")), NotAllowed, "names a function"),
        ((result("a"),), (config(DEVELOP), never(NLB0)), NotAllowed, "names a function"),
        ((result("a"),), (never(NLB3),), NotMapped, "no AcceleratorFunction of mode af"),
        ((result("a"),), (never("abcdef012"),), InvalidName, "there is no resource name"),
    ],
)
def test_impossible_requests_are_refused(
    results: tuple[dict[str, Any], ...],
    configs: tuple[dict[str, Any], ...],
    error: type[Exception],
    reason: str,
) -> None:
    with pytest.raises(error, match=reason.replace("?", "[?]")):
        wants(claim("c", *results, configs=configs))


@pytest.mark.parametrize(
    ("enforce", "resources", "is_refused"),
    [
        (Enforce.AUTO, [AF], False),
        (Enforce.ALWAYS, [AF], True),
        (Enforce.AUTO, ["deviceclass.resource.kubernetes.io/af-1"], True),
        (Enforce.AUTO, [AF, "deviceclass.resource.kubernetes.io/af-1"], True),
    ],
)
def test_the_webhook_has_checked_what_a_pod_requests_in_its_domain(
    enforce: Enforce, resources: list[str], *, is_refused: bool
) -> None:
    owner = pod("p", *(container(f"c{number}", AF, 1) for number in range(len(resources))))
    item = extended_claim(owner, result("a", "r"), configs=(never(NLB0),))
    users = [("r", f"c{number}", each) for number, each in enumerate(resources)]
    with pytest.raises(NotMapped) if is_refused else contextlib.nullcontext():
        wants(item, owner=with_claim(owner, *users), mappings=(), enforce=enforce)


def owned(*containers: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A claim for one region of a pod, and the pod."""
    owner = pod("p", *containers)
    users = [("r", each["name"], REGION) for each in containers]
    return extended_claim(owner, result("a", "r")), with_claim(owner, *users)


def test_the_environment_of_a_pod_names_the_function() -> None:
    item, owner = owned(container("c", REGION, 1, functions(NLB3)))
    (found,) = wants(item, owner=owner)
    assert (found.kind, found.functions, found.resource) == (Kind.PROGRAM, (NLB3,), REGION)
    assert found.who == 'container "c" of pod ns/p'
    assert found.wanted.interface_id == A10_INTERFACE
    with pytest.raises(NotMapped):
        wants(item, owner=owner, mappings=())
    with pytest.raises(MappingsNeeded):
        wants(item, owner=owner, mappings=None)
    assert wants(item, owner=owner, mappings=(), enforce=Enforce.NEVER) == (found,)


def test_a_device_keeps_its_own_resource_where_a_pod_requests_a_class() -> None:
    alias = "deviceclass.resource.kubernetes.io/nec"
    owner = pod("p", container("c", alias, 1))
    item = extended_claim(owner, result("ve", "r"))
    (found,) = wants(item, owner=with_claim(owner, ("r", "c", alias)))
    assert (found.resource, found.own) == (alias, "device.accelbind.dev/ve")


def test_containers_that_share_a_request_want_the_same() -> None:
    both = [container(name, REGION, 1, functions(NLB3)) for name in "cd"]
    item, owner = owned(*both)
    assert wants(item, owner=owner)[0].functions == (NLB3,)
    item, owner = owned(both[0], container("d", REGION, 1, functions(NLB0)))
    with pytest.raises(NotAllowed, match="want different functions"):
        wants(item, owner=owner)


def test_a_pod_that_does_not_name_the_claim_decides_nothing() -> None:
    item, owner = owned(container("c", REGION, 1, functions(NLB3)))
    with pytest.raises(NotAllowed, match="as their claim"):
        wants(item, owner=owner | {"status": {}})
    owner["status"]["extendedResourceClaimStatus"]["requestMappings"] = None
    for given in (None, owner):
        with pytest.raises(NotAllowed, match="names no function"):
            wants(item, owner=given)


@pytest.mark.parametrize(
    ("enforce", "device", "configs", "needs"),
    [
        (Enforce.NEVER, result("a"), (named("nlb0"),), True),
        (Enforce.AUTO, result("a"), (config(DEVELOP),), True),
        (Enforce.AUTO, result("a"), (never(NLB0),), True),
        (Enforce.NEVER, result("a"), (config(DEVELOP),), False),
        (Enforce.NEVER, result("a"), (never(NLB0),), False),
        (Enforce.ALWAYS, result("ve"), (), False),
        (Enforce.ALWAYS, watched("a"), (named("nlb0"),), False),
    ],
)
def test_mappings_are_read_where_they_count(
    enforce: Enforce, device: dict[str, Any], configs: tuple[dict[str, Any], ...], *, needs: bool
) -> None:
    with pytest.raises(MappingsNeeded) if needs else contextlib.nullcontext():
        wants(claim("c", device, configs=configs), mappings=None, enforce=enforce)


def test_an_unhealthy_device_matters_unless_it_is_only_watched() -> None:
    ill = Device("id-a", REGION, reasons=(Problem("hot", "it is too hot"),))
    devices = DEVICES | {"a": DraDevice("a", ill, {})}

    def want(kind: Kind, name: str) -> Want:
        return Want("r", kind, (name,), (), (), REGION, REGION, 'request "r" of claim ns/c')

    require_healthy([want(Kind.ADMIN, "a"), want(Kind.PLAIN, "b")], devices)
    with pytest.raises(ExternalFailure, match=r'"r" of claim ns/c has a, which .*: it is too hot'):
        require_healthy([want(Kind.PLAIN, "a")], devices)


RESOURCE = "fpga.intel.com/x"
ON_REGION = Want(
    "r", Kind.PROGRAM, ("fpga-0000-5e-00-0",), ("dfl-fme.0",), ((),), RESOURCE, RESOURCE
)


def test_a_region_that_is_another_cards_now_is_left_alone() -> None:
    found = RegionContents(regions_of(Inventory((card(0), card(1)))), {})
    require_regions(ON_REGION, found)
    # `plan` says that it is gone.
    require_regions(msgspec.structs.replace(ON_REGION, ids=("dfl-fme.7",)), found)
    with pytest.raises(ExternalFailure, match=r"dfl-fme\.1 is on card 0000:5f:00\.0 now"):
        require_regions(msgspec.structs.replace(ON_REGION, ids=("dfl-fme.1",)), found)


def test_a_function_can_not_be_there_in_a_port_that_is_disabled_or_gone() -> None:
    disabled = card(0, port("dfl-port.0", "", Problem("port-disabled", "it is disabled")))
    found = RegionContents(regions_of(Inventory((disabled,))), {})
    never = msgspec.structs.replace(ON_REGION, kind=Kind.NEVER, functions=("f",))
    with pytest.raises(ExternalFailure, match="it is disabled"):
        require_regions(never, found)
    with pytest.raises(ExternalFailure, match="is gone or can't be read"):
        require_regions(never, RegionContents({}, {}))
