"""Names of accelerators in pods: resources, variables, placement, and what contradicts."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from services.admission.mutate import Patched, Policy, Refused, Unchanged, mutate
from services.mappings.index import MappingIndex
from services.mappings.model import Rejected
from services.pods.reasons import ReviewReason
from services.process.errors import InvalidReview
from tests.services.building import (
    NLB0,
    NLB3,
    REGION,
    Object,
    accelerator,
    apply,
    container,
    decode,
    function,
    index,
    pod,
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
USUAL = Policy()


def ours(**counts: object) -> Object:
    return {f"accelbind.dev/{name.replace('_', '-')}": str(n) for name, n in counts.items()}


def judge(
    obj: Object, policy: Policy = USUAL, known: MappingIndex = KNOWN
) -> Unchanged | Patched | Refused:
    mappings = known.namespace("default")
    return mutate(decode(obj), mappings, policy, policy.shared(known))


def mutated(obj: Object, policy: Policy = USUAL) -> Object:
    """The pod after a patch, which a second pass leaves as it is."""
    result = judge(obj, policy)
    assert isinstance(result, Patched), result
    after = apply(obj, result)
    assert isinstance(judge(after, policy), Unchanged)
    return after


def resources(obj: Object, policy: Policy = USUAL) -> dict[str, str]:
    """What the first container gets, in limits and requests alike."""
    found = mutated(obj, policy)["spec"]["containers"][0]["resources"]
    assert found["limits"] == found["requests"]
    limits: dict[str, str] = found["limits"]
    return limits


def refusal(obj: Object, policy: Policy = USUAL) -> str:
    result = judge(obj, policy)
    assert isinstance(result, Refused), result
    return result.message


def asking(limits: Object, **more: Any) -> Object:
    """A pod as an API server sends it: requests are those of limits."""
    return pod(container("app", limits, requests=dict(limits), **more))


@pytest.mark.parametrize(
    ("limits", "given"),
    [
        (ours(gpu_small=2), {MIG: "2"}),
        (ours(gpu_small=2) | {MIG: "1"}, {MIG: "3"}),
        (ours(gpu_small=1, gpu_same=2) | {MIG: "1"}, {MIG: "8"}),
        (ours(gpu_rdma=2), {"nvidia.com/gpu": "2", RDMA: "1", "a/b": "4"}),
        (ours(gpu_rdma=1, nic=2), {"nvidia.com/gpu": "1", RDMA: "3", "a/b": "7"}),
        (ours(gpu_rdma=1) | {RDMA: "2"}, {"nvidia.com/gpu": "1", RDMA: "3", "a/b": "2"}),
        (ours(gpu_rdma=0), {"nvidia.com/gpu": "0"}),
        (ours(gpu_small=1) | {"cpu": "1"}, {MIG: "1", "cpu": "1"}),
    ],
)
def test_limits_and_requests_have_what_the_names_stand_for(limits: Object, given: Object) -> None:
    assert resources(asking(limits)) == given


def test_requests_are_set_where_a_template_has_none_and_in_init_containers() -> None:
    init = container("init", ours(gpu_small=2) | {MIG: "1"})
    del init["resources"]["requests"]
    after = mutated(pod(container("app", {"cpu": "1"}), init=[init]))["spec"]["initContainers"][0]
    assert after["resources"] == {"limits": {MIG: "3"}, "requests": {MIG: "3"}}


def test_names_of_fpgas_and_accelerators_mix_and_have_names_of_their_own() -> None:
    both = {"fpga.intel.com/gpu-small": "1"} | ours(gpu_small=1, tier_b=1)
    after = mutated(asking(both, env=[{"name": "A", "value": "b"}]))
    app = after["spec"]["containers"][0]
    assert app["resources"]["limits"] == {REGION: "1", MIG: "1", "a/y": "1"}
    assert [each["name"] for each in app["env"]] == ["A", "FPGA_REGION_1", "FPGA_AFU_1", "TIER"]
    assert app["env"][2]["value"] == NLB0
    noted = json.loads(after["metadata"]["annotations"]["accelbind.dev/requested"])
    assert noted == {"app": dict.fromkeys(both, 1)}


@pytest.mark.parametrize(
    ("own", "after"),
    [
        (None, [("TIER", "a"), ("B", "")]),
        ([{"name": "TIER", "value": "own"}], [("TIER", "own"), ("B", "")]),
        (
            [{"name": "TIER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            [("TIER", None), ("B", "")],
        ),
    ],
)
def test_a_containers_own_variables_win(own: Any, after: list[tuple[str, str | None]]) -> None:
    env = mutated(asking(ours(tier_a=1), env=own))["spec"]["containers"][0]["env"]
    assert [(each["name"], each.get("value")) for each in env] == after


def test_mappings_that_set_a_variable_differently_are_refused() -> None:
    both = ours(tier_a=1, tier_b=1)
    assert refusal(asking(both)) == (
        'container "app": accelbind.dev/tier-a and accelbind.dev/tier-b set TIER to different '
        "values: set it in the container, or request them in different containers"
    )
    mutated(asking(both, env=[{"name": "TIER", "value": "own"}]))
    mutated(asking(ours(tier_a=1, tier_b=0)))
    mutated(pod(*[container(name, ours(**{name: 1})) for name in ("tier_a", "tier_b")]))


def placed(obj: Object, **spec: object) -> Object:
    return obj | {"spec": obj["spec"] | spec}


def test_a_placement_is_added() -> None:
    spec = mutated(asking(ours(h100=1, nvidia=1)))["spec"]
    assert spec["nodeSelector"] == {"gpu/product": "H100", "b": "c"}
    assert spec["tolerations"] == [TAINT]
    assert spec["runtimeClassName"] == "nvidia"
    assert "nodeSelector" not in mutated(asking(ours(h100=0)))["spec"]


def test_what_a_pod_has_of_a_placement_stays() -> None:
    other = {"key": "x", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}
    before = placed(
        asking(ours(h100=1, other_h100=1, nvidia=1)),
        nodeSelector={"a": "b", "b": "c"},
        tolerations=[other],
        runtimeClassName="nvidia",
    )
    spec = mutated(before)["spec"]
    assert spec["nodeSelector"] == {"a": "b", "b": "c", "gpu/product": "H100"}
    assert spec["tolerations"] == [other, TAINT]
    assert spec["runtimeClassName"] == "nvidia"
    again = placed(asking(ours(h100=1)), tolerations=[TAINT])
    assert mutated(again)["spec"]["tolerations"] == [TAINT]


def conflicts() -> Iterator[tuple[Object, str]]:
    yield (
        placed(asking(ours(h100=1)), nodeSelector={"gpu/product": "A100"}),
        (
            "accelbind.dev/h100 needs nodes with gpu/product=H100, but the pod has the node "
            "selector gpu/product=A100"
        ),
    )
    yield (
        asking(ours(a100=1, h100=1)),
        (
            "accelbind.dev/h100 needs nodes with gpu/product=H100, but accelbind.dev/a100 has the "
            "node selector gpu/product=A100"
        ),
    )
    yield (
        placed(asking(ours(nvidia=1)), runtimeClassName="runc"),
        'accelbind.dev/nvidia needs runtime class "nvidia", but the pod has "runc"',
    )
    yield (
        asking(ours(kata=1, nvidia=1)),
        'accelbind.dev/nvidia needs runtime class "nvidia", but accelbind.dev/kata has "kata"',
    )


@pytest.mark.parametrize(("obj", "message"), [*conflicts()])
def test_contradicting_placements_are_refused_with_both_names(obj: Object, message: str) -> None:
    result = judge(obj)
    assert isinstance(result, Refused)
    assert [each.code for each in result.refusals] == [ReviewReason.MAPPINGS_CONFLICT]
    assert result.message == f'container "app": {message}'


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (ours(gpu_smal=1), "did you mean gpu-small?"),
        (ours(bad=1), "accelbind.dev/bad can't be used: Accelerator default/bad: it is bad"),
        (ours(gpu_small="1.5"), "is not a whole number"),
        (ours(gpu_small=1) | {MIG: "x"}, f"invalid quantity of {MIG}"),
        (ours(gpu_small=65), "the limit is 64 per container"),
        (ours(plain=1), "accelbind.dev/plain does not exist"),
    ],
)
def test_what_cant_be_given_is_refused(limits: Object, problem: str) -> None:
    assert problem in refusal(asking(limits))


def test_a_resource_of_a_name_in_requests_only_is_refused() -> None:
    obj = pod(container("app", ours(gpu_small=1), requests=ours(gpu_small=1) | {MIG: "1"}))
    assert f"{MIG} is in requests but not in limits" in refusal(obj)


def test_a_problem_of_a_resource_that_was_noted_is_told_once() -> None:
    before = asking(ours(gpu_small=1) | {MIG: "1500m"})
    note = {"app": {"accelbind.dev/gpu-small": 1}}
    before["metadata"]["annotations"] = {"accelbind.dev/requested": json.dumps(note)}
    assert refusal(before).startswith(f'container "app": invalid quantity of {MIG}')


def test_no_more_than_eight_problems_are_reported() -> None:
    result = judge(asking({f"accelbind.dev/x{n}": "1" for n in range(20)}))
    assert isinstance(result, Refused)
    assert len(result.refusals) == 8


@pytest.mark.parametrize(
    "spec",
    [
        {"env": [{"name": f"V{n}", "value": "\x01" * 1024} for n in range(16)]},
        {"nodeSelector": {f"{n}{'a' * 250}/{'b' * 60}": "c" * 63 for n in range(8)}},
        {"tolerations": [TAINT | {"key": f"{n}{'a' * 250}/{'b' * 60}"} for n in range(8)]},
    ],
    ids=["env", "selector", "tolerations"],
)
def test_what_mappings_add_to_a_pod_is_limited(spec: Object) -> None:
    known = index(accelerator("big", "a/x", **spec))
    few = judge(pod(container("app", ours(big=1))), known=known)
    assert isinstance(few, Patched)
    many = [container(f"c{n}", ours(big=1)) for n in range(256)]
    result = judge(pod(*many), known=known)
    assert isinstance(result, Refused)
    (refusal,) = result.refusals
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


def test_a_namespace_without_names_says_what_to_do() -> None:
    empty = index(function("x", "region"))
    result = judge(asking(ours(gpu=1)), known=empty)
    assert isinstance(result, Refused)
    assert 'namespace "default"; the namespace has no mappings: ask an' in result.message


def test_a_name_of_the_other_family_is_pointed_out() -> None:
    other = "has this name, for another domain of resources"
    assert f"Accelerator default/h100 {other}" in refusal(asking({"fpga.intel.com/h100": "1"}))
    known = index(function("nlb0", "region"))
    result = judge(asking(ours(nlb0=1)), known=known)
    assert isinstance(result, Refused)
    assert f"AcceleratorFunction default/nlb0 {other}" in result.message


def test_a_target_in_a_domain_in_force_is_refused() -> None:
    policy = Policy(accelerator_domains=("accelbind.dev", "a.example"))
    assert resources(asking(ours(logical=1))) == {"a.example/x": "1"}
    assert "stands for a.example/x, whose domain has logical names only" in refusal(
        asking(ours(logical=1)), policy
    )


def test_names_that_a_namespace_does_not_map_are_those_of_the_shared_one() -> None:
    policy = Policy(shared_namespace="shared")
    assert resources(asking(ours(plain=1)), policy) == {"a/x": "1"}
    assert resources(asking(ours(gpu_small=1)), policy) == {MIG: "1"}
    assert "default/bad: it is bad" in refusal(asking(ours(bad=1)), policy)


@pytest.mark.parametrize(("own", "listed"), [([], "plain"), (["flames"], "flames; plain")])
def test_the_nearest_name_may_be_shared(own: list[str], listed: str) -> None:
    mapped = [accelerator(name, "a/y") for name in own]
    known = index(accelerator("plain", "a/x", namespace="shared"), *mapped)
    result = judge(asking(ours(plian=1)), Policy(shared_namespace="shared"), known)
    assert isinstance(result, Refused)
    assert result.message == (
        'container "app": accelbind.dev/plian does not exist in namespace "default"; '
        f"did you mean plain? Available: {listed}"
    )


def test_the_nearest_is_searched_for_four_names_of_a_pod() -> None:
    known = index(accelerator("plain", "a/x"))
    result = judge(asking(ours(plai=1, plaim=1, plain1=1, plian=1, pplain=1)), known=known)
    assert isinstance(result, Refused)
    suggested = ["did you mean plain?" in each.text for each in result.refusals]
    assert suggested == [True] * 4 + [False]


def test_a_pod_of_the_shared_namespace_is_told_its_names_once() -> None:
    message = refusal(asking(ours(unlike=1)), Policy(shared_namespace="default"))
    assert message.count("Available: ") == 1
    assert ";" not in message.partition("Available: ")[2]


def asking_again(before: Object, limits: Object, **app: Any) -> Object:
    """A mutated pod to which another webhook has added names; `app` replaces what it has."""
    after = mutated(before)
    one = after["spec"]["containers"][0]
    one["resources"] |= app
    for part in ("limits", "requests"):
        one["resources"][part] = one["resources"][part] | limits
    return after


def test_what_goes_with_names_once_per_container_stays_once_in_a_second_mutation() -> None:
    again = asking_again(asking(ours(nic=2)), ours(nic=3, gpu_rdma=1))
    assert resources(again) == {RDMA: "4", "a/b": "7", "nvidia.com/gpu": "1"}
    both = ours(nic=3, gpu_rdma=1)
    assert resources(asking(both)) == resources(again)


@pytest.mark.parametrize(
    ("own", "conflicts"),
    [
        (None, True),
        ([{"name": "TIER", "value": "own"}], False),
        ([{"name": "TIER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}], False),
    ],
)
def test_a_variable_of_an_earlier_mutation_contradicts_a_name_that_is_added(
    own: Any, conflicts: bool
) -> None:
    later = asking_again(asking(ours(tier_a=1), env=own), ours(tier_b=1))
    if conflicts:
        assert refusal(later).startswith(
            'container "app": accelbind.dev/tier-a and accelbind.dev/tier-b set TIER to different'
        )
    else:
        mutated(later)
    mutated(asking_again(asking(ours(tier_a=1), env=own), ours(tier_a=1)))


def test_units_of_an_earlier_mutation_count_in_the_limit() -> None:
    policy = Policy(max_units=3)
    mutated(asking_again(asking(ours(gpu_small=2)), ours(gpu_small=3)), policy)
    for added in (ours(gpu_small=4), ours(tier_a=2), {"fpga.intel.com/gpu-small": "2"}):
        later = asking_again(asking(ours(gpu_small=2)), ours(tier_a=0) | added)
        assert "4 accelerators are requested, but the limit is 3" in refusal(later, policy)


@pytest.mark.parametrize(
    "note", [ours(gpu_small=5), ours(nothing=1), ours(gpu_small=-1), {"x.example/gpu-small": 1}]
)
def test_a_note_without_the_resources_it_stands_for_is_dropped(note: Object) -> None:
    counts = {key: int(count) for key, count in note.items()}
    before = asking(ours(gpu_same=1))
    before["metadata"]["annotations"] = {"accelbind.dev/requested": json.dumps({"app": counts})}
    after = mutated(before)
    assert after["spec"]["containers"][0]["resources"]["limits"] == {MIG: "3"}
    noted = json.loads(after["metadata"]["annotations"]["accelbind.dev/requested"])
    others = {key: n for key, n in counts.items() if not key.startswith("accelbind.dev/")}
    assert noted == {"app": {"accelbind.dev/gpu-same": 1} | others}


def test_containers_of_one_name_are_left_to_kubernetes_to_refuse() -> None:
    before = pod(*[container("app", ours(gpu_small=1)) for _ in range(2)])
    note = {"app": {"accelbind.dev/nothing": 1}}
    before["metadata"]["annotations"] = {"accelbind.dev/requested": json.dumps(note)}
    noted = json.loads(mutated(before)["metadata"]["annotations"]["accelbind.dev/requested"])
    assert noted == {"app": {"accelbind.dev/gpu-small": 1}}


def test_a_container_without_an_fpga_may_have_any_variable() -> None:
    env = [{"name": "FPGA_REGION_1", "value": "x"}, {"name": "FPGA_LOG", "value": "y"}]
    assert mutated(asking(ours(gpu_small=1), env=env))["spec"]["containers"][0]["env"] == env
    assert "FPGA_REGION_1" in refusal(
        asking({"fpga.intel.com/gpu-small": "1"} | ours(gpu_small=1), env=env)
    )


def test_a_placement_that_cant_be_read_is_an_error() -> None:
    with pytest.raises(InvalidReview, match="the pod can't be read"):
        judge(placed(asking(ours(h100=1)), tolerations=5))


@pytest.mark.parametrize("given", [0, 2])
def test_units_of_a_target_that_come_from_a_limit_range_get_a_warning(given: int) -> None:
    before = asking(ours(gpu_same=1) | {MIG: given})
    text = f"LimitRanger plugin set: {MIG} limit for container app"
    before["metadata"]["annotations"] = {"kubernetes.io/limit-ranger": text}
    result = judge(before)
    assert isinstance(result, Patched)
    warned = (f"{MIG} of container app comes from a LimitRange",)
    assert result.warnings == (warned if given else ())


def test_an_unknown_name_that_looks_physical_does_not_exist() -> None:
    result = judge(asking({"accelbind.dev/region-abcdef12": 1}))
    assert isinstance(result, Refused)
    assert 'accelbind.dev/region-abcdef12 does not exist in namespace "default"' in result.message
    result = judge(asking({"fpga.intel.com/region-abcdef12": 1}))
    assert isinstance(result, Refused)
    assert "fpga.intel.com/region-abcdef12 is a physical resource, and no mapping" in result.message
