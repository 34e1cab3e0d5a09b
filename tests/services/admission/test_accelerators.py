"""Names of accelerators in pods: resources, variables, placement, and what contradicts."""

import json
from functools import partial
from typing import Any

import pytest

from services.admission.mutate import Patched, Policy
from services.mappings.model import Rejected
from services.pods.reasons import ReviewReason
from services.process.errors import InvalidReview
from tests.services import building
from tests.services.building import (
    NLB3,
    Object,
    accelerator,
    container,
    first,
    function,
    index,
    pod,
    set_again,
)

MIG, RDMA = "nvidia.com/mig-1g.10gb", "rdma/hca"
TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}

KNOWN = index(
    accelerator("gpu-small", MIG),
    accelerator("gpu-same", MIG, target={"resource": MIG, "count": 3}),
    accelerator(
        "gpu-rdma",
        "nvidia.com/gpu",
        alsoRequest=[{"resource": RDMA, "per": "Container"}, {"resource": "a/b", "count": 2}],
    ),
    accelerator("nic", RDMA, alsoRequest=[{"resource": "a/b", "count": 5, "per": "Container"}]),
    accelerator("tier-a", "a/x", env=[{"name": "TIER", "value": "a"}, {"name": "B", "value": ""}]),
    accelerator("tier-b", "a/y", env=[{"name": "TIER", "value": "b"}]),
    accelerator("h100", "a/x", nodeSelector={"gpu/product": "H100", "b": "c"}, tolerations=[TAINT]),
    accelerator("a100", "a/y", nodeSelector={"gpu/product": "A100"}),
    accelerator("other-h100", "a/y", nodeSelector={"gpu/product": "H100"}, tolerations=[TAINT]),
    accelerator("nvidia", "a/x", runtimeClassName="nvidia"),
    accelerator("kata", "a/y", runtimeClassName="kata"),
    accelerator("logical", "a.example/x"),
    accelerator("plain", "a/x", namespace="shared"),
    accelerator("gpu-small", "a/shared", namespace="shared"),
    function("gpu-small", "region"),
    function("nlb3", "region", afu=NLB3),
    function("nlb0-af", "af"),
    rejected=[Rejected("Accelerator", "default", "bad", "Accelerator default/bad: it is bad")],
)
SHARED = Policy(shared_namespace="shared")

judge = partial(building.judge, known=KNOWN)
mutated = partial(building.mutated, known=KNOWN)
refused = partial(building.refused, known=KNOWN)


def ours(**counts: object) -> Object:
    return {f"accelbind.dev/{name.replace('_', '-')}": str(n) for name, n in counts.items()}


def asking(limits: Object, **more: Any) -> Object:
    """A pod as an API server sends it: requests are those of limits."""
    return pod(container("app", limits, **more))


def placed(obj: Object, **spec: object) -> Object:
    return obj | {"spec": obj["spec"] | spec}


# Resources and variables


@pytest.mark.parametrize(
    ("limits", "held"),
    [
        (ours(gpu_small=1, gpu_same=2) | {MIG: "1", "cpu": "1"}, {MIG: "8", "cpu": "1"}),
        (ours(gpu_rdma=1, nic=2), {"nvidia.com/gpu": "1", RDMA: "3", "a/b": "7"}),
        (ours(gpu_rdma=1) | {RDMA: "2"}, {"nvidia.com/gpu": "1", RDMA: "3", "a/b": "2"}),
        (ours(gpu_rdma=0), {"nvidia.com/gpu": "0"}),
    ],
)
def test_limits_and_requests_have_what_the_names_stand_for(limits: Object, held: Object) -> None:
    assert first(mutated(asking(limits)))["resources"] == {"limits": held, "requests": held}


