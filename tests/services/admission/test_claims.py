"""Names that stand for claims: entries of the pod, which containers share one, limits."""

import copy
from functools import partial
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.admission.guard import guard
from services.admission.mutate import Patched, Policy, Refused
from services.pods.reasons import ReviewReason
from tests.services import building
from tests.services.building import (
    Object,
    accelerator,
    apply,
    container,
    decode,
    first,
    index,
    note_of,
    pod,
    with_note,
)

Part: TypeAlias = tuple[str, Object]
"""A container, with its kind: init, sidecar or app."""


def bundle(name: str, template: str, count: int = 1, **more: Any) -> Object:
    """An Accelerator that stands for claims."""
    target = {"claimTemplate": template} | ({"count": count} if count != 1 else {})
    return accelerator(name, "", target=target, **more)


KNOWN = index(
    bundle("pair", "gpu-nic"),
    bundle("same-pair", "gpu-nic"),
    bundle("quad", "gpu-nic", 4),
    bundle("Big.One", "big.one", env=[{"name": "TIER", "value": "big"}], nodeSelector={"a": "b"}),
    bundle("with-nic", "gpu", alsoRequest=[{"resource": "rdma/hca"}]),
    accelerator("gpu", "nvidia.com/gpu"),
)
judge = partial(building.judge, known=KNOWN)
mutated = partial(building.mutated, known=KNOWN)
refused = partial(building.refused, known=KNOWN)


def ours(**counts: int) -> Object:
    return {f"accelbind.dev/{name.replace('_', '-')}": str(n) for name, n in counts.items()}


def part(kind: str, name: str = "", **counts: int) -> Part:
    more: Object = {"restartPolicy": "Always"} if kind == "sidecar" else {}
    return kind, container(name, ours(**counts), **more)


init, sidecar, app = (partial(part, kind) for kind in ("init", "sidecar", "app"))


def pod_of(*parts: Part) -> Object:
    """A pod of init containers and sidecars, and of app containers behind them."""
    made = [(kind, one | {"name": one["name"] or f"c{n}"}) for n, (kind, one) in enumerate(parts)]
    apps = [one for kind, one in made if kind == "app"]
    return pod(*apps, init=[one for kind, one in made if kind != "app"])


def with_part(obj: Object, at: int, part: Part) -> Object:
    """The pod after somebody put a container among those of its kind."""
    after, (kind, one) = copy.deepcopy(obj), part
    after["spec"].setdefault("containers" if kind == "app" else "initContainers", [])[at:at] = [one]
    return after


def used_by(obj: Object) -> dict[str, list[str]]:
    """The claims of each container."""
    containers = [*obj["spec"].get("initContainers", ()), *obj["spec"]["containers"]]
    return {
        each["name"]: [one["name"] for one in each.get("resources", {}).get("claims", ())]
        for each in containers
    }


def used(obj: Object) -> str:
    """The claims of all containers that have any, in order, such as `pair-0 pair-1 | pair-0`."""
    return " | ".join(" ".join(names) for names in used_by(obj).values() if names)


def entries(obj: Object) -> list[str]:
    """The names of a pod's claims."""
    return [each["name"] for each in obj["spec"].get("resourceClaims", [])]


def test_each_unit_becomes_a_claim_of_the_template_and_the_name_goes() -> None:
    after = mutated(pod(container("app", ours(pair=2) | {"cpu": "1"})))
    assert after["spec"]["resourceClaims"] == [
        {"name": "pair-0", "resourceClaimTemplateName": "gpu-nic"},
        {"name": "pair-1", "resourceClaimTemplateName": "gpu-nic"},
    ]
    assert first(after)["resources"] == {
        "limits": {"cpu": "1"},
        "requests": {"cpu": "1"},
        "claims": [{"name": "pair-0"}, {"name": "pair-1"}],
    }
    assert note_of(after) == {"app": {"accelbind.dev/pair": 2}}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([app(quad=1)], "quad-0 quad-1 quad-2 quad-3"),
        ([app(pair=0)], ""),
        ([app(pair=1), app(pair=1)], "pair-0 | pair-1"),
        # init containers return theirs
        ([init(pair=1), app(pair=2)], "pair-0 | pair-0 pair-1"),
        ([init(pair=2), app(pair=1), app(pair=1)], "pair-0 pair-1 | pair-0 | pair-1"),
        ([init(pair=1), app(same_pair=1)], "pair-0 | pair-0"),
        ([init(with_nic=1), app(pair=1)], "with-nic-0 | pair-0"),
        # a sidecar keeps what it took
        ([init(pair=1), sidecar(pair=1), app(pair=1)], "pair-0 | pair-0 | pair-1"),
        ([sidecar(pair=1), init(pair=1), app(pair=1)], "pair-0 | pair-1 | pair-1"),
    ],
)
def test_containers_reuse_claims_as_the_kubelet_reuses_devices(
    parts: list[Part], expected: str
) -> None:
    after = mutated(pod_of(*parts))
    assert used(after) == expected
    assert sorted(entries(after)) == sorted({*expected.split()} - {"|"})


