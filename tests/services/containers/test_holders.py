"""Which container starts and which have a device, from checkpoint, log folders and PodResources."""

import pytest

from services.containers.holders import (
    ContainerIdentity,
    Holder,
    PodRef,
    candidates,
    holders_of_entries,
    may_have_ended,
    of_present_pods,
    pod_of,
    pods_of_devices,
    pods_of_folders,
    served,
)
from services.kubelet.values import CheckpointEntry, Held
from services.process.errors import NotAllowed

AF = "fpga.intel.com/af-x"
A = {"1": PodRef("ns", "a", "1")}


def entry(*ids: str, container: str = "c", uid: str = "1", resource: str = AF) -> CheckpointEntry:
    return CheckpointEntry(uid, container, resource, frozenset(ids))


def active(*ids: str, container: str = "c", resource: str = AF) -> Held:
    return Held("ns", "a", container, resource, frozenset(ids))


# The container that starts


def test_the_containers_with_exactly_these_devices_are_the_candidates() -> None:
    """An app container reuses the devices of its pod's init container."""
    entries = [
        entry("a", container="too-few"),
        entry("a", "b", "c", container="too-many"),
        entry("a", "b", container="init"),
        entry("a", "b", container="app"),
        entry("a", "b", container="app"),
        entry("a", "b", container="other-resource", resource="fpga.intel.com/region-x"),
    ]
    assert candidates(entries, AF, ["b", "a"]) == (
        ContainerIdentity("1", "app"),
        ContainerIdentity("1", "init"),
    )


@pytest.mark.parametrize("ids", [["a"], []])
def test_devices_that_nobody_holds_are_refused(ids: list[str]) -> None:
    with pytest.raises(NotAllowed, match="the kubelet will try again"):
        candidates([entry("a", "b"), entry()], AF, ids)


def test_a_log_folder_gives_a_pods_namespace_and_name() -> None:
    folders = "kube-system_proxy-x_u1 ns_my.pod-0_u2 lost+found a_b_c_u2 __u3 _x_u3 a_b_u4 c_d_u4"
    pods = pods_of_folders(folders.split())
    assert pods == {
        "u1": PodRef("kube-system", "proxy-x", "u1"),
        "u2": PodRef("ns", "my.pod-0", "u2"),
    }
    assert pod_of([ContainerIdentity("u2", name) for name in "ab"], pods) == pods["u2"]
    refused = {
        ("u4",): 'with the UID "u4" is unknown: .* --pod-logs-dir',
        ("u1", "u2"): 'to the pods "u1" and "u2"',
    }
    for uids, message in refused.items():
        with pytest.raises(NotAllowed, match=message):
            pod_of([ContainerIdentity(uid, "c") for uid in uids], pods)


# The holders of each device


def test_every_entry_of_the_checkpoint_counts() -> None:
    entries = [
        *(entry("p0", container=each) for each in "dbca"),
        entry("p1", container="b"),
        entry("p2", uid="2"),
    ]
    assert holders_of_entries(entries, A) == {
        (AF, "p0"): tuple(Holder("ns", "a", each) for each in "abcd"),
        (AF, "p1"): (Holder("ns", "a", "b"),),
        (AF, "p2"): (Holder("", "", "c"),),
    }


def test_devices_of_other_plugins_are_not_ours() -> None:
    other, typed = (entry("p0", resource=f"{each}.example/x") for each in "gd")
    ours = served(["d.example"])
    assert set(holders_of_entries([other, typed, entry("p0")], A, ours)) == {
        ("d.example/x", "p0"),
        (AF, "p0"),
    }
    assert may_have_ended([typed], [active("p0")], ours)
    assert not may_have_ended([other], [], ours)


@pytest.mark.parametrize(
    ("listed", "is_same"),
    [
        (active("p0"), True),
        (active("p0", "p1"), False),
        (active("p0", container="d"), False),
        (active("p0", resource="fpga.intel.com/af-y"), False),
    ],
)
def test_equal_devices_in_both_places_name_a_pod_and_others_are_gone_without_a_log_folder(
    listed: Held, *, is_same: bool
) -> None:
    stored = (entry("p0"),)
    assert pods_of_devices(stored, [listed]) == (A if is_same else {})
    assert may_have_ended(stored, [listed]) is not is_same
    assert of_present_pods(stored, [listed], ["2"]) == (stored if is_same else ())
    assert of_present_pods(stored, [listed], ["1"]) == stored


def test_holders_are_named_by_what_is_known_of_them() -> None:
    known, unknown, claim = Holder("n", "p", "c"), Holder("", "", "c"), Holder("n", "", "", "x")
    assert [str(each) for each in (known, unknown, claim)] == [
        "container c of pod n/p",
        "container c",
        "claim n/x",
    ]
