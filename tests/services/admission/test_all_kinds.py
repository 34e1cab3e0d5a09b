"""Names of all kinds in one pod, other webhooks after ours, and the guard at the end.

What a patch and the guard do is compared with what names stand for, counted by the tests.
"""

import copy
import json
from collections import Counter
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from services.admission.guard import guard
from services.admission.mutate import Patched, Policy, Refused, Unchanged
from services.mappings.model import Resolution
from tests.services.admission import test_accelerators as accelerators
from tests.services.building import (
    AF_NLB0,
    NLB0,
    NLB3,
    REGION,
    Object,
    apply,
    container,
    decode,
    note_of,
    pod,
)

DOMAIN = "accelbind.dev/"
POLICY = Policy(guard=("nvidia.com/*", "a/*", "rdma/hca"), max_units=6)
NOTE = "accelbind.dev/requested"
NAMES = [
    DOMAIN + name
    for name in (
        *("gpu-small", "gpu-same", "gpu-rdma", "nic", "tier-a", "tier-b"),
        *("h100", "other-h100", "a100", "nvidia", "kata"),
    )
]
OTHERS = [accelerators.MIG, accelerators.RDMA, "a/x", "cpu"]
PLACEMENT = ("nodeSelector", "tolerations", "runtimeClassName")
FPGA = [f"fpga.intel.com/{name}" for name in ("gpu-small", "nlb3", "nlb0-af")]
PHYSICAL = [REGION, AF_NLB0]
GUARDED = [accelerators.MIG, accelerators.RDMA, "nvidia.com/gpu", "a/x", "a/y", "a/b"]
ENV = [{"name": "TIER", "value": "own"}, {"name": "TIER", "value": "a"}, {"name": "A"}]
few = st.sampled_from(["0", "1", "2"])


@st.composite
def containers(draw: st.DrawFn, name: str) -> Object:
    keys = st.sampled_from(NAMES + FPGA + FPGA + PHYSICAL + OTHERS)
    limits = draw(st.dictionaries(keys, few, max_size=3))
    env = draw(st.lists(st.sampled_from(ENV), max_size=1))
    return container(name, limits, requests=dict(limits), env=copy.deepcopy(env))


@st.composite
def pods(draw: st.DrawFn) -> Object:
    made = pod(*[draw(containers(name)) for name in "ab"], init=[draw(containers("init"))])
    made["metadata"]["annotations"] = {}
    if not draw(st.integers(0, 9)):
        del made["metadata"]
    spec: Any = {
        "nodeSelector": draw(st.sampled_from([None, {}, {"b": "c"}, {"x": "y"}])),
        "tolerations": draw(st.sampled_from([None, [], [accelerators.TAINT]])),
        "runtimeClassName": draw(st.sampled_from([None, "nvidia"])),
    }
    made["spec"] |= {key: value for key, value in spec.items() if value is not None}
    return made


def change(data: st.DataObject, obj: Object) -> None:
    """Do to a pod what a second webhook may do, whatever it is."""
    spec = obj["spec"]
    one = data.draw(st.sampled_from([*spec["containers"], *spec["initContainers"]]))
    match data.draw(st.sampled_from(["names", "guarded", "env", "selector", "note", "more"])):
        case "names":
            added = data.draw(st.dictionaries(st.sampled_from(NAMES + FPGA), few, max_size=2))
            for part in ("limits", "requests"):
                one["resources"][part].update(added)
        case "guarded":
            key, amount = data.draw(st.sampled_from(GUARDED)), data.draw(few)
            for part in ("limits", "requests"):
                one["resources"][part][key] = amount
        case "env":
            one["env"] = [{"name": "TIER", "value": data.draw(st.sampled_from("ab"))}]
        case "selector":
            spec["nodeSelector"] = data.draw(st.sampled_from([{}, {"gpu/product": "A100"}]))
        case "note":
            forged = data.draw(st.dictionaries(st.sampled_from(NAMES), st.integers(-1, 9)))
            annotations = obj.setdefault("metadata", {}).setdefault("annotations", {})
            annotations[NOTE] = json.dumps({one["name"]: forged})
        case "more":
            spec["containers"].append(data.draw(containers(f"more-{len(spec['containers'])}")))


def all_containers(obj: Object) -> list[Object]:
    return [*obj["spec"]["containers"], *obj["spec"]["initContainers"]]


def resolution(key: str) -> Resolution:
    known = accelerators.KNOWN.namespace("default").accelerators
    return known.by_name[key.removeprefix(DOMAIN)].resolution


