import pytest

from services.containers.holders import (
    Holder,
    PodRef,
    holders_of_entries,
    may_have_ended,
    of_present_pods,
    pods_of_devices,
    served,
)
from services.kubelet.values import CheckpointEntry, Held

AF = "fpga.intel.com/af-x"
A = {"1": PodRef("ns", "a", "1")}


def entry(uid: str = "1", container: str = "c", *ids: str, resource: str = AF) -> CheckpointEntry:
    return CheckpointEntry(uid, container, resource, frozenset(ids or ("p0",)))


def active(*ids: str, pod: str = "a", container: str = "c", resource: str = AF) -> Held:
    return Held("ns", pod, container, resource, frozenset(ids))


def test_every_entry_of_the_checkpoint_counts() -> None:
    entries = [entry(), entry("1", "init", "p0", "p1"), entry("2", "c", "p2")]
    app, init = Holder("ns", "a", "c"), Holder("ns", "a", "init")
    assert holders_of_entries(entries, A) == {
        (AF, "p0"): (app, init),
        (AF, "p1"): (init,),
        (AF, "p2"): (Holder("", "", "c"),),
    }


def test_devices_of_other_plugins_are_not_ours() -> None:
    other, typed = entry(resource="gpu.example/x"), entry(resource="d.example/x")
    ours = served(["d.example"])
    assert set(holders_of_entries([other, typed, entry()], A, ours)) == {
        ("d.example/x", "p0"),
        (AF, "p0"),
    }
    assert may_have_ended([typed], [active("p0")], ours)
    assert not may_have_ended([other], [], ours)


@pytest.mark.parametrize(
    ("listed", "named", "ended"),
    [
        ([active("p0")], True, False),
        ([active("p0", "p1")], False, True),
        ([active("p0", container="d")], False, True),
        ([active("p0", resource="fpga.intel.com/af-y")], False, True),
        ([], False, True),
    ],
)
def test_equal_devices_in_both_places_name_a_pod(
    listed: list[Held], *, named: bool, ended: bool
) -> None:
    assert pods_of_devices([entry()], listed) == (A if named else {})
    assert may_have_ended([entry()], listed) is ended


@pytest.mark.parametrize(
    ("listed", "present", "counts"),
    [([active("p0")], (), True), ([], ("1",), True), ([active("p1")], ("2",), False)],
)
def test_pods_that_are_neither_listed_nor_present_are_gone(
    listed: list[Held], present: tuple[str, ...], *, counts: bool
) -> None:
    assert of_present_pods([entry()], listed, present) == ((entry(),) if counts else ())


def test_holders_are_named_by_what_is_known_of_them() -> None:
    known, unknown, claim = Holder("n", "p", "c"), Holder("", "", "c"), Holder("n", "", "", "x")
    assert [str(each) for each in (known, unknown, claim)] == [
        "container c of pod n/p",
        "container c",
        "claim n/x",
    ]
