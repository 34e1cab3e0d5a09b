"""What holds for every pod, however odd."""

import copy
import json
from collections import Counter
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from services.admission.mutate import Patched, Refused, Unchanged
from services.pods.quantity import parse_count
from services.pods.refusals import MAX_MESSAGE, MAX_REFUSALS
from tests.services.building import (
    AF_NLB0,
    ARRIA,
    NLB0,
    NLB3,
    REGION,
    STRATIX,
    STRATIX_REGION,
    Object,
    apply,
    judge,
    pod,
    usual,
)

DOMAIN = "fpga.intel.com/"
LOGICAL = [DOMAIN + name for name in usual().by_name]
NOTE = "accelbind.dev/requested"

REGION_MODE = [
    *(DOMAIN + name for name in ("nlb0", "nlb3", "stratix.nlb3")),
    REGION,
    STRATIX_REGION,
]
AF_MODE = [DOMAIN + "nlb0-af", DOMAIN + "stratix.nlb3-af", AF_NLB0]
OTHER = ["cpu", "memory", "nvidia.com/gpu"]
WRONG = [DOMAIN + "nobody", DOMAIN + "a~b", DOMAIN]

texts = st.text(st.characters(codec="utf-8"), max_size=12)
counts = st.sampled_from(["0", "1", "1", "2", "3", 1, 2.0, "2000m", "1e0"])
wrong_counts = st.sampled_from(["65", "0.5", "-1", "x", None])
variables: st.SearchStrategy[Object] = st.fixed_dictionaries(
    {"name": texts | st.sampled_from(["PATH", "FPGA_LOG", "A~/B"])},
    optional={
        "value": texts | st.sampled_from(["$(PATH)", '"}]', "\u2028"]),
        "valueFrom": st.sampled_from([{"fieldRef": {"fieldPath": "spec.nodeName"}}, {}, None]),
    },
)
wrong_variables: st.SearchStrategy[Object] = st.sampled_from(
    [
        {"name": "FPGA_REGION"},
        {"name": "FPGA_AFU_1", "valueFrom": {}},
        {"name": "FPGA_AFU_9", "value": NLB0},
        {"name": "FPGA_AFU_1", "value": "0" * 32},
    ]
)


@st.composite
def pairs(draw: st.DrawFn, limits: Object) -> list[Object]:
    """Variables such as an earlier pass leaves beside physical names: never too many."""
    made: list[Object] = []
    for interface, key in ((ARRIA, REGION), (STRATIX, STRATIX_REGION)):
        there = parse_count(limits.get(key) or 0)
        afus = [NLB0, NLB3] if interface == ARRIA else [NLB3]
        for afu in draw(st.lists(st.sampled_from(afus), max_size=min(there, 3))):
            number = len(made) // 2 + draw(st.integers(1, 2)) * 10
            made.append({"name": f"FPGA_REGION_{number}", "value": interface})
            made.append({"name": f"FPGA_AFU_{number}", "value": afu})
    return made


@st.composite
def containers(draw: st.DrawFn, *, wild: bool) -> Object:
    """A container; a wild one has everything that may be wrong with it, now and then."""
    made: Object = {"name": draw(st.sampled_from(["a", "b", "c/~", 'd"'])), "image": "i"}
    mode = draw(st.sampled_from([REGION_MODE, REGION_MODE, AF_MODE]))
    keys = [*mode, *OTHER] + ([*REGION_MODE, *AF_MODE, *WRONG] if wild else [])
    quantities = counts | wrong_counts if wild and draw(st.booleans()) else counts
    limits: Any = draw(st.dictionaries(st.sampled_from(keys), quantities, max_size=3))
    kept = {key: limits[key] for key in limits if draw(st.booleans())}
    requests: Object | None = draw(st.sampled_from([dict(limits), dict(limits), kept, None]))
    if wild and requests is not None and draw(st.integers(0, 9)) == 0:
        requests[draw(st.sampled_from(keys))] = draw(quantities)
    if limits or draw(st.booleans()):
        made["resources"] = {"limits": limits or None, "requests": requests, "claims": None}
    env: list[Object] = draw(
        st.lists(variables | wrong_variables if wild else variables, max_size=4)
    )
    if not wild:
        env += draw(pairs(limits))
    made["env"] = draw(st.sampled_from([env, draw(st.permutations(env)), [], None]))
    if draw(st.integers(0, 3)) == 0:
        made["restartPolicy"] = "Always"
    return made


notes = st.none() | st.sampled_from(
    ["", "{}", '{"a":{"fpga.intel.com/nlb0":1}}', '{"x":{}}', '{"a":{"x":-1}}', "[[["]
)


