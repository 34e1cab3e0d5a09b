"""Names that somebody sets again after the webhook removed them: LimitRanger, policies, webhooks.

The API server calls the webhook again for such a pod. A name that its note has counts as the larger
of both, and only a name that is new to the container adds.
"""

import copy
import json
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from services.admission import mutate as mutating
from services.admission.guard import guard
from services.admission.mutate import (
    MAX_POD_UNITS,
    REASON,
    REWRITES,
    Patched,
    Policy,
    Refused,
    Unchanged,
    audit_note,
)
from services.mappings.index import MappingIndex
from tests.services import building
from tests.services.building import (
    AF_NLB0,
    ARRIA,
    NLB0,
    NLB3,
    REGION,
    STRATIX,
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
)
POLICY = Policy(guard=("x/*",))


def ours(**counts: int) -> dict[str, int]:
    """Names with their units: of FPGAs, those with `gpu` of accelerators."""
    domains = {name: "accelbind.dev" if "gpu" in name else "fpga.intel.com" for name in counts}
    return {f"{domains[name]}/{name.replace('_', '-')}": n for name, n in counts.items()}


judge = partial(building.judge, known=KNOWN, policy=POLICY)


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


def asking(limits: dict[str, int], *more: Object, **app: Any) -> Object:
    return pod(container("app", {key: str(n) for key, n in limits.items()}, **app), *more)


@pytest.mark.parametrize("part", [("limits",), ("requests",), ()])
@pytest.mark.parametrize(
    ("asked", "again", "held", "noted"),
    [
        pytest.param({"nlb0": 3}, {"nlb0": 1}, {REGION: "3"}, {"nlb0": 3}, id="less"),
        pytest.param({"nlb0": 0}, {"nlb0": 2}, {REGION: "2"}, {"nlb0": 2}, id="more than none"),
        pytest.param({"devel": 2}, {"devel": 1}, {REGION: "2"}, {"devel": 2}, id="regiondevel"),
        pytest.param(
            {"nlb0_af": 1, "same_af": 1},
            {"same_af": 2},
            {AF_NLB0: "3"},
            {"nlb0_af": 1, "same_af": 2},
            id="two names of one function",
        ),
        pytest.param(
            {"gpu": 1, "nlb0": 1, "nlb3": 2},
            {"gpu": 2, "nlb0": 1, "nlb3": 1},
            {"x/gpu": "4", "x/nic": "1", "x/mem": "2", REGION: "3"},
            {"gpu": 2, "nlb0": 1, "nlb3": 2},
            id="both families",
        ),
    ],
)
def test_a_name_that_comes_back_counts_as_the_larger_of_both(
    asked: Any, again: Any, held: Object, noted: Any, part: tuple[str, ...]
) -> None:
    made = first(after := mutated(set_again(mutated(asking(ours(**asked))), ours(**again), *part)))
    assert made["resources"] == {"limits": held, "requests": held}
    assert note_of(after) == {"app": ours(**noted)}
    functions = [each["value"] for each in made.get("env", ()) if "AFU" in each["name"]]
    wanted = {NLB0: noted.get("nlb0", 0), NLB3: noted.get("nlb3", 0)}
    assert Counter(functions) == +Counter(wanted)
    assert [each["value"] for each in made.get("env", ()) if each["name"] == "TIER"] == [
        "a" for name in noted if name == "gpu"
    ]


def test_limits_and_requests_that_were_set_again_may_differ() -> None:
    """As LimitRanger does with a default that is larger than its default request."""
    after = set_again(mutated(asking(ours(nlb0=2))), ours(nlb0=1), "requests")
    assert first(mutated(set_again(after, ours(nlb0=3), "limits")))["resources"]["limits"] == {
        REGION: "3"
    }


@pytest.mark.parametrize("part", ["limits", "requests"])
def test_a_quantity_that_was_set_again_must_be_one(part: str) -> None:
    after = set_again(mutated(asking(ours(nlb0=1))), ours(nlb0=1))
    first(after)["resources"][part]["fpga.intel.com/nlb0"] = "1500m"
    result = judge(after)
    assert isinstance(result, Refused)
    assert 'invalid quantity of fpga.intel.com/nlb0: "1500m"' in result.message


def test_the_audit_log_has_what_is_requested_in_all() -> None:
    again = set_again(mutated(asking(ours(nlb0=2))), ours(nlb0=1))
    note = audit_note(decode(again), judge(again), validating=False)
    rewrites = f"app: fpga.intel.com/nlb0=2 as {REGION}"
    assert note == {f"{REASON}-again": "rewritten", f"{REWRITES}-again": rewrites}


