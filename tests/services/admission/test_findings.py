"""What is found wrong with the mappings of a cluster, case by case."""

from typing import Any

from services.admission.findings import Code, ResourceUse, add_advertised, check, resource_uses
from services.admission.mutate import Policy
from services.mappings.accelerator import DEVICE_CLASS
from services.mappings.index import MappingIndex
from services.mappings.model import Rejected
from services.pods.manifests import find_pods
from services.process.problem import Problem
from tests.services.building import (
    AF_NLB0,
    REGION,
    STRATIX,
    accelerator,
    container,
    deprecated,
    function,
    index,
    pod,
    region,
)

PREFIXES = ("fpga.intel.com/",)
RESOURCE = AF_NLB0.partition("/")[2]


def found(known: MappingIndex, **more: Any) -> list[tuple[str, str, str]]:
    return [(one.code, one.namespace, one.subject) for one in check(known, **more)]


def message(known: MappingIndex, **more: Any) -> str:
    (one,) = check(known, **more)
    return one.text


def use(name: str, namespace: str = "default", who: str = "Deployment train") -> ResourceUse:
    return ResourceUse(namespace, who, f"fpga.intel.com/{name}")


def test_names_for_the_same_are_one_finding() -> None:
    objects = [function(name, "af") for name in ("b", "a", "c")]
    known = index(*objects, deprecated(function("old", "af")), function("other", "region"))
    assert found(known) == [(Code.DUPLICATE, "default", "AcceleratorFunction a")]
    assert message(known) == (
        f"it is the same as b and c ({RESOURCE}, mode af): deprecate or delete all but one"
    )
    many = index(*[region(f"r{n}") for n in range(9)])
    assert message(many).startswith("it is the same as r1, r2, r3, r4 and 4 more (")


def test_a_resource_that_nodes_have_none_of_is_dangling_and_one_unknown_never_advertised() -> None:
    known = index(function("a", "af"), region("gone"), region("never", interface=STRATIX))
    advertised = {RESOURCE: 1, REGION.partition("/")[2]: 0}
    assert found(known, advertised=advertised) == [
        (Code.NEVER_ADVERTISED, "default", "FpgaRegion never"),
        (Code.DANGLING, "default", "FpgaRegion gone"),
    ]
    never, gone = check(known, advertised=advertised)
    assert never.text.startswith(
        f"no node has advertised region-{STRATIX}: is there a node of mode reg"
    )
    assert "none has a healthy unit now" in gone.text


def test_unusable_mappings_are_found_also_without_a_name() -> None:
    reason = "m.yaml, line 3: FpgaRegion default/x: spec.interfaceId is missing, or is no text"
    known = index(rejected=[Rejected("FpgaRegion", "default", "x", reason)])
    assert check(known, problems=["f.yaml: Permission denied"]) == [
        Problem(Code.INVALID, "f.yaml: Permission denied"),
        Problem(Code.INVALID, reason, "FpgaRegion x", "default"),
    ]


def test_clashes_and_repetitions_are_told_apart() -> None:
    objects = [function("x", "af"), region("x"), function("y", "af"), function("y", "region")]
    assert found(index(*objects)) == [
        (Code.CLASH, "default", "x"),
        (Code.DUPLICATE, "default", "AcceleratorFunction y"),
    ]


def test_requested_names_without_a_mapping_and_deprecated_ones_are_found() -> None:
    bad = Rejected("FpgaRegion", "default", "bad", "FpgaRegion default/bad: no good")
    old = deprecated(function("old", "af", afu="0" * 32), "use b")
    older = deprecated(region("older", interface=STRATIX), "true")
    known = index(function("nlb0", "region"), old, older, rejected=[bad])
    uses = [use("nlb1"), use("bad"), use(RESOURCE), use("nlb0", "team"), use("nlb1")]
    uses += [use(REGION.partition("/")[2])]  # which nlb0 stands for
    told = [one.text for one in check(known, uses=[*uses, use("old"), use("older")])]
    assert sorted(told) == [
        "FpgaRegion default/bad: no good",
        f"requests {AF_NLB0}, a physical resource that no mapping of the namespace resolves to",
        "requests fpga.intel.com/bad, which can't be used: FpgaRegion default/bad: no good",
        "requests fpga.intel.com/nlb0, which does not exist in the namespace",
        "requests fpga.intel.com/nlb1, which does not exist in the namespace; did you mean nlb0?",
        "requests fpga.intel.com/old, which is deprecated: use b",
        "requests fpga.intel.com/older, which is deprecated",
    ]


