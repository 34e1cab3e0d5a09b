"""What was allowed before, while this process runs."""

from dataclasses import replace

import pytest

from services.containers import permission as module
from services.containers.holders import ContainerIdentity
from services.containers.permission import Approvals, Start
from services.containers.wanted import WantedFunctions
from tests.services.cards import REGION

START = Start(REGION, frozenset({"a", "b"}))
C, D = ContainerIdentity("u", "c"), ContainerIdentity("u", "d")
WANTED = WantedFunctions("who", ("f",))
OTHER_STARTS = [replace(START, resource="other/x"), replace(START, devices=frozenset({"a"}))]


def test_an_approval_counts_for_exactly_the_same_start() -> None:
    approvals = Approvals()
    approvals.add(START, {C: WANTED})
    assert approvals.find(C, START) == WANTED
    assert approvals.find(D, START) is None
    assert [approvals.find(C, other) for other in OTHER_STARTS] == [None] * len(OTHER_STARTS)


def test_a_newer_approval_replaces_that_of_the_same_container_and_resource() -> None:
    approvals, newer = Approvals(), WantedFunctions("who", ("g",))
    approvals.add(START, {C: WANTED, D: WANTED})
    for other in reversed(OTHER_STARTS):
        approvals.add(other, {C: newer})
    assert approvals.find(C, START) is None
    assert approvals.find(C, OTHER_STARTS[0]) == approvals.find(C, OTHER_STARTS[1]) == newer
    assert approvals.find(D, START) == WANTED


def test_of_too_many_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_APPROVALS", 2)
    approvals, containers = Approvals(), [ContainerIdentity(uid, "c") for uid in "1213"]
    for each in containers:
        approvals.add(START, {each: WANTED})
    left = {each.pod_uid for each in containers if approvals.find(each, START)}
    assert left == {"1", "3"}