TIERS = index(
    accelerator("gpu-a", "x/a", env=[{"name": "TIER", "value": "a"}]),
    accelerator("gpu-b", "x/b", env=[{"name": "TIER", "value": "b"}]),
    function("nlb0", "region"),
)


@pytest.mark.parametrize("tier", ["a", "b", "own", None])
@pytest.mark.parametrize("asked", [{"gpu_a": 1}, {"gpu_b": 1}, {"gpu_a": 1, "gpu_b": 1}])
@pytest.mark.parametrize(
    "again",
    [{"gpu_a": 1}, {"gpu_b": 1}, {"gpu_b": 0}, {"gpu_a": 1, "gpu_b": 1}, {"nlb0": 1}],
)
def test_a_variable_that_a_container_sets_itself_is_no_conflict_later(
    tier: str | None, asked: dict[str, int], again: dict[str, int]
) -> None:
    env = [{"name": "TIER", "value": tier}] if tier else None
    once = admitted(asking(ours(**asked), env=env), TIERS)
    both_names = again | asked
    both = asking(ours(**both_names), env=env)
    conflicts = {name for name, n in both_names.items() if n and name != "nlb0"} == {
        "gpu_a",
        "gpu_b",
    }
    assert (admitted(both, TIERS) is None) == (tier is None and conflicts)
    if once is None:
        return
    made = admitted(set_again(once, ours(**again)), TIERS)
    made = made and admitted(set_again(made, ours(nlb0=1)), TIERS)
    wanted = admitted(set_again(both, ours(nlb0=1)), TIERS)
    assert (made is None) == (wanted is None)
    if made and wanted:
        assert note_of(made) == note_of(wanted)
        assert sorted(map(str, first(made)["env"])) == sorted(map(str, first(wanted)["env"]))


@pytest.mark.parametrize(
    "note",
    [
        pytest.param({"\u00e9": {}}, id="a container's name"),
        pytest.param({"app": {"x.example/\u00e9": 1}}, id="a name of another domain"),
        pytest.param({"other": {f"x.example/{n}": 1 for n in range(512)}}, id="many names"),
        pytest.param({"other": {"n" * (128 * 1024 - 20): 1}}, id="a long name"),
    ],
)
def test_our_note_can_be_read_whatever_was_noted_before(note: Object) -> None:
    before = with_note(asking(ours(nlb0=1)), note)
    after = mutated(before)
    again = mutated(set_again(after, ours(nlb0=1)))
    assert first(again)["resources"]["limits"] == {REGION: "1"}
    assert note_of(again) == {"app": ours(nlb0=1)}


def test_variables_of_containers_leave_the_note_readable() -> None:
    names = [f"V{n}" for n in range(16)]
    env = [{"name": name, "value": "1"} for name in names]
    known = index(accelerator("gpu", "x/gpu", env=env))
    many = [container(f"c{n}", ours(gpu=1), env=env) for n in range(20)]
    after = mutated(pod(*many), known)
    assert sum(map(len, note_of(after).values())) == 20 + 256
    again = mutated(set_again(after, ours(gpu=1)), known)
    assert first(again)["resources"]["limits"] == {"x/gpu": "1"}


@pytest.mark.parametrize("name", ["nlb0", "gpu"])
def test_a_name_that_only_requests_have_is_refused_whatever_the_note_says(name: str) -> None:
    before = pod(container("app"))
    before = with_note(before, {"app": ours(**{name: 0})})
    result = judge(set_again(before, ours(**{name: 1}), "requests"))
    assert isinstance(result, Refused)
    assert "is in requests but not in limits" in result.message


def test_regions_of_two_domains_may_have_one_interface() -> None:
    policy = Policy(domains=("fpga.intel.com", "f.example"))
    init = container("init", {"fpga.intel.com/nlb0": "1", "f.example/nlb3": "1"})
    before = pod(container("app", ours(nlb0=1)), init=[init])
    after = mutated(before, policy=policy)
    again = copy.deepcopy(after)
    for part in ("limits", "requests"):
        again["spec"]["initContainers"][0]["resources"][part] |= {"f.example/nlb3": "1"}
    assert mutated(again, policy=policy) == after
    for part in ("limits", "requests"):
        again["spec"]["containers"][0]["resources"][part] |= ours(nlb3=1)
        before["spec"]["containers"][0]["resources"][part] |= ours(nlb3=1)
    assert (admitted(again, policy=policy) is None) == (admitted(before, policy=policy) is None)


