"""The guard: what a pod holds of guarded resources follows from the names that it requested."""

import json
from dataclasses import replace
from typing import Any

import pytest

from services.admission.guard import MAX_GUARDED, guard
from services.admission.mutate import Policy, Refused
from services.admission.pod_review import answer_guard
from services.mappings.model import Rejected
from services.pods.reasons import ReviewOutcome, ReviewReason
from services.pods.refusals import MAX_REFUSALS
from tests.services.admission.test_pod_review import body, response, review
from tests.services.building import Object, accelerator, container, decode, index, pod

NOTE = "accelbind.dev/requested"
GPU, MIG, RDMA = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "rdma/hca"
KNOWN = index(
    accelerator("gpu-small", MIG),
    accelerator("gpu-pair", GPU, target={"resource": GPU, "count": 2}),
    accelerator("h100", GPU, nodeSelector={"gpu/product": "H100", "a": "b"}),
    accelerator("a100", GPU, nodeSelector={"gpu/product": "A100"}),
    accelerator("nic", "b/nic", alsoRequest=[{"resource": RDMA, "per": "Container"}]),
    accelerator("elsewhere", GPU, namespace="team-b"),
    accelerator("everywhere", GPU, namespace="lib"),
)
POLICY = Policy(guard=("nvidia.com/*", RDMA))
H100 = {"gpu/product": "H100", "a": "b"}


def guarded(
    *containers: Object,
    note: object = None,
    selector: Object | None = None,
    policy: Policy = POLICY,
) -> Refused | None:
    text = note if isinstance(note, str) else json.dumps(note)
    obj = pod(*containers, annotations={NOTE: text})
    if selector is not None:
        obj["spec"]["nodeSelector"] = selector
    return guard(decode(obj), KNOWN.namespace("default"), policy, policy.shared(KNOWN))


def app(**limits: object) -> Object:
    """A container with some of nvidia.com/gpu, nvidia.com/mig-1g.10gb or rdma/hca."""
    keys = {"gpu": GPU, "mig": MIG, "hca": RDMA, "nic": "b/nic", "cpu": "cpu"}
    return container("app", {keys[name]: str(count) for name, count in limits.items()})


def noted(**units: int) -> dict[str, dict[str, int]]:
    names = {f"accelbind.dev/{name.replace('_', '-')}": count for name, count in units.items()}
    return {"app": names}


@pytest.mark.parametrize(
    ("one", "note", "selector"),
    [
        (app(cpu=1), "[[[", None),
        (app(mig=0), None, None),
        (app(mig=1), noted(gpu_small=2), None),
        (app(gpu=4, mig=1), noted(gpu_pair=2, gpu_small=1), {}),
        (app(gpu=1), noted(h100=1), H100 | {"more": "x"}),
        (app(nic=2, hca=1), noted(nic=2), None),
        (app(mig=1), noted(gpu_small=1, h100=1), None),
        (app(mig=1), {"app": {"accelbind.dev/gpu-small": 1, "fpga.intel.com/x": 9}, "b": {}}, None),
    ],
)
def test_resources_that_follow_from_names_pass_whoever_wrote_the_note(
    one: Object, note: object, selector: Object | None
) -> None:
    assert guarded(one, note=note, selector=selector) is None


HAS = (
    'container "app": {} is guarded: the container has {}, but the names in annotation '
    "accelbind.dev/requested stand for {}; "
)
ADVICE = "request gpu-pair, h100 or a100 instead"


NEEDS_H100 = "accelbind.dev/h100 needs nodes with gpu/product=H100"


@pytest.mark.parametrize(
    ("one", "note", "code", "message"),
    [
        (app(mig=1), None, "guarded-resource", HAS.format(MIG, 1, 0) + "request gpu-small instead"),
        (app(gpu=3), noted(gpu_pair=1), "guarded-resource", HAS.format(GPU, 3, 2) + ADVICE),
        (
            app(hca=1),
            noted(gpu_small=1),
            "guarded-resource",
            HAS.format(RDMA, 1, 0) + "no Accelerator of the namespace stands for it",
        ),
        (app(gpu=1), {"app": {"fpga.intel.com/gpu-pair": 1}}, "guarded-resource", ADVICE),
        (app(gpu=1), {"app": {"accelbind.dev/gpu-pair": "1"}}, "guarded-resource", ADVICE),
        # a note gives no more than requesting its names
        (app(gpu=1), noted(nothing=1), "unknown-name", "nothing does not exist in namespace"),
        (app(gpu=1), noted(elsewhere=1), "unknown-name", "elsewhere does not exist in namespace"),
        (app(gpu=1), noted(everywhere=1), "unknown-name", "everywhere does not exist in namespace"),
        (app(gpu=1), noted(gpu_pair=65), "too-many-units", "the limit is 64 per container"),
        (app(gpu=1), noted(gpu_pair=-1), "invalid-quantity", "is negative"),
        (app(gpu=1), noted(gpu_pair=10**4000), "invalid-quantity", "is not a quantity"),
        # the pod has a node selector for gpu/product=A100
        (app(gpu=1), noted(h100=1), "guarded-selector", NEEDS_H100),
        (app(gpu=1), noted(h100=1, gpu_pair=1), "guarded-selector", NEEDS_H100),
        (
            container("app", {"cpu": "1"}, requests={MIG: "1"}),
            noted(gpu_small=1),
            "requests-differ",
            "is in requests but not in limits",
        ),
    ],
)
def test_what_does_not_follow_from_the_names_is_refused(
    one: Object, note: object, code: str, message: str
) -> None:
    result = guarded(one, note=note, selector={"gpu/product": "A100", "a": "b"})
    assert result is not None
    assert {each.code for each in result.refusals} == {code}
    assert message in result.message