def amounts(limits: Object) -> Counter[str]:
    """What a container's limits come to, by the mappings; without FPGAs."""
    total: Counter[str] = Counter()
    once: dict[str, int] = {}
    for key, count in limits.items():
        if not key.startswith(DOMAIN):
            total[key] += 0 if key.startswith("fpga.intel.com/") else int(count)
            continue
        found = resolution(key)
        total[found.resource] += int(count) * found.count
        for also in found.effects.also if found.effects and int(count) else ():
            if also.per == "Unit":
                total[also.resource] += int(count) * also.count
            else:
                once[also.resource] = max(also.count, once.get(also.resource, 0))
    return total + Counter(once)


def units(one: Object) -> Counter[str]:
    """How many units of each physical name of FPGAs a container's limits come to."""
    found: Counter[str] = Counter()
    for key, count in one["resources"]["limits"].items():
        if key in (*FPGA, *PHYSICAL):
            found[key if key in PHYSICAL else AF_NLB0 if key.endswith("-af") else REGION] += int(
                count
            )
    return +found


def spelled(one: Object) -> Counter[str]:
    """The AFU IDs that a container's variables name."""
    env = one.get("env") or ()
    return Counter(each["value"] for each in env if each["name"].startswith("FPGA_AFU_"))


def wanted(one: Object) -> Counter[str]:
    """The AFU IDs that its names ask to be programmed."""
    limits = one["resources"]["limits"]
    return +Counter({NLB0: int(limits.get(FPGA[0], 0)), NLB3: int(limits.get(FPGA[1], 0))})


def bare(obj: Object) -> Object:
    """A pod without what ours may change."""
    spec = {key: value for key, value in obj["spec"].items() if key not in PLACEMENT}
    for kind in ("containers", "initContainers"):
        spec[kind] = [each | {"resources": None, "env": None} for each in spec[kind]]
    return obj | {"spec": spec, "metadata": obj.get("metadata", {}) | {"annotations": None}}


def check_patched(before: Object, after: Object) -> None:
    """Check that a patch changed nothing but what mappings may, and leaves nothing to do."""
    assert isinstance(accelerators.judge(after, policy=POLICY), Unchanged)
    assert bare(after) == bare(before)
    for one, other in zip(all_containers(before), all_containers(after), strict=True):
        assert not {*NAMES, *FPGA} & {*other["resources"]["limits"]}
        assert units(other) == units(one)
        own = one.get("env") or []
        assert (other.get("env") or [])[: len(own)] == own
        assert spelled(other) == spelled(one) + wanted(one)
    spec, was = after["spec"], before["spec"]
    assert spec.get("nodeSelector", {}).items() >= was.get("nodeSelector", {}).items()
    known = was.get("tolerations", [])
    assert spec.get("tolerations", [])[: len(known)] == known


def within_names(obj: Object) -> bool:
    """Whether all that a pod holds of guarded resources follows from its note."""
    noted = note_of(obj)
    selector = obj["spec"].get("nodeSelector", {})
    for one in all_containers(obj):
        limits = {key: int(n) for key, n in one["resources"]["limits"].items() if key in GUARDED}
        names = {key: n for key, n in noted.get(one["name"], {}).items() if key in NAMES}
        if not limits:
            continue
        if any(n < 0 for n in names.values()) or sum(names.values()) > POLICY.max_units:
            return False
        if Counter(limits) - amounts(names):
            return False
        for key in filter(names.get, names):  # no unit, no selector
            effects = resolution(key).effects
            labels = effects.node_selector if effects else ()
            also = {each.resource for each in effects.also} if effects else set()
            holds = any(limits.get(each) for each in {resolution(key).resource, *also})
            if holds and not selector.items() >= dict(labels).items():
                return False
    return True


@given(st.data())
def test_only_what_mappings_say_changes_and_the_guard_admits_what_follows_from_names(
    data: st.DataObject,
) -> None:
    made = data.draw(pods())
    for step in range(data.draw(st.integers(1, 4))):
        result = accelerators.judge(made, policy=POLICY)
        if isinstance(result, Refused):
            return
        if isinstance(result, Patched):
            before, made = made, apply(made, result)
            check_patched(before, made)
            for one, other in zip(all_containers(before), all_containers(made), strict=True):
                counted = amounts(other["resources"]["limits"])
                assert step or +counted == +amounts(one["resources"]["limits"])
        mappings = accelerators.KNOWN.namespace("default")
        refused = guard(decode(made), mappings, POLICY)
        if contradict(made):
            return
        event(f"within names: {within_names(made)}")
        assert (refused is None) == within_names(made), refused
        change(data, made)


def contradict(obj: Object) -> bool:
    """Whether names of a note set a variable differently: the guard refuses that too."""
    noted = note_of(obj)
    for one in all_containers(obj):
        own = {each["name"] for each in one.get("env") or ()}
        names = +Counter(noted.get(one["name"], {}))
        if {DOMAIN + "tier-a", DOMAIN + "tier-b"} <= names.keys() and "TIER" not in own:
            return True
    return False