@pytest.mark.parametrize("name", ["nlb0", "gpu"])
def test_a_full_pod_whose_names_come_back_is_full_and_not_too_full(name: str) -> None:
    full = [container(f"c{n}", ours(**{name: 64})) for n in range(MAX_POD_UNITS // 64)]
    after = mutated(pod(*full, container("more", {"cpu": "1"})))
    for one in after["spec"]["containers"][:4]:
        for part in ("limits", "requests"):
            one["resources"][part] |= ours(**{name: 1})
    again = mutated(after)
    for part in ("limits", "requests"):
        again["spec"]["containers"][4]["resources"][part] |= ours(**{name: 1})
    result = judge(again)
    assert isinstance(result, Refused)
    assert "more than 256 accelerators" in result.message


@pytest.mark.parametrize("default", [{}, {REGION: 0}])
def test_names_of_no_unit_take_the_same_places_when_they_come_back(
    default: dict[str, int],
) -> None:
    """Also where a LimitRange sets the physical name."""
    limits = {key: str(n) for key, n in (ours(nlb0=0) | default).items()}
    for number, fits in ((MAX_POD_UNITS, True), (MAX_POD_UNITS + 1, False)):
        before = pod(*[container(f"c{n}", limits) for n in range(number)])
        after = admitted(before)
        assert (after is not None) == fits
        if after is not None:
            mutated(set_again(after, ours(nlb0=0)))


def test_many_names_that_come_back_are_all_read() -> None:
    afus = [f"{n:032x}" for n in range(128)]
    known = index(*[function(f"f{n}", "af", afu=afu) for n, afu in enumerate(afus)])
    names = [f"fpga.intel.com/f{n}" for n in range(128)]
    before = pod(container("a", dict.fromkeys(names[:64], "1")))
    before["spec"]["containers"] += [
        container(one, dict.fromkeys(names[64:], "1")) for one in ("b", "c", "d")
    ]
    after = mutated(before, known)
    again = copy.deepcopy(after)
    for one, was in zip(again["spec"]["containers"], before["spec"]["containers"], strict=True):
        for part in ("limits", "requests"):
            one["resources"][part] |= was["resources"][part]
    assert mutated(again, known) == after


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
    ],
)
def test_a_note_counts_only_with_what_it_stands_for(
    limits: dict[str, int], note: dict[str, int], held: str
) -> None:
    """Of an edited copy of another pod, or written by hand."""
    before = asking(limits | ours(nlb0=1))
    before = with_note(before, {"app": ours(**note)})
    after = mutated(before)
    assert first(after)["resources"]["limits"] == {REGION: held}
    assert note_of(after) == {"app": ours(nlb0=1)}


def test_a_note_by_hand_costs_nothing_however_many_units_it_has() -> None:
    """Of 10^8 functions alone, a list would take a gigabyte."""
    before = asking(ours(nlb0=1))
    before = with_note(before, {"app": ours(nlb0=10**8)})
    tracemalloc.start()
    judge(before)
    assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    tracemalloc.stop()


def test_a_note_by_hand_saves_no_units_and_yields_no_function() -> None:
    limits = ours(nlb0=1) | {REGION: 2}
    before = asking(limits, env=pair(1) + pair(2, afu=NLB3))
    before = with_note(before, {"app": ours(nlb0=1, nlb3=1)})
    after = mutated(before)
    assert first(after)["resources"]["limits"] == {REGION: "2"}
    assert first(after)["env"] == first(before)["env"]
    policy = Policy(max_units=1)
    assert isinstance(judge(before, policy=policy), Refused)


@pytest.mark.parametrize(
    ("changed", "held"),
    [
        pytest.param(accelerator("other", "y/gpu"), {"x/gpu": "1", "y/nic": "1"}, id="gone"),
        pytest.param(
            accelerator("two", "y/gpu"), {"x/gpu": "1", "y/gpu": "1", "y/nic": "1"}, id="another"
        ),
    ],
)
def test_a_name_whose_mapping_changed_since_leaves_the_others_their_note(
    changed: Object, held: Object
) -> None:
    one = accelerator("one", "x/gpu", alsoRequest=[{"resource": "y/nic", "per": "Container"}])
    before, then = index(one, accelerator("two", "x/mem")), index(one, changed)
    limits = {"accelbind.dev/one": "1", "accelbind.dev/two": "1"}
    after = mutated(pod(container("app", limits)), before, Policy())
    back = ["one", "two"] if "y/gpu" in held else ["one"]
    after = set_again(after, {f"accelbind.dev/{name}": "1" for name in back})
    again = mutated(after, then, Policy())
    assert first(again)["resources"]["limits"] == {"x/mem": "1"} | held