def test_containers_of_one_name_have_what_is_noted_once() -> None:
    assert guarded(app(gpu=2), note=noted(gpu_pair=1)) is None
    assert guarded(app(gpu=2), app(gpu=2), note=noted(gpu_pair=1)) is not None


def test_a_pod_with_many_problems_is_refused_for_the_first() -> None:
    many = [container(f"c{n}", {f"nvidia.com/{n}-{m}": "1" for m in range(3)}) for n in range(50)]
    result = guarded(*many)
    assert result is not None
    assert len(result.refusals) == MAX_REFUSALS


@pytest.mark.parametrize(("number", "is_refused"), [(MAX_GUARDED, False), (MAX_GUARDED + 1, True)])
def test_resources_of_no_unit_are_counted(number: int, is_refused: bool) -> None:
    resources = [f"nvidia.com/{n}" for n in range(number)]
    limits = dict.fromkeys(resources[:1000], "0"), dict.fromkeys(resources[1000:], "0")
    result = guarded(container("app", limits[0]), container("b", limits[1]))
    assert (result is not None) is is_refused
    if result:
        assert [each.code for each in result.refusals] == [ReviewReason.TOO_MANY_UNITS]
        assert "more than 1280 guarded resources in all its containers" in result.message


def test_shared_names_that_the_namespace_has_itself_are_not_advised() -> None:
    known = index(
        accelerator("small", MIG),
        accelerator("big", GPU),
        *[accelerator(name, GPU, namespace="lib") for name in ("small", "bad", "a", "b", "c", "d")],
        rejected=[Rejected("Accelerator", "default", "bad", "it is bad")],
    )
    policy = Policy(guard=("nvidia.com/*",), shared_namespace="lib")
    pod_ = decode(pod(app(gpu=1)))
    refused = guard(pod_, known.namespace("default"), policy, policy.shared(known))
    assert refused is not None
    assert refused.message.endswith("; request big, a, b or c instead")


def test_the_advice_does_not_look_at_all_of_many_names() -> None:
    known = index(*[accelerator(f"n{n}", MIG) for n in range(1000)], accelerator("x", GPU))
    refused = guard(decode(pod(app(gpu=1))), known.namespace("default"), POLICY)
    assert refused is not None
    assert refused.message.endswith("; request a name that stands for it instead")


def test_only_what_is_listed_is_guarded() -> None:
    policy = Policy(guard=("nvidia.com/gpu", "deviceclass.resource.kubernetes.io/big*"))
    shared = {"nvidia.com/gpu.shared": "1", "deviceclass.resource.kubernetes.io/small": "1"}
    assert guarded(container("app", shared), policy=policy) is None
    assert guarded(container("app", shared), policy=policy, note=noted(nothing=1)) is None
    listed = {"deviceclass.resource.kubernetes.io/bigger": "1"}
    assert guarded(container("app", listed), policy=policy) is not None


# Reviews


def asked(obj: Object, policy: Policy = POLICY, **request: Any) -> tuple[ReviewOutcome, str, Any]:
    answered = answer_guard(body(review(obj, **request)), KNOWN, policy)
    return answered.outcome, answered.reason, response(answered)


def test_a_review_is_answered_with_its_reason() -> None:
    physical = pod(app(gpu=1))
    outcome, reason, made = asked(physical)
    assert (outcome, reason) == (ReviewOutcome.DENIED, "guarded-resource")
    assert made["auditAnnotations"] == {"reason": "guarded-resource"}
    assert made["status"]["code"] == 403
    assert GPU in made["status"]["message"]
    note = {NOTE: json.dumps(noted(gpu_pair=1))}
    outcome, reason, made = asked(pod(app(gpu=1), annotations=note))
    assert (outcome, reason) == (ReviewOutcome.ALLOWED, "within-names")
    assert made["auditAnnotations"] == {"reason": "within-names"}
    badly = pod(app(gpu=1, mig=1), annotations={NOTE: json.dumps(noted(h100=1))})
    assert asked(badly)[2]["auditAnnotations"] == {"reason": "guarded-resource,guarded-selector"}
    shared = pod(app(gpu=1), annotations={NOTE: json.dumps(noted(everywhere=1))})
    assert asked(shared)[0] == ReviewOutcome.DENIED
    serves = replace(POLICY, shared_namespace="lib")
    assert asked(shared, serves)[0] == ReviewOutcome.ALLOWED
    assert asked(physical, operation="UPDATE")[:2] == (ReviewOutcome.ALLOWED, "not-created")


