"""Names that stand for claims: entries of the pod, which containers share one, limits."""

import copy
import json
from collections import Counter
from functools import partial
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from services.admission.guard import guard
from services.admission.mutate import Patched, Policy, Refused, Unchanged, audit_note
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
    set_again,
    with_note,
)


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


def app(name: str = "app", **counts: int) -> Object:
    return container(name, ours(**counts))


def sidecar(name: str, **counts: int) -> Object:
    return container(name, ours(**counts), restartPolicy="Always")


def used(obj: Object) -> dict[str, list[str]]:
    """The claims of each container."""
    containers = [*obj["spec"].get("initContainers", ()), *obj["spec"]["containers"]]
    return {
        each["name"]: [one["name"] for one in each.get("resources", {}).get("claims", ())]
        for each in containers
    }


def entries(obj: Object) -> dict[str, str]:
    """The pod's claims and their templates."""
    listed = obj["spec"].get("resourceClaims", [])
    found = {each["name"]: each["resourceClaimTemplateName"] for each in listed}
    assert len(found) == len(listed)
    return found


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
    ("containers", "init", "expected"),
    [
        pytest.param([app(quad=1)], [], {"app": "quad-0 quad-1 quad-2 quad-3"}, id="count"),
        pytest.param([app(pair=0)], [], {"app": ""}, id="no unit"),
        pytest.param(
            [app(pair=1, same_pair=1)], [], {"app": "pair-0 same-pair-0"}, id="one template twice"
        ),
        pytest.param(
            [app(pair=1), app("b", pair=1)], [], {"app": "pair-0", "b": "pair-1"}, id="two"
        ),
        pytest.param(
            [app(pair=2)], [app("i", pair=1)], {"i": "pair-0", "app": "pair-0 pair-1"}, id="reused"
        ),
        pytest.param(
            [app(pair=1), app("b", pair=1)],
            [app("i", pair=2)],
            {"i": "pair-0 pair-1", "app": "pair-0", "b": "pair-1"},
            id="kept from later ones",
        ),
        pytest.param(
            [app(pair=1)],
            [app("i", pair=1), app("j", pair=1)],
            {"i": "pair-0", "j": "pair-0", "app": "pair-0"},
            id="init containers return theirs",
        ),
        pytest.param(
            [app(pair=1)],
            [app("i", pair=1), sidecar("s", pair=1)],
            {"i": "pair-0", "s": "pair-0", "app": "pair-1"},
            id="a sidecar keeps what it took",
        ),
        pytest.param(
            [app(pair=1)],
            [sidecar("s", pair=1), app("i", pair=1)],
            {"s": "pair-0", "i": "pair-1", "app": "pair-1"},
            id="an init container after a sidecar",
        ),
        pytest.param(
            [app(same_pair=1)],
            [app("i", pair=1)],
            {"i": "pair-0", "app": "pair-0"},
            id="by another name of the template",
        ),
    ],
)
def test_containers_reuse_claims_as_the_kubelet_reuses_devices(
    containers: list[Object], init: list[Object], expected: dict[str, str]
) -> None:
    after = mutated(pod(*containers, init=init))
    assert used(after) == {name: names.split() for name, names in expected.items()}
    assert sorted(entries(after)) == sorted(
        {one for names in used(after).values() for one in names}
    )


def test_names_of_claims_are_labels_and_avoid_the_pods_own() -> None:
    obj = pod(container("app", ours(pair=1) | {"accelbind.dev/Big.One": "1"}))
    obj["spec"]["resourceClaims"] = [{"name": "pair-0", "resourceClaimName": "mine"}]
    first(obj)["resources"]["claims"] = [{"name": "pair-0"}, {"name": "big-one-0"}]
    result = judge(obj)
    assert isinstance(result, Patched)
    after = apply(obj, result)
    assert used(after) == {"app": ["pair-0", "big-one-0", "big-one-1", "pair-1"]}
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


def test_a_name_of_claims_brings_everything_else_too() -> None:
    after = mutated(pod(container("app", ours(with_nic=2) | {"accelbind.dev/Big.One": "1"})))
    assert first(after)["resources"]["limits"] == {"rdma/hca": "2"}
    assert first(after)["env"] == [{"name": "TIER", "value": "big"}]
    assert after["spec"]["nodeSelector"] == {"a": "b"}