OWN_TIERS: list[Object] = [
    {"name": "TIER", "value": "own"},
    {"name": "TIER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
]


@pytest.mark.parametrize("own", OWN_TIERS)
def test_a_containers_own_variables_win_and_then_nothing_contradicts(own: Object) -> None:
    env = first(mutated(asking(ours(tier_a=1, tier_b=1), env=[own])))["env"]
    assert env == [own, {"name": "B", "value": ""}]
    mutated(set_again(mutated(asking(ours(tier_a=1), env=[own])), ours(tier_b=1)))


def test_mappings_that_set_a_variable_differently_are_refused_in_one_container() -> None:
    assert refused(asking(ours(tier_a=1, tier_b=1))).message == (
        'container "app": accelbind.dev/tier-a and accelbind.dev/tier-b set TIER to different '
        "values: set it in the container, or request them in different containers"
    )
    mutated(asking(ours(tier_a=1, tier_b=0)))
    mutated(pod(*[container(name, ours(**{name: 1})) for name in ("tier_a", "tier_b")]))


def test_a_container_without_an_fpga_may_have_any_variable() -> None:
    env = [{"name": "FPGA_REGION_1", "value": "x"}, {"name": "FPGA_LOG", "value": "y"}]
    assert first(mutated(asking(ours(gpu_small=1), env=env)))["env"] == env
    both = {"fpga.intel.com/gpu-small": "1"} | ours(gpu_small=1)
    assert "FPGA_REGION_1" in refused(asking(both, env=env)).message


# Placement


def test_a_placement_is_added_to_what_a_pod_has() -> None:
    spec = mutated(asking(ours(h100=1, nvidia=1)))["spec"]
    assert spec["nodeSelector"] == {"gpu/product": "H100", "b": "c"}
    assert (spec["tolerations"], spec["runtimeClassName"]) == ([TAINT], "nvidia")
    assert "nodeSelector" not in mutated(asking(ours(h100=0)))["spec"]
    other = {"key": "x", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}
    own: Object = {"nodeSelector": {"a": "b", "b": "c"}, "runtimeClassName": "nvidia"}
    before = asking(ours(h100=1, other_h100=1, nvidia=1))
    spec = mutated(placed(before, tolerations=[other], **own))["spec"]
    assert spec["nodeSelector"] == {"a": "b", "b": "c", "gpu/product": "H100"}
    assert spec["tolerations"] == [other, TAINT]
    own_taint = TAINT | {"value": None}
    again = placed(asking(ours(h100=1)), tolerations=[own_taint])
    assert mutated(again)["spec"]["tolerations"] == [own_taint]


H100_NODES = "accelbind.dev/h100 needs nodes with gpu/product=H100, but "


@pytest.mark.parametrize(
    ("limits", "own", "message"),
    [
        (
            ours(h100=1),
            {"nodeSelector": {"gpu/product": "A100"}},
            H100_NODES + "the pod has the node selector gpu/product=A100",
        ),
        (
            ours(a100=1, h100=1),
            {},
            H100_NODES + "accelbind.dev/a100 has the node selector gpu/product=A100",
        ),
        (
            ours(nvidia=1),
            {"runtimeClassName": "runc"},
            'accelbind.dev/nvidia needs runtime class "nvidia", but the pod has "runc"',
        ),
        (
            ours(kata=1, nvidia=1),
            {},
            'accelbind.dev/nvidia needs runtime class "nvidia", but accelbind.dev/kata has "kata"',
        ),
    ],
)
def test_contradicting_placements_are_refused_with_both_names(
    limits: Object, own: Object, message: str
) -> None:
    result = refused(placed(asking(limits), **own))
    assert [each.code for each in result.refusals] == [ReviewReason.MAPPINGS_CONFLICT]
    assert result.message == f'container "app": {message}'


def test_a_placement_that_cant_be_read_is_an_error() -> None:
    with pytest.raises(InvalidReview, match="the pod can't be read"):
        judge(placed(asking(ours(h100=1)), tolerations=5))


# Refused names

SHARED_ONE = "Accelerator shared/gpu-large has this name"
OTHER = "Accelerator default/h100 has this name"
FUNCTION = "AcceleratorFunction default/nlb3 has this name"


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (ours(gpu_smal=1), "did you mean gpu-small?"),
        (ours(bad=1), "accelbind.dev/bad can't be used: Accelerator default/bad: it is bad"),
        (ours(gpu_small="1.5"), "is not a whole number"),
        (ours(gpu_small=1) | {MIG: "x"}, f"invalid quantity of {MIG}"),
        (ours(gpu_small=65), "the limit is 64 per container"),
        (ours(logical=1), "stands for a.example/x, whose domain has logical names only"),
        (ours(nlb3=1), f"did you mean fpga.intel.com/nlb3? {FUNCTION}"),
        ({"fpga.intel.com/h100": "1"}, f"mean accelbind.dev/h100? {OTHER}"),
        ({"fpga.intel.com/region-abcdef12": "1"}, "is a physical resource, and no mapping"),
    ],
)
def test_names_that_stand_for_nothing_are_refused(limits: Object, problem: str) -> None:
    policy = Policy(accelerator_domains=("accelbind.dev", "a.example"))
    assert problem in refused(asking(limits), policy=policy).message