@st.composite
def pods(draw: st.DrawFn) -> Object:
    one = containers(wild=draw(st.integers(0, 3)) == 0)
    made = pod(*draw(st.lists(one, max_size=3)), init=draw(st.lists(one, max_size=2)))
    annotations: Any = {"other": draw(texts)}
    note = draw(notes)
    if note is not None:
        annotations[NOTE] = note
    made["metadata"]["annotations"] = draw(st.sampled_from([annotations, annotations, {}, None]))
    if draw(st.integers(0, 9)) == 0:
        del made["metadata"]
    return made


def all_containers(obj: Object) -> list[Object]:
    return [*obj["spec"].get("initContainers", []), *obj["spec"]["containers"]]


def without_ours(obj: Object) -> Object:
    """The pod without anything that a patch may change."""
    bare = copy.deepcopy(obj)
    for one in all_containers(bare):
        for kind in ("limits", "requests"):
            kept = (one.get("resources") or {}).get(kind) or {}
            for key in [key for key in kept if key.startswith(DOMAIN)]:
                del kept[key]
        one.pop("env", None)
    metadata = bare.pop("metadata", None) or {}
    annotations = metadata.pop("annotations", None) or {}
    annotations.pop(NOTE, None)
    return {"spec": bare["spec"], "metadata": metadata, "annotations": annotations}


def units(one: Object, kind: str) -> Counter[str]:
    """How many units of each physical name a container asks for; logical names count for theirs."""
    counted: Counter[str] = Counter()
    for key, quantity in ((one.get("resources") or {}).get(kind) or {}).items():
        if key.startswith(DOMAIN):
            mapping = usual().by_name.get(key.removeprefix(DOMAIN))
            resource = f"{DOMAIN}{mapping.resolution.resource}" if mapping else key
            counted[resource] += parse_count(0 if quantity is None else quantity)
    return counted


def spelled(one: Object) -> Counter[tuple[str, str]]:
    """The functions that a container's env spells."""
    values = {variable["name"]: variable.get("value") for variable in one.get("env") or ()}
    numbers = [name.removeprefix("FPGA_AFU_") for name in values if name.startswith("FPGA_AFU_")]
    return Counter((values[f"FPGA_REGION_{n}"], values[f"FPGA_AFU_{n}"]) for n in numbers)


def asked(one: Object) -> Counter[tuple[str, str]]:
    """The functions of mode region that a container asks for by logical name."""
    counted: Counter[tuple[str, str]] = Counter()
    for key, quantity in ((one.get("resources") or {}).get("limits") or {}).items():
        mapping = usual().by_name.get(key.removeprefix(DOMAIN))
        if mapping and mapping.resolution.function and quantity is not None:
            counted[mapping.resolution.function] += parse_count(quantity)
    return counted


def check_patched(before: Object, after: Object) -> None:
    assert without_ours(after) == without_ours(before)
    for old, new in zip(all_containers(before), all_containers(after), strict=True):
        old_env, new_env = old.get("env") or [], new.get("env") or []
        assert new_env[: len(old_env)] == old_env
        if not units(old, "limits") and not units(old, "requests"):
            assert new_env == old_env
        else:
            assert spelled(new) == spelled(old) + asked(old)
        assert units(new, "limits") == units(old, "limits")
        requested = units(new, "requests")
        assert requested.keys() == units(old, "requests").keys()
        assert all(units(new, "limits")[key] == count for key, count in requested.items())
        assert not set((new.get("resources") or {}).get("limits") or ()) & set(LOGICAL)
        assert not set((new.get("resources") or {}).get("requests") or ()) & set(LOGICAL)
    note = json.loads(after["metadata"]["annotations"][NOTE])
    assert note.keys() >= {one["name"] for one in all_containers(before) if asked(one)}


@settings(max_examples=200)
@given(pods(), containers(wild=False))
def test_a_patch_changes_little_and_only_once_even_if_others_change_the_pod_after_it(
    before: Object, added: Object
) -> None:
    kept = copy.deepcopy(before)
    result = judge(before)
    event(type(result).__name__)
    assert before == kept
    if isinstance(result, Refused):
        assert 1 <= len(result.refusals) <= MAX_REFUSALS
        assert len(result.message) <= MAX_MESSAGE
        assert result.message.isprintable()
    if not isinstance(result, Patched):
        return
    after = apply(before, result)
    check_patched(before, after)
    assert isinstance(judge(after), Unchanged)
    assert len(result.warnings) <= 4
    assert all(len(warning) <= 120 and warning.isprintable() for warning in result.warnings)
    after["spec"]["containers"].append(added)
    again = judge(after)
    event(f"again {type(again).__name__}")
    if isinstance(again, Patched):
        last = apply(after, again)
        check_patched(after, last)
        assert isinstance(judge(last), Unchanged)