@pytest.mark.parametrize(
    ("containers", "init", "is_admitted"),
    [
        ([app(quad=4)], [], True),
        ([app(quad=4), app("b", pair=1)], [], False),
        ([app(pair=16)], [app("i", pair=16)], True),
        ([app(quad=4)], [sidecar("s", same_pair=1)], False),
        ([app(pair=16, gpu=3)], [], True),
        ([app(pair=17)], [], False),
    ],
)
def test_a_pod_has_16_claims_at_most(
    containers: list[Object], init: list[Object], *, is_admitted: bool
) -> None:
    obj = pod(*containers, init=init)
    if is_admitted:
        mutated(obj)
        return
    (problem,) = refused(obj).refusals
    assert problem.code == ReviewReason.TOO_MANY_CLAIMS
    assert "ResourceClaimTemplate/gpu-nic" in problem.text
    assert "more than 16 claims" in problem.text


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        (ours(pair=2), ["pair-0", "pair-1"]),
        (ours(pair=1), ["pair-0", "pair-1"]),
        (ours(pair=3), ["pair-0", "pair-1", "pair-2"]),
        (ours(same_pair=1), ["pair-0", "pair-1", "same-pair-0"]),
    ],
)
def test_a_name_that_is_set_again_counts_as_the_larger(again: Object, expected: list[str]) -> None:
    after = mutated(set_again(mutated(pod(app(pair=2))), again))
    assert used(after) == {"app": expected}
    assert set(entries(after)) == set(expected)


def test_claims_of_an_earlier_mutation_stay_with_their_containers() -> None:
    before = mutated(pod(app(pair=1), app("b", pair=1), init=[app("i", pair=1)]))
    after = mutated(set_again(before, ours(pair=2)))
    assert used(after) == {"i": ["pair-0"], "app": ["pair-0", "pair-2"], "b": ["pair-1"]}


def inserted(obj: Object, kind: str, at: int, *containers: Object) -> Object:
    """The pod after somebody put containers among its others."""
    after = copy.deepcopy(obj)
    after["spec"].setdefault(kind, [])[at:at] = containers
    return after


@pytest.mark.parametrize(
    ("before", "place", "one", "expected"),
    [
        pytest.param(
            pod(app(pair=1)), ("initContainers", 0), app("x", pair=1), "pair-0 pair-1", id="init"
        ),
        pytest.param(
            pod(app(pair=1), init=[app("i", pair=1)]),
            *(("initContainers", 1), sidecar("x", pair=1), "pair-0 pair-0 pair-1"),
            id="sidecar before an app",
        ),
        pytest.param(
            pod(app(pair=1), init=[app("i", pair=1)]),
            *(("containers", 0), app("x", pair=1), "pair-0 pair-0 pair-1"),
            id="app before an app",
        ),
        pytest.param(
            pod(app(), init=[app("i", pair=1), sidecar("s", pair=1)]),
            *(("initContainers", 1), sidecar("x", pair=1), "pair-0 pair-0 pair-1"),
            id="sidecar before a sidecar",
        ),
        pytest.param(
            pod(app(), init=[app("i", pair=1), app("j", pair=1)]),
            *(("initContainers", 1), sidecar("x", pair=1), "pair-0 pair-0 pair-1"),
            id="sidecar before an init container, which it runs beside",
        ),
        pytest.param(
            pod(app(), init=[app("i", pair=1), sidecar("s", pair=1)]),
            *(("initContainers", 1), app("x", pair=1), "pair-0 pair-0 pair-0"),
            id="init container before a sidecar",
        ),
        pytest.param(
            pod(app(), init=[app("i", pair=1), sidecar("s", pair=1)]),
            *(("initContainers", 2), app("x", pair=1), "pair-0 pair-0 pair-1"),
            id="init container after a sidecar",
        ),
        pytest.param(
            pod(app(), init=[app("i", pair=1)]),
            *(("initContainers", 1), sidecar("x", pair=1), "pair-0 pair-0"),
            id="sidecar after an init container",
        ),
    ],
)
def test_a_container_put_in_later_shares_no_claim_with_one_that_runs_beside_it(
    before: Object, place: tuple[str, int], one: Object, expected: str
) -> None:
    before = mutated(before)
    after = mutated(inserted(before, *place, one))
    of_others = {name: names for name, names in used(after).items() if name != "x"}
    assert of_others == used(before)
    assert sorted(name for names in used(after).values() for name in names) == expected.split()


