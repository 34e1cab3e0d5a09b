"""Any pod, other webhooks after ours, and the guard at the end.

What a patch and the guard do is compared with what names stand for, counted by the tests.
"""

from collections import Counter
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from services.admission.guard import guard
from services.admission.mutate import Patched, Policy, Refused
from services.mappings.index import MappingIndex
from services.mappings.model import Resolution
from tests.services.admission.test_called_again import (
    ACCELERATORS,
    DOMAINS,
    FPGA_NAMES,
    TARGETS,
    all_containers,
    mappings,
    pods,
)
from tests.services.building import Object, apply, decode, judge, note_of, with_note

OURS = "accelbind.dev/"
POLICY = Policy(domains=DOMAINS, guard=("x/*",), max_units=6)
NAMES = [OURS + name for name in ACCELERATORS]
few = st.sampled_from(["0", "1", "2"])


def changed(data: st.DataObject, obj: Object) -> Object:
    """A pod after what a second webhook may do to it, whatever that is."""
    one = data.draw(st.sampled_from(all_containers(obj)))
    match data.draw(st.sampled_from(["names", "guarded", "env", "selector", "note"])):
        case "names":
            added = data.draw(st.dictionaries(st.sampled_from(NAMES + FPGA_NAMES), few, max_size=2))
            for part in ("limits", "requests"):
                one["resources"][part].update(added)
        case "guarded":
            key, amount = data.draw(st.sampled_from(TARGETS)), data.draw(few)
            for part in ("limits", "requests"):
                one["resources"][part][key] = amount
        case "env":
            one["env"] = [{"name": "E", "value": data.draw(st.sampled_from("1x"))}]
        case "selector":
            obj["spec"]["nodeSelector"] = data.draw(st.sampled_from([{}, {"gpu": "b"}]))
        case "note":
            forged = data.draw(st.dictionaries(st.sampled_from(NAMES), st.integers(-1, 9)))
            return with_note(obj, {one["name"]: forged})
    return obj


class Meaning:
    """What names of accelerators stand for, by the mappings."""

    def __init__(self, known: MappingIndex) -> None:
        self._table = known.namespace("default").accelerators

    def of(self, key: str) -> Resolution:
        return self._table.by_name[key.removeprefix(OURS)].resolution

    def amounts(self, limits: Object) -> Counter[str]:
        """What a container's limits come to, without FPGAs."""
        total: Counter[str] = Counter()
        once: dict[str, int] = {}
        for key, count in limits.items():
            if not key.startswith(OURS):
                total[key] += 0 if key.startswith(DOMAINS) else int(count)
                continue
            found = self.of(key)
            total[found.resource] += int(count) * found.count
            for also in found.effects.also if found.effects and int(count) else ():
                if also.per == "Unit":
                    total[also.resource] += int(count) * also.count
                else:
                    once[also.resource] = max(also.count, once.get(also.resource, 0))
        return total + Counter(once)

    def covers(self, obj: Object) -> bool:
        """Whether all that a pod holds of guarded resources follows from its note."""
        selector = obj["spec"].get("nodeSelector", {})
        for one in all_containers(obj):
            limits = {k: int(n) for k, n in one["resources"]["limits"].items() if k in TARGETS}
            names = self._noted(obj, one)
            if not limits:
                continue
            if any(n < 0 for n in names.values()) or sum(names.values()) > POLICY.max_units:
                return False
            if Counter(limits) - self.amounts(names):
                return False
            for key in filter(names.get, names):  # no unit, no selector
                effects = self.of(key).effects
                labels = effects.node_selector if effects else ()
                also = {each.resource for each in effects.also} if effects else set()
                holds = any(limits.get(each) for each in {self.of(key).resource, *also})
                if holds and not selector.items() >= dict(labels).items():
                    return False
        return True

    def contradicts(self, obj: Object) -> bool:
        """Whether names of a note set a variable differently: the guard refuses that too."""
        for one in all_containers(obj):
            own = {each["name"] for each in one.get("env") or ()}
            found: dict[str, set[str]] = {}
            for key in +Counter(self._noted(obj, one)):
                effects = self.of(key).effects
                for name, value in effects.env if effects else ():
                    found.setdefault(name, set()).add(value)
            if any(len(values) > 1 for name, values in found.items() if name not in own):
                return True
        return False

    def _noted(self, obj: Object, one: Object) -> dict[str, Any]:
        noted = note_of(obj).get(one["name"], {})
        return {key: n for key, n in noted.items() if key in NAMES}


@given(pods(), mappings(), st.data())
def test_amounts_are_those_of_names_and_the_guard_admits_what_follows_from_them(
    made: Object, known: MappingIndex, data: st.DataObject
) -> None:
    meaning = Meaning(known)
    for step in range(data.draw(st.integers(1, 4))):
        result = judge(made, known, POLICY)
        if isinstance(result, Refused):
            return
        if isinstance(result, Patched):
            before, made = made, apply(made, result)
            for one, other in zip(all_containers(before), all_containers(made), strict=True):
                counted = meaning.amounts(other["resources"]["limits"])
                assert step or +counted == +meaning.amounts(one["resources"]["limits"])
        refused = guard(decode(made), known.namespace("default"), POLICY)
        if meaning.contradicts(made):
            return
        event(f"within names: {meaning.covers(made)}")
        assert (refused is None) == meaning.covers(made), refused
        made = changed(data, made)