def test_names_of_another_mode_are_refused_in_any_order() -> None:
    for once, later in (("nlb0", "devel"), ("devel", "nlb0")):
        result = judge(set_again(mutated(asking(ours(**{once: 1}))), ours(**{later: 1})))
        assert isinstance(result, Refused)
        assert "resources of different modes are requested" in result.message


# Any pod, any mappings, any mutator that sets names where they are missing

DOMAINS = ("fpga.intel.com", "f.example")
FPGA_NAMES = [f"{DOMAINS[0]}/n{n}" for n in range(4)]
LOOKS_PHYSICAL = "region-abcdef12"
ACCELERATORS = [*[f"n{n}" for n in range(4)], LOOKS_PHYSICAL]
NAMES = [
    *FPGA_NAMES,
    *[f"{DOMAINS[1]}/n{n}" for n in range(2)],
    *[f"accelbind.dev/{name}" for name in ACCELERATORS],
]
REGIONS = [REGION, REGION.replace(*DOMAINS)]
TARGETS = ["x/gpu", "x/mem", "x/nic"]
few = st.integers(0, 3)


@st.composite
def mappings(draw: st.DrawFn) -> MappingIndex:
    made = []
    for n in range(4):
        interface = draw(st.sampled_from([ARRIA, ARRIA, STRATIX]))
        mode = draw(st.sampled_from(["region", "region", "af", "regiondevel"]))
        if mode == "regiondevel":
            made.append(region(f"n{n}", interface=interface))
        else:
            afu = draw(st.sampled_from([NLB0, NLB3]))
            made.append(function(f"n{n}", mode, interface=interface, afu=afu))
    for n, name in enumerate(ACCELERATORS):
        target = {"resource": draw(st.sampled_from(TARGETS)), "count": draw(st.integers(1, 2))}
        others = [each for each in TARGETS if each != target["resource"]]
        per = st.fixed_dictionaries(
            {"resource": st.sampled_from(others), "per": st.sampled_from(["Unit", "Container"])}
        )
        spec: Any = {
            "alsoRequest": st.lists(per, max_size=2, unique_by=lambda each: str(each["resource"])),
            "env": st.sampled_from([[], [{"name": "E", "value": "1"}], [{"name": f"E{n}"}]]),
            "nodeSelector": st.sampled_from([{}, {}, {"gpu": "a"}, {"gpu": "b"}]),
            "tolerations": st.sampled_from([[], [TAINT]]),
            "runtimeClassName": st.sampled_from(["", "", "nvidia"]),
        }
        given_spec = {name: draw(each) for name, each in spec.items()}
        for each in given_spec["env"]:
            each.setdefault("value", "x")
        if not given_spec["runtimeClassName"]:
            del given_spec["runtimeClassName"]
        made.append(accelerator(name, "", target=target, **copy.deepcopy(given_spec)))
    return index(*made)


@dataclass(frozen=True)
class SetIfAbsent:
    """A mutator that sets a default where a container has no value, as LimitRanger does."""

    defaults: dict[str, int]
    parts: tuple[str, ...]
    concerns: str
    """The beginning of the names of its containers."""

    def apply(self, obj: Object, value: Callable[[int | None, int], int | None]) -> Object:
        """The pod with values that a function makes of a container's and the default."""
        after = copy.deepcopy(obj)
        for one in all_containers(after):
            if one["name"].startswith(self.concerns):
                for part in self.parts:
                    amounts = one["resources"][part]
                    for key, default in self.defaults.items():
                        own = int(amounts[key]) if key in amounts else None
                        amounts[key] = str(value(own, default))
        return after

    def set(self, obj: Object) -> Object:
        return self.apply(obj, lambda own, default: default if own is None else own)

    def set_at_least(self, obj: Object) -> Object:
        """The same, but a smaller value is replaced: in both parts, as they must be equal."""
        after = self.apply(obj, lambda own, default: default if own is None else max(own, default))
        for one in all_containers(after):
            was = next(each for each in all_containers(obj) if each["name"] == one["name"])
            limits, requests = one["resources"]["limits"], one["resources"]["requests"]
            for key in self.defaults.keys() & was["resources"]["limits"].keys():
                limits[key] = requests[key] = max(limits[key], requests[key])
        return after


def all_containers(obj: Object) -> list[Object]:
    return [*obj["spec"]["containers"], *obj["spec"]["initContainers"]]