def test_eight_problems_are_reported_and_the_nearest_of_four_names() -> None:
    known = index(accelerator("plain", "a/x"))
    limits = {f"accelbind.dev/plain{n}": "1" for n in range(20)}
    suggested = [
        "did you mean plain?" in each.text for each in refused(asking(limits), known=known).refusals
    ]
    assert suggested == [True] * 4 + [False] * 4


@pytest.mark.parametrize(
    "spec",
    [
        {"env": [{"name": f"V{n}", "value": "\x01" * 1024} for n in range(16)]},
        {"nodeSelector": {f"{n}{'a' * 250}/{'b' * 60}": "c" * 63 for n in range(8)}},
        {"tolerations": [TAINT | {"key": f"{n}{'a' * 250}/{'b' * 60}"} for n in range(8)]},
    ],
    ids=["env", "selector", "tolerations"],
)
def test_additions_of_mappings_to_a_pod_are_limited(spec: Object) -> None:
    known = index(accelerator("big", "a/x", **spec))
    many = [container(f"c{n}", ours(big=1)) for n in range(256)]
    (refusal,) = refused(pod(*many), known=known).refusals
    assert refusal.code == ReviewReason.TOO_MUCH_ADDED
    assert refusal.text.endswith(
        ": variables, node selectors and tolerations of the mappings that the pod requests have"
        " more than 131072 bytes together, with 64 more for each: use fewer containers or names, or"
        " shorten the mappings"
    )
    most = max(n for n in range(1, 60) if isinstance(judge(pod(*many[:n]), known=known), Patched))
    patched = judge(pod(*many[:most]), known=known)
    assert isinstance(patched, Patched)
    assert len(json.dumps(patched.operations)) < 450_000


# Names of the shared namespace


def test_names_that_a_namespace_does_not_map_are_those_of_the_shared_one() -> None:
    for limits, held in ((ours(plain=1), {"a/x": "1"}), (ours(gpu_small=1), {MIG: "1"})):
        assert first(mutated(asking(limits), policy=SHARED))["resources"]["limits"] == held
    assert "default/bad: it is bad" in refused(asking(ours(bad=1)), policy=SHARED).message


@pytest.mark.parametrize(("own", "listed"), [([], "plain"), (["flames"], "flames; plain")])
def test_the_nearest_name_may_be_shared(own: list[str], listed: str) -> None:
    mapped = [accelerator(name, "a/y") for name in own]
    known = index(accelerator("plain", "a/x", namespace="shared"), *mapped)
    assert refused(asking(ours(plian=1)), known=known, policy=SHARED).message == (
        'container "app": accelbind.dev/plian does not exist in namespace "default"; '
        f"did you mean plain? Available: {listed}"
    )


def test_an_empty_namespace_says_what_to_do_and_the_shared_one_lists_its_names_once() -> None:
    message = refused(asking(ours(gpu=1)), known=index()).message
    assert 'namespace "default"; the namespace has no mappings: ask an' in message
    message = refused(asking(ours(unlike=1)), policy=Policy(shared_namespace="default")).message
    assert message.count("Available: ") == 1
    assert ";" not in message.partition("Available: ")[2]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("fpga.intel.com/gpu-large", f"did you mean accelbind.dev/gpu-large? {SHARED_ONE}"),
        ("fpga.intel.com/gpu-larg", f"did you mean accelbind.dev/gpu-large? {SHARED_ONE}"),
        ("fpga.intel.com/unlike", 'namespace "default". Available: accelbind.dev/gpu-large'),
    ],
)
def test_a_name_of_the_other_domain_is_found_among_shared_ones_too(key: str, words: str) -> None:
    known = index(accelerator("gpu-large", "a/x", namespace="shared"))
    assert refused(asking({key: "1"}), known=known, policy=SHARED).message.endswith(words)


# Notes
