"""Containers that get one device, checked against every way in which the kubelet may choose."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.admission import sharing
from services.pods.pod import Container, ContainerRef
from services.pods.reasons import ReviewReason
from tests.services.building import REGION, Object, container, pod, refused

LOGICAL = "fpga.intel.com/"


def asks(name: str, *functions: str, **more: Any) -> Object:
    limits = Counter(f"{LOGICAL}{function}" for function in functions)
    return container(name, {key: str(count) for key, count in limits.items()}, **more)


def test_an_init_and_an_app_container_that_want_different_functions_are_refused() -> None:
    result = refused(pod(asks("app", "nlb3"), init=[asks("setup", "nlb0")]))
    (refusal,) = result.refusals
    assert (refusal.code, refusal.subject) == (ReviewReason.SHARED_DEVICE, "app")
    assert result.message == (
        f'container "app": needs nlb3 in a device of {REGION}, but the kubelet may give it the '
        'device of init container "setup", which needs nlb0: request the same function in both'
    )


def test_no_more_than_eight_conflicts_are_looked_for() -> None:
    init = [asks(f"setup-{n}", ("nlb0", "nlb3")[n % 2]) for n in range(40)]
    result = refused(pod(asks("app", "nlb3"), init=init))
    assert [refusal.code for refusal in result.refusals] == [ReviewReason.SHARED_DEVICE] * 8


def use(name: str, units: int, *wants: str, kind: str = "app") -> sharing.RegionUse:
    """What a container uses of a resource r."""
    ref = ContainerRef(Container(name), f"/{name}", init=kind != "app", sidecar=kind == "sidecar")
    return sharing.RegionUse(ref, {"r": units}, {"r": Counter(("region", want) for want in wants)})


@pytest.mark.parametrize(
    "uses",
    [
        [use("i", 2, "f", "g", kind="init"), use("a", 1)],
        # Of three units two want f and g, and the third may keep the second f.
        [use("i", 2, "f", "f", kind="init"), use("a", 3, "f", "g")],
    ],
)
def test_units_for_any_function_take_what_nobody_wants(uses: list[sharing.RegionUse]) -> None:
    assert list(sharing.conflicts(uses)) == []


@pytest.mark.parametrize(
    ("uses", "pair_of_functions"),
    [
        # the same function is no conflict with itself
        ([use("i", 3, "f", "f", "g", kind="init"), use("a", 2, "f")], ("g", "f")),
        # what is wanted is not named as what is in the way
        ([use("i", 2, "f", "g", kind="init"), use("a", 2, "f", "h")], ("g", "f")),
        # an init container that takes anything leaves what it found
        (
            [use("i", 3, "f", "f", "f", kind="init"), use("j", 1, kind="init"), use("a", 3, "g")],
            ("f", "g"),
        ),
    ],
)
def test_a_conflict_names_what_is_there_and_what_is_wanted(
    uses: list[sharing.RegionUse], pair_of_functions: tuple[str, str]
) -> None:
    (conflict,) = sharing.conflicts(uses)
    assert (conflict.earlier_wants[1], conflict.later_wants[1]) == pair_of_functions
    assert (conflict.earlier, conflict.later) == (uses[0].ref, uses[-1].ref)


FUNCTIONS = ("f", "g", "h")


@dataclass(frozen=True)
class Ask:
    """A container of the model: what it wants in its units, None for anything."""

    kind: str  # init, sidecar or app
    wants: tuple[str | None, ...]


def picks(pool: Sequence[str | None], number: int) -> Iterator[tuple[Counter[str | None], ...]]:
    """Every way to take some devices: what is taken, and what is left, by what is in them."""
    there = Counter(pool)
    kinds = list(there)
    for numbers in product(*[range(there[kind] + 1) for kind in kinds]):
        if sum(numbers) == number:
            taken = Counter(dict(zip(kinds, numbers, strict=True)))
            yield taken, there - taken


def confusion_possible(asks: Sequence[Ask], pool: tuple[str | None, ...] = ()) -> bool:
    """Whether the kubelet can choose devices so that a container gets another's function."""
    if not asks:
        return False
    ask, rest = asks[0], asks[1:]
    wanted = Counter(want for want in ask.wants if want)
    anything = len(ask.wants) - wanted.total()
    for taken, left in picks(pool, min(len(pool), len(ask.wants))):
        brought = Counter({function: n for function, n in taken.items() if function})
        if (brought - wanted).total() > anything:
            return True
        inside: list[str | None] = list((brought | wanted).elements())
        inside += [None] * (len(ask.wants) - len(inside))
        remaining = tuple(left.elements()) + (tuple(inside) if ask.kind == "init" else ())
        if confusion_possible(rest, tuple(sorted(remaining, key=str))):
            return True
    return False


def pods_of(want: st.SearchStrategy[str | None]) -> st.SearchStrategy[list[Ask]]:
    wants = st.lists(want, min_size=1, max_size=3).map(tuple)
    inits = st.lists(
        st.builds(Ask, st.sampled_from(["init", "init", "sidecar"]), wants), max_size=3
    )
    apps = st.lists(st.builds(Ask, st.just("app"), wants), min_size=1, max_size=2)
    return st.builds(lambda first, last: first + last, inits, apps)


@settings(max_examples=250)
@given(pods_of(st.sampled_from(FUNCTIONS)) | pods_of(st.sampled_from([*FUNCTIONS, None])))
@example([Ask("init", ("f", "g")), Ask("app", ("f", None))])
def test_conflicts_are_found_where_confusion_is_possible(asks: list[Ask]) -> None:
    """And only there, if each unit must have a function."""
    uses = [
        use(f"c{n}", len(ask.wants), *filter(None, ask.wants), kind=ask.kind)
        for n, ask in enumerate(asks)
    ]
    found, possible = [*sharing.conflicts(uses)], confusion_possible(asks)
    assert found or not possible
    assert possible or not found or any(None in ask.wants for ask in asks)
