"""Whether the container runtime calls the OCI hook."""

from contextlib import nullcontext

import pytest

from services.containers.hook_starts import FORGET_SECONDS, HookStarts, check_nodes
from services.containers.identity import ContainerIdentity
from services.kubelet.values import Entry
from services.process.errors import HookMissing

MINE = frozenset({ContainerIdentity("uid", "c")}), "r"
OTHER = frozenset({ContainerIdentity("uid", "other")}), "r"
SECOND = MINE[0], "r2"
SHARED = MINE[0] | {ContainerIdentity("uid", "init")}, "r"
HOOK = None
"""A call of the hook, among starts that were allowed."""


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def may_start(starts: HookStarts) -> bool:
    try:
        starts.check(*MINE, ["dfl-fme.0"])
    except HookMissing:
        return False
    return True


@pytest.mark.parametrize(
    ("before", "seconds", "may"),
    [
        ([], 0, True),
        ([MINE], 0, False),
        ([MINE], FORGET_SECONDS - 10, False),
        ([MINE], FORGET_SECONDS, True),  # it may have failed for another reason
        ([MINE, HOOK], 0, True),
        ([HOOK, MINE], 0, False),
        ([MINE, OTHER, HOOK], 0, True),  # the hook works now
        ([OTHER], 0, True),
        ([SECOND], 0, True),
        ([SHARED], 0, True),
    ],
)
def test_a_start_is_refused_if_no_hook_was_called_since_the_last_one(
    before: list[tuple[frozenset[ContainerIdentity], str] | None], seconds: float, *, may: bool
) -> None:
    clock = Clock()
    starts = HookStarts(clock)
    for each in before:
        if each is HOOK:
            starts.called()
        else:
            starts.allow(*each)
    clock.now += seconds
    assert may_start(starts) is may


def test_a_refused_start_forgets_the_other_resources_of_its_container() -> None:
    """The kubelet asks for each resource; after one refusal the hook is not called."""
    starts = HookStarts(Clock())
    starts.allow(*MINE)
    starts.withdraw(*SECOND)
    assert may_start(starts)
    starts.allow(*MINE)
    starts.withdraw(*MINE)  # what is refused because no hook was called stays so
    assert not may_start(starts)


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
