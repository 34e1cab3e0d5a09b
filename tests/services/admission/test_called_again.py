"""Names that somebody sets again after the webhook removed them: LimitRanger, policies, webhooks.

The API server calls the webhook again for such a pod. A name that its note has counts as the larger
of both, and only a name that is new to the container adds.
"""

import copy
import tracemalloc
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from services.admission.guard import guard
from services.admission.mutate import (
    MAX_POD_UNITS,
    Patched,
    Policy,
    Refused,
    Unchanged,
)
from services.mappings.index import MappingIndex
from tests.services import building
from tests.services.building import (
    AF_NLB0,
    NLB3,
    REGION,
    Object,
    accelerator,
    apply,
    container,
    decode,
    first,
    function,
    index,
    note_of,
    pair,
    pod,
    region,
    set_again,
    with_note,
)

TAINT = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
KNOWN = index(
    function("nlb0", "region"),
    function("nlb3", "region", afu=NLB3),
    function("nlb0-af", "af"),
    function("same-af", "af"),
    region("devel"),
    accelerator(
        "gpu",
        "x/gpu",
        target={"resource": "x/gpu", "count": 2},
        alsoRequest=[{"resource": "x/nic", "per": "Container"}, {"resource": "x/mem"}],
        env=[{"name": "TIER", "value": "a"}],
        nodeSelector={"gpu": "big"},
        tolerations=[TAINT],
    ),
    accelerator("other-gpu", "x/gpu"),
    accelerator("tier-gpu", "x/npu", env=[{"name": "TIER", "value": "b"}]),
)
DOMAINS = ("fpga.intel.com", "f.example")
POLICY = Policy(domains=DOMAINS, guard=("x/*",))
judge = partial(building.judge, known=KNOWN, policy=POLICY)


def ours(**counts: int) -> dict[str, int]:
    """Names with their units: of FPGAs, those with `gpu` of accelerators."""
    domains = {name: "accelbind.dev" if "gpu" in name else "fpga.intel.com" for name in counts}
    return {f"{domains[name]}/{name.replace('_', '-')}": n for name, n in counts.items()}


def admitted(obj: Object, known: MappingIndex = KNOWN, policy: Policy = POLICY) -> Object | None:
    """The pod as a call of the webhook leaves it, None if it is refused."""
    result = judge(obj, known=known, policy=policy)
    if isinstance(result, Refused):
        return None
    return apply(obj, result) if isinstance(result, Patched) else copy.deepcopy(obj)


def mutated(obj: Object, known: MappingIndex = KNOWN, policy: Policy = POLICY) -> Object:
    """The same of a pod that is admitted; one more call changes nothing, and the guard agrees."""
    after = admitted(obj, known, policy)
    assert after is not None, judge(obj, known=known, policy=policy)
    assert isinstance(judge(after, known=known, policy=policy), Unchanged)
    assert guard(decode(after), known.namespace("default"), policy) is None
    return after


def asking(limits: dict[str, int], **app: Any) -> Object:
    return pod(container("app", {key: str(n) for key, n in limits.items()}, **app))


def refusal(obj: Object) -> str:
    result = judge(obj)
    assert isinstance(result, Refused)
    return result.message


# Any pod, and any defaults that somebody sets where a container has no value

NAMES = [
    *ours(nlb0=0, nlb3=0, nlb0_af=0, same_af=0, devel=0, gpu=0, other_gpu=0, tier_gpu=0),
    *(f"{DOMAINS[1]}/{name}" for name in ("nlb0", "nlb3")),
]
few = st.integers(0, 3)


@st.composite
def pods(draw: st.DrawFn) -> Object:
    limits = st.dictionaries(
        st.sampled_from([*NAMES, *NAMES, REGION, AF_NLB0, "x/gpu", "cpu"]), few, max_size=3
    )
    tiers = [[{"name": "TIER", "value": each}] for each in ("a", "own")]
    own = st.sampled_from([None, pair(1), *tiers])

    def one(name: str, **more: Any) -> Object:
        env = draw(own)
        amounts = draw(limits) | ({REGION: 1} if env == pair(1) else {})
        return container(name, {key: str(n) for key, n in amounts.items()}, env=env, **more)

    side = [one("init-side", restartPolicy="Always")] if draw(st.booleans()) else []
    return pod(one("app"), one("app-1"), init=[one("init"), *side])


def all_containers(obj: Object) -> list[Object]:
    return [*obj["spec"]["containers"], *obj["spec"]["initContainers"]]