def test_requests_of_a_pod_are_read_from_limits_and_requests() -> None:
    asks = {"fpga.intel.com/b": "1", "cpu": "1"}
    init = container("init", {"fpga.intel.com/a": "1"}, requests={"fpga.intel.com/c": "1"})
    (one,) = find_pods(pod(container("app", asks), init=[init]))
    told = resource_uses(one, PREFIXES, namespace="other")
    assert told == [ResourceUse("default", "Pod p", f"fpga.intel.com/{name}") for name in "abc"]
    template = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": pod(container())}}
    (two,) = find_pods(template)
    assert resource_uses(two, PREFIXES, namespace="other") == []
    template["spec"] = {"template": pod(container("app", asks))}
    (three,) = find_pods(template)
    assert resource_uses(three, PREFIXES, namespace="other") == [
        ResourceUse("other", "Job j", "fpga.intel.com/b")
    ]


def test_resources_of_nodes_add_up_by_healthy_units() -> None:
    nodes: list[object] = [
        {"status": {"capacity": {"fpga.intel.com/x": "2"}, "allocatable": {"cpu": "1"}}},
        {"status": {"allocatable": {"fpga.intel.com/y": "3"}}},
        {"status": {"allocatable": {"fpga.intel.com/y": "1k", "fpga.intel.com/z": "many"}}},
        {"status": {"allocatable": {"fpga.intel.com/z": None}, "capacity": "?"}},
        {"status": None},
        "no node",
    ]
    totals: dict[str, int] = {}
    for node in nodes:
        assert add_advertised(totals, node, PREFIXES) is totals
    assert totals == {"x": 0, "y": 1003, "z": 0}


def test_accelerators_are_checked_as_fpgas_are() -> None:
    placed = {"a": "b"}
    known = index(
        accelerator("gpu", "nvidia.com/gpu", nodeSelector=placed),
        accelerator("same", "nvidia.com/gpu", nodeSelector=placed),
        accelerator("none", "a.example/gone"),
        accelerator("class", "deviceclass.resource.kubernetes.io/gpu"),
        accelerator("logical", "b.example/x"),
        accelerator("shared", "nvidia.com/gpu", namespace="lib"),
        function("gpu", "af"),
    )
    node = {"status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "4"}}}
    policy = Policy(accelerator_domains=("accelbind.dev", "b.example"), shared_namespace="lib")
    uses = [
        ResourceUse("default", "DaemonSet d", "accelbind.dev/gpu"),
        ResourceUse("default", "Deployment d", "accelbind.dev/gpu"),
        ResourceUse("default", "Deployment d", "accelbind.dev/shared"),
        ResourceUse("default", "Deployment d", "accelbind.dev/gpus"),
    ]
    advertised = add_advertised({}, node, PREFIXES) | {
        "af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs": 1
    }
    assert advertised["nvidia.com/gpu"] == 8
    found = check(known, policy=policy, advertised=advertised, uses=uses)
    assert [(each.code, each.subject) for each in found] == [
        ("logical", "Accelerator logical"),
        ("unmapped", "Deployment d"),
        ("never-advertised", "Accelerator none"),
        ("duplicate", "Accelerator gpu"),
        ("daemonset", "DaemonSet d"),
    ]
    assert "did you mean gpu?" in found[1].text
    assert found[2].text == ("no node has advertised a.example/gone: is there a node with it?")


def test_claims_are_checked_in_each_namespace_that_has_or_uses_a_name() -> None:
    """Shared names need their templates where they are used, not in their own namespace."""

    def bundle(name: str, namespace: str, template: str = "t") -> Any:
        return accelerator(name, "", namespace=namespace, target={"claimTemplate": template})

    known = index(
        bundle("own", "team"),
        bundle("own", "lib"),
        bundle("shared", "lib"),
        bundle("fine", "team", "there"),
        accelerator("class", f"{DEVICE_CLASS}gpu", namespace="lib"),
        accelerator("class", f"{DEVICE_CLASS}there", namespace="team"),
        accelerator("gpu", "nvidia.com/gpu", namespace="team"),
    )
    uses = [
        ResourceUse("other", "Pod p", "accelbind.dev/shared"),
        ResourceUse("other", "Pod p", "accelbind.dev/unknown"),
        ResourceUse("other", "Pod p", "fpga.intel.com/own"),
    ]

    def problem(namespace: str, target: str) -> str:
        return "" if target.endswith("/there") else f"{target} is missing for {namespace}"

    policy = Policy(shared_namespace="lib")
    found = check(known, policy=policy, uses=uses, claim_problem=problem)
    claims = [(one.namespace, one.subject, one.text) for one in found if one.code == Code.CLAIMS]
    assert claims == [
        ("lib", "Accelerator class", f"{DEVICE_CLASS}gpu is missing for lib"),
        ("other", "Accelerator shared", "ResourceClaimTemplate/t is missing for other"),
        ("team", "Accelerator own", "ResourceClaimTemplate/t is missing for team"),
    ]
    advertised = {"nvidia.com/gpu": 1}
    assert [one.code for one in check(known, advertised=advertised)] == [Code.DUPLICATE]
