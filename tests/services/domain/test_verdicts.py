"""A memory of verdicts, held against judging anew."""

import gc
import json
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from services.domain import verdicts
from services.domain.errors import InvalidReview
from services.domain.mutation import Patched, Policy, Refused, Unchanged
from services.domain.verdicts import MAX_REMEMBERED, Memory, judge
from tests.services.domain.building import (
    ARRIA,
    NLB3,
    REGION,
    Object,
    container,
    decode,
    function,
    index,
    pair,
    pod,
    usual,
)
from tests.services.domain.test_mutation_properties import pods

LOGICAL = "fpga.intel.com/"
POLICY = Policy()
MAPPINGS = usual()


class Counting:
    """A memory, and how often it had to judge anew."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, size: int = 4) -> None:
        self.memory = Memory(size)
        self.judged = 0
        monkeypatch.setattr(verdicts, "judge", self._judge)

    def _judge(self, *args: Any) -> verdicts.Verdict:
        self.judged += 1
        return judge(*args)

    def ask(self, obj: Object, **other: Any) -> verdicts.Verdict:
        mappings, policy = other.get("mappings", MAPPINGS), other.get("policy", POLICY)
        return self.memory.judge(decode(obj), mappings, policy)

    def news(self, obj: Object, **other: Any) -> bool:
        """Whether this pod had to be judged anew."""
        before = self.judged
        self.ask(obj, **other)
        return self.judged > before


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


def asking(name: str = "app", count: int = 1, env: list[Object] | None = None) -> Object:
    return container(name, {"cpu": "1", LOGICAL + "nlb0": str(count)}, env=env)


def test_a_verdict_comes_with_its_patch_and_what_the_audit_says() -> None:
    verdict = judge(decode(pod(asking())), MAPPINGS, POLICY)
    assert isinstance(verdict.result, Patched)
    assert json.loads(verdict.patch) == verdict.result.operations
    assert verdict.audit == {"rewrites": f"app: fpga.intel.com/nlb0=1 as {REGION}"}


def test_a_refusal_comes_with_its_codes_each_once() -> None:
    limits = {LOGICAL + "x": "1", LOGICAL + "y": "1", LOGICAL + "z": "0.5"}
    verdict = judge(decode(pod(container("app", limits))), MAPPINGS, POLICY)
    assert isinstance(verdict.result, Refused)
    assert verdict.patch == b""
    assert verdict.audit == {"reason": "invalid-quantity,unknown-name"}


def test_a_pod_that_stays_as_it_is_has_nothing_to_note() -> None:
    verdict = judge(decode(pod(container("app"))), MAPPINGS, POLICY)
    assert isinstance(verdict.result, Unchanged)
    assert (verdict.patch, verdict.audit) == (b"", None)


def test_a_pod_of_the_same_template_is_not_judged_again(counting: Counting) -> None:
    one = pod(asking(env=[{"name": "A", "value": "a"}]))
    other = pod(asking(env=[{"name": "B", "valueFrom": {}}, {"name": "C"}]), container("more"))
    other["metadata"]["name"] = "other"
    other["metadata"]["labels"] = {"x": "y"}
    first = counting.ask(one)
    assert counting.ask(other) is first
    assert counting.judged == 1
    assert len(counting.memory) == 1


@pytest.mark.parametrize(
    "other",
    [
        pod(asking(count=2)),
        pod(asking("other")),
        pod(container("first"), asking()),
        pod(container("app"), init=[asking()]),
        pod(asking(env=[{"name": "A"}])),
        pod(asking(env=pair(1))),
        pod(asking(env=[{"name": "A", "value": "\\"}])),
        pod(asking(), annotations={}),
        pod(asking(), annotations={"accelbind.dev/requested": "{}"}),
        pod(asking(), annotations={"kubernetes.io/config.mirror": "x"}),
        {"spec": pod(asking())["spec"]},
        pod(container("app", {"cpu": "1", LOGICAL + "nlb3": "1"})),
        pod(container("app", {"cpu": "1", LOGICAL + "nlb0": "1"}, requests={})),
        pod(container("app", {}, requests={"cpu": "1", LOGICAL + "nlb0": "1"})),
        pod(asking(), asking("second")),
    ],
)
def test_whatever_matters_is_judged_anew(counting: Counting, other: Object) -> None:
    assert counting.news(pod(asking()))
    assert counting.news(other)
    assert not counting.news(pod(asking()))
    assert not counting.news(other)


def test_sidecars_are_not_taken_for_init_containers(counting: Counting) -> None:
    app = container("app", {LOGICAL + "nlb3": "1"})
    assert counting.news(pod(app, init=[asking("setup")]))
    verdict = counting.ask(pod(app, init=[asking("setup") | {"restartPolicy": "Always"}]))
    assert isinstance(verdict.result, Patched)


def test_mappings_policies_and_namespaces_are_kept_apart(counting: Counting) -> None:
    obj = pod(asking())
    assert counting.news(obj)
    assert counting.news(obj, mappings=usual())
    assert counting.news(obj, mappings=MAPPINGS)
    strict = Policy(max_units=1)
    assert counting.news(obj, policy=strict)
    assert not counting.news(obj, policy=strict)
    elsewhere = index(function("nlb0", "af", namespace="elsewhere")).namespace("elsewhere")
    assert counting.news(obj, mappings=elsewhere)
    assert not counting.news(obj, policy=strict)
    assert len(counting.memory) == 2


def test_what_is_oldest_is_forgotten_first(counting: Counting) -> None:
    for n in range(5):
        assert counting.news(pod(asking(f"c{n}")))
    assert len(counting.memory) == 4
    assert not counting.news(pod(asking("c1")))
    assert counting.news(pod(asking("c0")))
    assert counting.news(pod(asking("c1")))


def test_a_verdict_that_was_renewed_is_young_again(counting: Counting) -> None:
    for n in range(4):
        counting.ask(pod(asking(f"c{n}")))
    assert counting.news(pod(asking("c0")), mappings=(newer := usual()))
    assert counting.news(pod(asking("c4")))
    assert not counting.news(pod(asking("c0")), mappings=newer)
    assert counting.news(pod(asking("c1")))


def test_a_memory_keeps_no_mappings_alive() -> None:
    memory = Memory()
    mappings = usual()
    memory.judge(decode(pod(asking())), mappings, POLICY)
    before = [one for one in gc.get_objects() if one is mappings]
    assert len(before) == 1
    del before, mappings
    gc.collect()
    ((kept, _, _),) = memory._known.values()
    assert kept() is None


@pytest.mark.parametrize(
    "big",
    [
        pod(asking("x" * MAX_REMEMBERED)),
        pod(asking(env=[{"name": "FPGA_LOG", "value": "x" * MAX_REMEMBERED}])),
        pod(asking(), annotations={"accelbind.dev/requested": "x" * MAX_REMEMBERED}),
        pod(container("app", {LOGICAL + "nlb0": "1", "x" * MAX_REMEMBERED: "1"})),
        pod(*[asking(f"c{n}", 64) for n in range(2)]),
    ],
)
def test_what_is_big_is_not_remembered(counting: Counting, big: Object) -> None:
    assert counting.news(big)
    assert counting.news(big)
    assert len(counting.memory) == 0


def test_many_big_pods_stay_within_bounds() -> None:
    memory = Memory()
    for n in range(1000):
        obj = pod(asking(f"c{n}" + "x" * 4000), annotations={"a": "b"})
        memory.judge(decode(obj), MAPPINGS, POLICY)
    assert len(memory) == 256


def test_an_env_that_can_not_be_read_is_no_verdict(counting: Counting) -> None:
    broken = pod(asking())
    broken["spec"]["containers"][0]["env"] = "FPGA_"
    for _ in range(2):
        with pytest.raises(InvalidReview):
            counting.ask(broken)
    assert len(counting.memory) == 0


SHARED = Memory()


@settings(max_examples=150)
@given(st.lists(pods(), min_size=1, max_size=3))
def test_a_memory_says_what_judging_anew_would(several: list[Object]) -> None:
    """All examples share one memory, so whatever `_question` forgot would be confused here."""
    for obj in several:
        read = decode(obj)
        known = len(SHARED)
        remembered = SHARED.judge(read, MAPPINGS, POLICY)
        event("new" if len(SHARED) > known else "known, or full")
        assert remembered == judge(read, MAPPINGS, POLICY)


def test_a_forged_function_is_refused_however_often_it_comes(counting: Counting) -> None:
    good = pod(container("app", {REGION: "1"}, env=pair(1)))
    forged = pod(container("app", {REGION: "1"}, env=pair(1, ARRIA, NLB3[::-1])))
    for _ in range(3):
        assert isinstance(counting.ask(good).result, Unchanged)
        assert isinstance(counting.ask(forged).result, Refused)