def test_a_webhook_without_guard_refuses_what_it_is_asked() -> None:
    outcome, reason, made = asked(pod(app(gpu=1)), Policy())
    assert (outcome, reason) == (ReviewOutcome.DENIED, "nothing-guarded")
    assert made["status"]["message"] == (
        "the webhook configuration calls the guard, but the webhook runs without --guard"
    )


def test_a_pod_that_cant_be_read_is_refused() -> None:
    obj = pod(app(gpu=1), annotations={NOTE: json.dumps(noted(h100=1))})
    obj["spec"]["nodeSelector"] = 5
    assert asked(obj)[:2] == (ReviewOutcome.ERRORED, "unreadable-pod")


@pytest.mark.parametrize("part", ["limits", "requests"])
def test_guarded_resources_of_the_whole_pod_are_refused(part: str) -> None:
    for one in (app(cpu=1), app(mig=1)):
        obj = pod(one, annotations={NOTE: json.dumps(noted(gpu_small=1))})
        obj["spec"]["resources"] = {part: {"cpu": "1", GPU: "1"}}
        result = guard(decode(obj), KNOWN.namespace("default"), POLICY)
        assert result is not None
        assert [each.code for each in result.refusals] == [ReviewReason.POD_RESOURCES]
        assert f"the pod: {GPU} is in spec.resources" in result.message


# Claims -------------------------------------------------------------------------------------------

CLAIMS = Policy(guard=("ResourceClaimTemplate/*", "ResourceClaim/*"))
BUNDLES = index(
    accelerator("pair", "", target={"claimTemplate": "gpu-nic"}),
    accelerator("big", "", target={"claimTemplate": "big"}, nodeSelector={"a": "b"}),
)


def with_claims(
    *templates: str,
    note: dict[str, int],
    uses: int | None = None,
    claim: str = "",
    init: bool = False,
    selector: Object | None = None,
) -> Refused | None:
    """What the guard says of a pod with claims of templates, of which its container uses some."""
    entries = [
        {"name": f"c{n}", "resourceClaimTemplateName": each} for n, each in enumerate(templates)
    ]
    if claim:
        entries.append({"name": "own", "resourceClaimName": claim})
    used = [{"name": each["name"]} for each in entries][:uses]
    app = container("app", resources={"claims": used})
    names = {f"accelbind.dev/{name}": units for name, units in note.items()}
    notes = {"app": names} | ({"init": names} if init else {})
    before = [container("init", resources={"claims": used})] if init else []
    obj = pod(app, init=before, annotations={NOTE: json.dumps(notes)})
    obj["spec"] |= {"resourceClaims": entries, "nodeSelector": selector or {}}
    return guard(decode(obj), BUNDLES.namespace("default"), CLAIMS)


IS_GUARDED = "ResourceClaimTemplate/gpu-nic is guarded: "


@pytest.mark.parametrize(
    ("templates", "given", "words"),
    [
        (["gpu-nic"], {"note": {}}, f'container "app": {IS_GUARDED}the container has 1'),
        (["gpu-nic"] * 2, {"note": {"pair": 1}}, "stand for 1; request pair instead"),
        (["gpu-nic"], {"note": {"pair": 1}, "uses": 0}, f"the pod: {IS_GUARDED}"),
        (["gpu-nic"] * 2, {"note": {"pair": 1}, "uses": 1}, "spec.resourceClaims has 2, but"),
        (["gpu-nic"] * 17, {"note": {"pair": 17}}, "more than 16 claims"),
        (["gpu-nic"] * 2, {"note": {"pair": 1}, "uses": 1, "init": True}, "containers use 1"),
        (["other"], {"note": {"pair": 1}}, "ResourceClaimTemplate/other is guarded"),
        ([], {"note": {"pair": 1}, "claim": "mine"}, "ResourceClaim/mine is guarded: the cont"),
        ([], {"note": {}, "claim": "mine", "uses": 0}, "ResourceClaim/mine is guarded: spec"),
        (["big"], {"note": {"big": 1}}, "needs nodes with a=b"),
    ],
)
def test_other_claims_are_refused(templates: list[str], given: Any, words: str) -> None:
    result = with_claims(*templates, **given)
    assert result is not None
    assert words in result.message


def test_claims_are_not_looked_at_where_they_are_not_guarded() -> None:
    obj = pod(container("app", resources={"claims": [{"name": "c"}]}))
    obj["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "mine"}]
    assert guard(decode(obj), BUNDLES.namespace("default"), POLICY) is None