def with_defaults(obj: Object, defaults: Mapping[str, int], prefix: str, *, least: bool) -> Object:
    """The pod after LimitRanger: defaults where values are missing, or where they are smaller."""
    after = copy.deepcopy(obj)
    for one in all_containers(after):
        if one["name"].startswith(prefix):
            for part in ("limits", "requests"):
                amounts = one["resources"][part]
                for key, default in defaults.items():
                    value = int(amounts.get(key, default))
                    amounts[key] = str(max(value, default) if least else value)
    return after


def comparable(obj: Object, before: Object) -> Any:
    """A pod without the order of what was added: numbers of functions, variables, tolerations."""
    after = copy.deepcopy(obj)
    after["metadata"] |= {"annotations": note_of(obj)}
    for one, was in zip(all_containers(after), all_containers(before), strict=True):
        env: list[Object] = one.pop("env", None) or []
        added = [(each["name"], each["value"]) for each in env[len(was.get("env") or ()) :]]
        numbered = [(*name.split("_")[1:2], value) for name, value in added if "FPGA_" in name]
        variables = Counter(each for each in added if "FPGA_" not in each[0])
        one["env"] = (Counter(numbered), variables)
    after["spec"]["tolerations"] = len(after["spec"].get("tolerations", []))
    return after


@given(
    pods(),
    st.dictionaries(st.sampled_from(NAMES), few, min_size=1, max_size=3),
    st.sampled_from(["", "app", "init", "app-1"]),
    st.sampled_from([4, 64]),
)
def test_it_makes_no_difference_whether_a_default_is_set_before_or_after_the_webhook(
    before: Object, defaults: dict[str, int], prefix: str, max_units: int
) -> None:
    policy = Policy(domains=DOMAINS, max_units=max_units, guard=("x/*",))
    once = admitted(before, policy=policy)
    assume(once is not None)
    assert once is not None
    wanted = admitted(with_defaults(before, defaults, prefix, least=True), policy=policy)
    again = with_defaults(once, defaults, prefix, least=False)
    made = admitted(again, policy=policy)
    event(f"refused: {made is None}")
    assert (made is None) == (wanted is None), (judge(again, policy=policy), again)
    if made is not None and wanted is not None:
        assert comparable(made, before) == comparable(wanted, before)
        assert isinstance(judge(made, policy=policy), Unchanged)
        namespace = KNOWN.namespace("default")
        assert guard(decode(made), namespace, policy) == guard(decode(wanted), namespace, policy)


# What was wrong once


@pytest.mark.parametrize("part", [("limits",), ("requests",), ()])
@pytest.mark.parametrize(
    ("asked", "again", "held"),
    [
        pytest.param({"nlb0": 3}, {"nlb0": 1}, {REGION: "3"}, id="less"),
        pytest.param({"nlb0": 0}, {"nlb0": 2}, {REGION: "2"}, id="more than none"),
        pytest.param(
            {"nlb0_af": 1, "same_af": 1}, {"same_af": 2}, {AF_NLB0: "3"}, id="one function"
        ),
        pytest.param(
            {"gpu": 1, "nlb0": 1, "nlb3": 2},
            {"gpu": 2, "nlb0": 1, "nlb3": 1},
            {"x/gpu": "4", "x/nic": "1", "x/mem": "2", REGION: "3"},
            id="both families",
        ),
    ],
)
def test_a_name_that_comes_back_counts_as_the_larger_of_both(
    asked: Any, again: Any, held: Object, part: tuple[str, ...]
) -> None:
    after = mutated(set_again(mutated(asking(ours(**asked))), ours(**again), *part))
    assert first(after)["resources"] == {"limits": held, "requests": held}
    larger = {name: max(n, again.get(name, 0)) for name, n in asked.items()}
    assert note_of(after) == {"app": ours(**larger)}


@pytest.mark.parametrize("part", ["limits", "requests"])
def test_a_quantity_that_was_set_again_must_be_one(part: str) -> None:
    after = set_again(mutated(asking(ours(nlb0=1))), ours(nlb0=1))
    first(after)["resources"][part]["fpga.intel.com/nlb0"] = "1500m"
    assert 'invalid quantity of fpga.intel.com/nlb0: "1500m"' in refusal(after)


@pytest.mark.parametrize(
    "note",
    [
        pytest.param({"é": {}}, id="a container's name"),
        pytest.param({"app": {"x.example/é": 1}}, id="a name of another domain"),
        pytest.param({"other": {f"x.example/{n}": 1 for n in range(512)}}, id="many names"),
        pytest.param({"other": {"n" * (128 * 1024 - 20): 1}}, id="a long name"),
    ],
)
def test_our_note_can_be_read_whatever_was_noted_before(note: Object) -> None:
    after = mutated(with_note(asking(ours(nlb0=1)), note))
    again = mutated(set_again(after, ours(nlb0=1)))
    assert first(again)["resources"]["limits"] == {REGION: "1"}
    assert note_of(again) == {"app": ours(nlb0=1)}