MINE = {"claims": [{"name": "mine"}]}


@pytest.mark.parametrize(
    ("others", "sidecars", "expected"),
    [
        ([container("b", resources=MINE)], [], "pair-0"),
        ([], [container("s", resources=MINE, restartPolicy="Always")], "pair-0"),
        ([], [], "mine"),
    ],
)
def test_a_claim_that_a_running_container_has_by_hand_is_not_given_to_another(
    others: list[Object], sidecars: list[Object], expected: str
) -> None:
    obj = pod(app(pair=1), *others, init=[app("i", pair=1), *sidecars])
    obj["spec"]["resourceClaims"] = [{"name": "mine", "resourceClaimTemplateName": "gpu-nic"}]
    first(obj, "initContainers")["resources"] |= MINE
    after = mutated(obj)
    assert used(after)["i"] == ["mine", "pair-0"]
    assert used(after)["app"] == [expected]


def test_names_of_resources_beside_those_of_claims_may_be_set_again() -> None:
    after = mutated(set_again(mutated(pod(app(pair=1, gpu=1))), ours(pair=2, gpu=2)))
    assert used(after) == {"app": ["pair-0", "pair-1"]}
    assert first(after)["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert used(mutated(set_again(after, ours(gpu=3)))) == {"app": ["pair-0", "pair-1"]}


def test_a_note_without_the_claims_counts_for_nothing() -> None:
    obj = with_note(pod(app(pair=1)), {"app": {"accelbind.dev/pair": 16}})
    assert used(mutated(obj)) == {"app": ["pair-0"]}


def test_hand_written_claims_are_added_to() -> None:
    obj = pod(app(pair=1))
    own = {"name": "mine", "resourceClaimTemplateName": "gpu-nic"}
    obj["spec"]["resourceClaims"] = [own]
    first(obj)["resources"]["claims"] = [{"name": "mine", "request": "gpu"}]
    after = mutated(obj)
    assert used(after) == {"app": ["mine", "pair-0"]}


def test_the_audit_log_and_refusals_name_the_template() -> None:
    obj = pod(app(pair=2))
    note = audit_note(decode(obj), judge(obj), validating=False)
    assert note is not None
    assert note["rewrites"] == "app: accelbind.dev/pair=2 as ResourceClaimTemplate/gpu-nic"


# Any pod -----------------------------------------------------------------------------------------

NAMES = {"pair": 1, "same-pair": 1, "quad": 4}
limits = st.dictionaries(
    st.sampled_from([*NAMES, "gpu", "with-nic"]), st.integers(0, 3), max_size=3
).map(lambda counts: {f"accelbind.dev/{name}": str(n) for name, n in counts.items()})


@st.composite
def pods(draw: st.DrawFn) -> Object:
    """Pods with claims of their own, and containers of every sort."""
    kinds = [*draw(st.lists(st.sampled_from(["init", "sidecar", "app"]), max_size=4)), "app"]
    made: dict[str, list[Object]] = {"init": [], "app": []}
    own = draw(st.lists(st.sampled_from(["pair-0", "mine"]), unique=True))
    for number, kind in enumerate(kinds):
        more: Object = {"restartPolicy": "Always"} if kind == "sidecar" else {}
        asked = draw(limits)
        one = container(f"c{number}", asked or None, **more)
        if len(own) > 0 and draw(st.booleans()):
            claims = [{"name": name} for name in own]
            one.setdefault("resources", {})["claims"] = claims
        made["app" if kind == "app" else "init"].append(one)
    obj = pod(*made["app"], init=made["init"])
    if own:
        obj["spec"]["resourceClaims"] = [{"name": one, "resourceClaimName": one} for one in own]
    return obj


def expected_claims(obj: Object) -> tuple[dict[str, int], int]:
    """How many claims each container gets, and the pod, counted without looking at names."""
    wanted, total, pool = {}, 0, 0
    for kind in ("initContainers", "containers"):
        for one in obj["spec"].get(kind, ()):
            asked = one.get("resources", {}).get("limits", {})
            need = sum(int(asked.get(f"accelbind.dev/{name}", 0)) * n for name, n in NAMES.items())
            wanted[one["name"]] = need
            new = max(0, need - pool)
            total += new
            is_plain = kind == "initContainers" and one.get("restartPolicy") != "Always"
            pool = pool + new if is_plain else max(0, pool - need)
    return wanted, total


def without_ours(obj: Object, *, before: Object) -> Object:
    """The pod without what names stand for, to compare with the pod before."""
    rest = copy.deepcopy(obj)
    rest["metadata"].pop("annotations", None)
    own = before["spec"].get("resourceClaims", [])
    kept = [each for each in rest["spec"].pop("resourceClaims", []) if each in own]
    if kept:
        rest["spec"]["resourceClaims"] = kept
    for one in [*rest["spec"].get("initContainers", ()), *rest["spec"]["containers"]]:
        resources = one.get("resources", {})
        claims = [c for c in resources.pop("claims", []) if c["name"] in {o["name"] for o in own}]
        if claims:
            resources["claims"] = claims
        for part in ("limits", "requests"):
            amounts = resources.get(part, {})
            resources[part] = {
                key: value
                for key, value in amounts.items()
                if not key.startswith(("accelbind.dev/", "nvidia.com/", "rdma/"))
            }
        one["resources"] = {key: value for key, value in resources.items() if value}
    return rest


@given(pods())
def test_only_what_names_stand_for_changes_and_twice_is_once(obj: Object) -> None:
    result = judge(obj)
    asked = json.dumps(obj).count("accelbind.dev/")
    wanted, total = expected_claims(obj)
    with_nic = sum(
        int(one.get("resources", {}).get("limits", {}).get("accelbind.dev/with-nic", 0))
        for one in [*obj["spec"].get("initContainers", ()), *obj["spec"]["containers"]]
    )
    event(f"{type(result).__name__}")
    if not asked:
        assert isinstance(result, Unchanged)
        return
    if isinstance(result, Refused):
        assert total + with_nic > 16
        return
    assert isinstance(result, Patched)
    after = apply(copy.deepcopy(obj), result)
    assert isinstance(judge(after), Unchanged)
    assert without_ours(after, before=obj) == without_ours(obj, before=obj)
    templates = {
        each["name"]: each["resourceClaimTemplateName"]
        for each in after["spec"].get("resourceClaims", ())
        if "resourceClaimTemplateName" in each
    }
    assert Counter(templates.values())["gpu-nic"] == total
    of_pairs = {
        name: [one for one in names if templates.get(one) == "gpu-nic"]
        for name, names in used(after).items()
    }
    assert {name: len(names) for name, names in of_pairs.items()} == wanted
    kept = [
        one
        for kind in ("initContainers", "containers")
        for each in after["spec"].get(kind, ())
        if kind == "containers" or each.get("restartPolicy") == "Always"
        for one in of_pairs[each["name"]]
    ]
    assert len(kept) == len(set(kept)), "two that run at once share a claim"


@given(st.data())
def test_containers_put_in_later_pass_the_guard_and_share_with_none_beside(
    data: st.DataObject,
) -> None:
    obj = pod(app("main", pair=1))
    kinds = {"main": "app"}
    for _ in range(3):
        for kind in data.draw(st.lists(st.sampled_from(["init", "sidecar", "app"]), max_size=2)):
            name = f"c{len(kinds)}"
            kinds[name] = kind
            part = "containers" if kind == "app" else "initContainers"
            at = data.draw(st.integers(0, len(obj["spec"].get(part, ()))))
            make = sidecar if kind == "sidecar" else app
            obj = inserted(obj, part, at, make(name, pair=data.draw(st.integers(0, 2))))
        result = judge(obj)
        assert not isinstance(result, Refused)
        obj = apply(obj, result) if isinstance(result, Patched) else obj
    guarding = Policy(guard=("ResourceClaimTemplate/*",))
    assert guard(decode(obj), KNOWN.namespace("default"), guarding) is None
    beside: set[str] = set()  # claims of containers that still run
    for name, claims in used(obj).items():
        assert beside.isdisjoint(claims), "two that run at once share a claim"
        if kinds[name] != "init":
            beside.update(claims)


def test_names_of_claims_count_as_units() -> None:
    obj = pod(app(pair=3))
    (problem,) = refused(obj, policy=Policy(max_units=2)).refusals
    assert problem.code == ReviewReason.TOO_MANY_UNITS
