"""Which starts the OCI hook has yet to confirm."""

from contextlib import nullcontext

import pytest

from services.containers.hook_starts import FORGET_SECONDS, HookedStart, HookStarts, check_nodes
from services.containers.identity import ContainerIdentity
from services.kubelet.values import Entry
from services.process.errors import HookMissing


def start(
    container: str = "c", resource: str = "r", *, others: tuple[str, ...] = ()
) -> HookedStart:
    names = (container, *others)
    return HookedStart(
        frozenset(ContainerIdentity("uid", name) for name in names),
        resource,
        frozenset({"dfl-fme.0"}),
    )


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def may_start(starts: HookStarts, which: HookedStart) -> bool:
    try:
        starts.check(which)
    except HookMissing:
        return False
    return True


MINE, OTHER = start(), start("other")
SHARED = start("init", others=("c",))


@pytest.mark.parametrize(
    ("allowed", "called", "seconds", "may"),
    [
        ([], [], 0, True),
        ([MINE], [], 0, False),
        ([MINE], [], FORGET_SECONDS - 10, False),
        ([MINE], [], FORGET_SECONDS, True),  # it may have failed for another reason
        ([MINE], ["c"], 0, True),
        ([MINE], ["stranger"], 0, False),
        ([OTHER], [], 0, True),
        ([MINE, OTHER], ["other"], 0, True),  # a later start: the hook works now
        ([start(resource="r2")], [], 0, True),
        ([start(resource="r2"), MINE], ["c"], 0, True),
        ([MINE, SHARED], ["init"], 0, True),
    ],
)
def test_a_start_whose_last_one_was_not_confirmed_is_refused(
    allowed: list[HookedStart], called: list[str], seconds: float, *, may: bool
) -> None:
    clock = Clock()
    starts = HookStarts(clock)
    for each in allowed:
        starts.check(each)
        starts.allow(each)
    for name in called:
        starts.confirm(ContainerIdentity("uid", name))
    clock.now += seconds
    assert may_start(starts, MINE) is may


def test_a_hook_called_before_the_start_confirms_nothing_of_it() -> None:
    starts = HookStarts(Clock())
    starts.allow(OTHER)
    starts.confirm(ContainerIdentity("uid", "other"))
    starts.allow(MINE)
    assert not may_start(starts, MINE)


def test_a_refused_start_forgets_the_other_resources_of_its_container() -> None:
    """The kubelet asks for each resource; after one refusal the hook is not called."""
    starts, second = HookStarts(Clock()), start(resource="r2")
    starts.allow(MINE)
    starts.withdraw(second)
    assert may_start(starts, MINE)
    starts.allow(MINE)
    starts.withdraw(MINE)  # what is refused because it is unconfirmed stays so
    assert not may_start(starts, MINE)


def test_what_is_old_is_forgotten() -> None:
    clock = Clock()
    starts = HookStarts(clock)
    for name in ("a", "b", "c"):
        starts.allow(start(name))
    assert len(starts) == 3
    clock.now += FORGET_SECONDS
    starts.allow(start("d"))
    assert len(starts) == 1


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([()], None),
        ([(), ()], None),
        ([("/dev/dfl-port.0",)], "the kubelet gives it /dev/dfl-port.0 without CDI"),
        ([(), ("/dev/a", "/dev/b")], "the kubelet gives it /dev/a and /dev/b without CDI"),
        ([None], "the kubelet gives it unknown nodes without CDI"),
    ],
)
def test_device_nodes_that_come_without_the_hook_are_refused(
    nodes: list[tuple[str, ...] | None], said: str | None
) -> None:
    allocated = [Entry("u", "c", "r", frozenset({"a"}), each) for each in nodes]
    with nullcontext() if said is None else pytest.raises(HookMissing, match=said):
        check_nodes(allocated)