def test_names_of_claims_are_labels_and_avoid_the_pods_own() -> None:
    obj = pod(container("app", ours(pair=1) | {"accelbind.dev/Big.One": "1"}))
    obj["spec"]["resourceClaims"] = [{"name": "pair-0", "resourceClaimName": "mine"}]
    first(obj)["resources"]["claims"] = [{"name": "pair-0"}, {"name": "big-one-0"}]
    result = judge(obj)
    assert isinstance(result, Patched)
    after = apply(obj, result)
    assert used(after) == "pair-0 big-one-0 big-one-1 pair-1"
    assert after["spec"]["resourceClaims"][1:] == [
        {"name": "big-one-1", "resourceClaimTemplateName": "big.one"},
        {"name": "pair-1", "resourceClaimTemplateName": "gpu-nic"},
    ]


@pytest.mark.parametrize("name", ["A" * 63, "a" + "." * 61 + "b", "0_-_0", "a" * 49 + "-b"])
def test_every_name_gives_a_dns_label(name: str) -> None:
    known = index(bundle(name, "t"))
    (made,) = entries(mutated(pod(container("app", {f"accelbind.dev/{name}": "1"})), known=known))
    assert len(made) <= 63
    assert made.replace("-", "a").isalnum()
    assert made == made.lower()
    assert made.startswith(name[0].lower())


@pytest.mark.parametrize(
    ("parts", "is_admitted"),
    [
        ([app(quad=4)], True),
        ([app(quad=4), app(pair=1)], False),
        ([init(pair=16), app(pair=16)], True),
        ([sidecar(same_pair=1), app(quad=4)], False),
        ([app(pair=16, gpu=3)], True),
    ],
)
def test_a_pod_has_16_claims_at_most(parts: list[Part], *, is_admitted: bool) -> None:
    obj = pod_of(*parts)
    if is_admitted:
        mutated(obj)
        return
    (problem,) = refused(obj).refusals
    assert problem.code == ReviewReason.TOO_MANY_CLAIMS
    assert "ResourceClaimTemplate/gpu-nic" in problem.text
    assert "more than 16 claims" in problem.text


def test_names_of_claims_count_as_units() -> None:
    (problem,) = refused(pod_of(app(pair=3)), policy=Policy(max_units=2)).refusals
    assert problem.code == ReviewReason.TOO_MANY_UNITS


@pytest.mark.parametrize(
    ("parts", "at", "later", "expected"),
    [
        ([app(pair=1, gpu=1)], 0, init("x", pair=1), "pair-1 | pair-0"),
        ([init(pair=1), app(pair=1)], 1, sidecar("x", pair=1), "pair-0 | pair-1 | pair-0"),
        ([init(pair=1), app(pair=1)], 0, app("x", pair=1), "pair-0 | pair-1 | pair-0"),
        # a sidecar runs beside an init container behind it
        ([init(pair=1), init(pair=1), app()], 1, sidecar("x", pair=1), "pair-0 | pair-1 | pair-0"),
        ([init(pair=1), sidecar(pair=1), app()], 1, init("x", pair=1), "pair-0 | pair-0 | pair-0"),
        ([init(pair=1), sidecar(pair=1), app()], 2, init("x", pair=1), "pair-0 | pair-0 | pair-1"),
        ([init(pair=1), app()], 1, sidecar("x", pair=1), "pair-0 | pair-0"),
    ],
)
def test_a_container_put_in_later_shares_no_claim_with_one_that_runs_beside_it(
    parts: list[Part], at: int, later: Part, expected: str
) -> None:
    assert used(mutated(with_part(mutated(pod_of(*parts)), at, later))) == expected


def test_a_claim_that_a_container_has_by_hand_is_not_what_its_name_gets() -> None:
    both = [container(name, ours(pair=1)) for name in ("i", "j")]
    for one in both:
        one["resources"]["claims"] = [{"name": "mine"}]
    obj = pod(container("app"), init=both)
    obj["spec"]["resourceClaims"] = [{"name": "mine", "resourceClaimTemplateName": "gpu-nic"}]
    assert used(mutated(obj)) == "mine pair-0 | mine pair-0"


def test_a_note_without_the_claims_counts_for_nothing() -> None:
    obj = with_note(pod_of(app(pair=1)), {"c0": {"accelbind.dev/pair": 16}})
    assert used(mutated(obj)) == "pair-0"


@given(st.data())
def test_containers_put_in_later_pass_the_guard_and_share_with_none_beside(
    data: st.DataObject,
) -> None:
    obj = pod_of(app(pair=1))
    kinds, units = {"c0": "app"}, {"c0": 1}
    for _ in range(3):
        for kind in data.draw(st.lists(st.sampled_from(["init", "sidecar", "app"]), max_size=2)):
            name, number = f"c{len(kinds)}", data.draw(st.integers(0, 2))
            kinds[name], units[name] = kind, number
            among = obj["spec"].get("containers" if kind == "app" else "initContainers", ())
            at = data.draw(st.integers(0, len(among)))
            obj = with_part(obj, at, part(kind, name, pair=number))
        result = judge(obj)
        assert not isinstance(result, Refused)
        obj = apply(obj, result) if isinstance(result, Patched) else obj
    guarding = Policy(guard=("ResourceClaimTemplate/*",))
    assert guard(decode(obj), KNOWN.namespace("default"), guarding) is None
    beside: set[str] = set()  # claims of containers that still run
    for name, claims in used_by(obj).items():
        assert len(claims) == units[name]
        assert beside.isdisjoint(claims), "two that run at once share a claim"
        if kinds[name] != "init":
            beside.update(claims)
