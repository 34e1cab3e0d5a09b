from contextlib import nullcontext
from dataclasses import replace

import pytest

from services.containers.holders import ContainerIdentity
from services.containers.permission import (
    Approvals,
    Enforce,
    Start,
    is_enforced,
    require_mapped_functions,
    require_mapped_resource,
)
from services.containers.wanted import WantedFunctions
from services.devices.model import PluginMode
from services.mappings.index import NamespaceMappings
from services.process.errors import NotMapped
from tests.services.building import (
    AF_NLB0,
    AF_STRATIX_NLB3,
    ARRIA,
    NLB0,
    NLB3,
    REGION,
    STRATIX,
    STRATIX_REGION,
    Object,
    function,
    index,
    region,
)

WHO = 'container "c" of pod default/p'


def mappings(*objects: Object) -> NamespaceMappings:
    return index(*objects).namespace("default")


@pytest.mark.parametrize(
    ("enforce", "modes"),
    [
        (Enforce.AUTO, {PluginMode.REGION, PluginMode.REGIONDEVEL}),
        (Enforce.ALWAYS, {PluginMode.AF, PluginMode.REGION, PluginMode.REGIONDEVEL}),
        (Enforce.NEVER, set()),
    ],
)
def test_mappings_are_asked_where_they_should(enforce: Enforce, modes: set[PluginMode]) -> None:
    assert {mode for mode in PluginMode if is_enforced(enforce, mode)} == modes


@pytest.mark.parametrize(
    ("known", "interface", "is_mapped"),
    [
        ((function("a", "region"), function("b", "region", afu=NLB3)), ARRIA, True),
        ((function("a", "region"), function("b", "region", afu=NLB3)), STRATIX, False),
        ((function("a", "region"), function("b", "af", afu=NLB3)), ARRIA, False),
        ((function("a", "region"),), ARRIA, False),
    ],
)
def test_functions_may_be_had_if_all_are_mapped(
    known: tuple[Object, ...], interface: str, *, is_mapped: bool
) -> None:
    words = r"wants AFU .* no AcceleratorFunction of mode region in"
    with nullcontext() if is_mapped else pytest.raises(NotMapped, match=words):
        require_mapped_functions(
            WantedFunctions(WHO, (NLB0, NLB3, NLB0), interface), mappings(*known)
        )


@pytest.mark.parametrize(
    ("resource", "known", "mode", "missing"),
    [
        (AF_NLB0, function("a", "af"), PluginMode.AF, ""),
        (AF_STRATIX_NLB3, function("a", "af"), PluginMode.AF, "AcceleratorFunction of mode af"),
        (REGION, region("r"), PluginMode.REGIONDEVEL, ""),
        (REGION, function("a", "region"), PluginMode.REGIONDEVEL, "FpgaRegion"),
        (STRATIX_REGION, region("r"), PluginMode.REGIONDEVEL, "FpgaRegion"),
    ],
)
def test_a_resource_may_be_had_if_it_is_mapped(
    resource: str, known: Object, mode: PluginMode, missing: str
) -> None:
    words = f"was given {resource}, and no {missing} in namespace def"
    with pytest.raises(NotMapped, match=words) if missing else nullcontext():
        require_mapped_resource(WHO, resource, mappings(known), mode)


# What was allowed before, while this process runs

START = Start(REGION, frozenset({"a", "b"}))
C, D = ContainerIdentity("u", "c"), ContainerIdentity("u", "d")
WANTED = WantedFunctions(WHO, ("f",))
OTHER_STARTS = [replace(START, resource="other/x"), replace(START, devices=frozenset({"a"}))]


def test_an_approval_counts_for_exactly_the_same_start() -> None:
    approvals = Approvals()
    approvals.add(START, {C: WANTED})
    assert approvals.find(C, START) == WANTED
    assert approvals.find(D, START) is None
    assert [approvals.find(C, other) for other in OTHER_STARTS] == [None] * len(OTHER_STARTS)


def test_a_newer_approval_replaces_that_of_the_same_container_and_resource() -> None:
    approvals, newer = Approvals(), WantedFunctions(WHO, ("g",))
    approvals.add(START, {C: WANTED, D: WANTED})
    for other in reversed(OTHER_STARTS):
        approvals.add(other, {C: newer})
    assert approvals.find(C, START) is None
    assert approvals.find(C, OTHER_STARTS[0]) == approvals.find(C, OTHER_STARTS[1]) == newer
    assert approvals.find(D, START) == WANTED


def test_of_too_many_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.containers.permission.MAX_APPROVALS", 2)
    approvals, containers = Approvals(), [ContainerIdentity(uid, "c") for uid in "1213"]
    for each in containers:
        approvals.add(START, {each: WANTED})
    left = {each.pod_uid for each in containers if approvals.find(each, START)}
    assert left == {"1", "3"}