@pytest.mark.parametrize("name", ["nlb0", "gpu"])
def test_a_name_that_only_requests_have_is_refused_whatever_the_note_says(name: str) -> None:
    before = with_note(pod(container("app")), {"app": ours(**{name: 0})})
    text = refusal(set_again(before, ours(**{name: 1}), "requests"))
    assert "is in requests but not in limits" in text


def test_regions_of_two_domains_may_have_one_interface() -> None:
    init = container("init", {"fpga.intel.com/nlb0": "1", "f.example/nlb3": "1"})
    after = mutated(pod(container("app", ours(nlb0=1)), init=[init]))
    again = copy.deepcopy(after)
    for part in ("limits", "requests"):
        again["spec"]["initContainers"][0]["resources"][part] |= {"f.example/nlb3": "1"}
    assert mutated(again) == after


@pytest.mark.parametrize("default", [{}, {REGION: 0}])
def test_names_of_no_unit_take_the_same_places_when_they_come_back(default: dict[str, int]) -> None:
    """Also where a LimitRange sets the physical name."""
    limits = {key: str(n) for key, n in (ours(nlb0=0) | default).items()}
    for number, fits in ((MAX_POD_UNITS, True), (MAX_POD_UNITS + 1, False)):
        after = admitted(pod(*[container(f"c{n}", limits) for n in range(number)]))
        assert (after is not None) == fits
        if after is not None:
            mutated(set_again(after, ours(nlb0=0)))


# Notes that count for nothing


@pytest.mark.parametrize(
    ("limits", "note", "held"),
    [
        pytest.param({}, {"nlb0": 1}, "1", id="the resource is missing"),
        pytest.param({REGION: 1}, {"nlb0": 2}, "2", id="there is less of it"),
        pytest.param({REGION: 1}, {"nlb0": 1}, "2", id="no variables name its function"),
        pytest.param({REGION: 1}, {"nlb0": -1}, "2", id="negative"),
        pytest.param({REGION: 1}, {"nlb0": 10**4000}, "2", id="more than a pod may request"),
        pytest.param({REGION: 1}, {"nothing": 1}, "2", id="nobody maps it"),
        pytest.param({REGION: 1}, {"no_gpu": 1}, "2", id="nor this accelerator"),
    ],
)
def test_a_note_counts_only_with_what_it_stands_for(
    limits: dict[str, int], note: dict[str, int], held: str
) -> None:
    """Of an edited copy of another pod, or written by hand."""
    after = mutated(with_note(asking(limits | ours(nlb0=1)), {"app": ours(**note)}))
    assert first(after)["resources"]["limits"] == {REGION: held}
    assert note_of(after) == {"app": ours(nlb0=1)}


def test_a_note_by_hand_costs_nothing_however_many_units_it_has() -> None:
    """Of 10^8 functions alone, a list would take a gigabyte."""
    before = with_note(asking(ours(nlb0=1)), {"app": ours(nlb0=10**8)})
    tracemalloc.start()
    judge(before)
    assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    tracemalloc.stop()


def test_a_note_by_hand_saves_no_units_and_yields_no_function() -> None:
    before = asking(ours(nlb0=1) | {REGION: 2}, env=pair(1) + pair(2, afu=NLB3))
    before = with_note(before, {"app": ours(nlb0=1, nlb3=1)})
    after = mutated(before)
    assert first(after)["resources"]["limits"] == {REGION: "2"}
    assert first(after)["env"] == first(before)["env"]
    assert isinstance(judge(before, policy=Policy(max_units=1)), Refused)


def test_a_name_whose_mapping_changed_since_leaves_the_others_their_note() -> None:
    one = accelerator("one", "x/gpu", alsoRequest=[{"resource": "y/nic", "per": "Container"}])
    before = index(one, accelerator("two", "x/mem"))
    then = index(one, accelerator("two", "y/gpu"))
    limits = {"accelbind.dev/one": "1", "accelbind.dev/two": "1"}
    after = mutated(pod(container("app", limits)), before, Policy())
    again = mutated(set_again(after, limits), then, Policy())
    held = {"x/mem": "1", "x/gpu": "1", "y/gpu": "1", "y/nic": "1"}
    assert first(again)["resources"]["limits"] == held


def test_names_of_another_mode_are_refused_in_any_order() -> None:
    for once, later in (("nlb0", "devel"), ("devel", "nlb0")):
        again = set_again(mutated(asking(ours(**{once: 1}))), ours(**{later: 1}))
        assert "resources of different modes are requested" in refusal(again)