@st.composite
def mutators(draw: st.DrawFn) -> SetIfAbsent:
    defaults = draw(st.dictionaries(st.sampled_from(NAMES), few, min_size=1, max_size=3))
    parts = draw(st.sampled_from([("limits", "requests")] * 3 + [("limits",), ("requests",)]))
    return SetIfAbsent(defaults, parts, draw(st.sampled_from(["", "", "app", "init", "app-1"])))


@st.composite
def pods(draw: st.DrawFn) -> Object:
    keys = st.sampled_from([*NAMES, *NAMES, *FPGA_NAMES, *REGIONS, AF_NLB0, *TARGETS, "cpu"])
    values = st.sampled_from(["own", "1", "x"])
    variables = st.sampled_from(["A", "E", "E0"])
    own = st.builds(lambda name, value: {"name": name, "value": value}, variables, values)
    envs = st.one_of(
        st.none(), st.lists(own, max_size=2, unique_by=lambda each: each["name"]), st.just(pair(1))
    )

    def one(name: str, **more: Any) -> Object:
        limits = draw(st.dictionaries(keys, few.map(str), max_size=3))
        env = draw(envs)
        if env == pair(1):
            limits.setdefault(draw(st.sampled_from(REGIONS)), "1")
        return container(name, limits, env=env, **more)

    init = [one("init"), *([one("init-side", restartPolicy="Always")] if draw(few) else [])]
    made = pod(one("app"), *([one("app-1")] if draw(few) else []), init=init)
    if draw(st.booleans()):
        made["spec"]["nodeSelector"] = {"gpu": "a"}
    if draw(st.booleans()):
        made["spec"]["tolerations"] = [TAINT]
    return made


def comparable(obj: Object, before: Object) -> Any:
    """A pod without the order of what was added: numbers of functions, variables, tolerations."""
    after = copy.deepcopy(obj)
    after["metadata"] |= {"annotations": note_of(obj)}
    for one, was in zip(all_containers(after), all_containers(before), strict=True):
        env: list[Object] = one.pop("env", None) or []
        own = env[: len(was.get("env") or ())]
        added = [(each["name"], each.get("value")) for each in env[len(own) :]]
        pairs = {name[5:]: value for name, value in added if name.startswith("FPGA_")}
        functions = Counter(
            (value, pairs[name.replace("REGION", "AFU")])
            for name, value in pairs.items()
            if name.startswith("REGION")
        )
        variables = {each for each in added if not each[0].startswith("FPGA_")}
        one["env"] = (own, functions, variables)
    tolerations = after["spec"].pop("tolerations", [])
    after["spec"]["tolerations"] = {json.dumps(each, sort_keys=True) for each in tolerations}
    return after


def brings_back(mutator: SetIfAbsent, obj: Object) -> bool:
    """Whether it sets only names that the containers requested, and no larger values."""
    concerned = [
        each["resources"]["limits"]
        for each in all_containers(obj)
        if each["name"].startswith(mutator.concerns)
    ]
    return all(
        int(limits.get(key, -1)) >= value
        for key, value in mutator.defaults.items()
        for limits in concerned
    )


@given(pods(), mappings(), mutators(), st.sampled_from([4, 64]), st.sampled_from([4, 256]))
def test_it_makes_no_difference_whether_a_default_is_set_before_or_after_the_webhook(
    before: Object, known: MappingIndex, mutator: SetIfAbsent, max_units: int, most: int
) -> None:
    policy = Policy(domains=DOMAINS, max_units=max_units, guard=("x/*",))
    with patch.object(mutating, "MAX_POD_UNITS", most):
        check_called_again(before, known, mutator, policy)


def check_called_again(
    before: Object, known: MappingIndex, mutator: SetIfAbsent, policy: Policy
) -> None:
    once = admitted(before, known, policy)
    assume(once is not None)
    assert once is not None
    wanted = admitted(mutator.set_at_least(before), known, policy)
    again = mutator.set(once)
    assert mutator.set(again) == again
    made = admitted(again, known, policy)
    event(f"refused: {made is None}")
    assert (made is None) == (wanted is None), (judge(again, known=known, policy=policy), again)
    if made is None or wanted is None:
        return
    assert comparable(made, before) == comparable(wanted, before)
    assert isinstance(judge(made, known=known, policy=policy), Unchanged)
    namespace = known.namespace("default")
    assert guard(decode(made), namespace, policy) == guard(decode(wanted), namespace, policy)
    if brings_back(mutator, before):
        event("only brings names back")
        assert mutator.set_at_least(before) == mutator.set(before)
        assert made == wanted == once
