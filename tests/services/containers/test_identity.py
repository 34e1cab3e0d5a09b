"""Which container starts, from checkpoint and log folders."""

from collections.abc import Sequence

import pytest

from services.containers.holders import (
    ContainerIdentity,
    PodRef,
    candidates,
    pod_of,
    pods_of_folders,
)
from services.kubelet.values import CheckpointEntry
from services.process.errors import NotAllowed
from tests.services.cards import REGION


def entry(
    container: str = "c", ids: Sequence[str] = ("a", "b"), *, uid: str = "u", resource: str = REGION
) -> CheckpointEntry:
    return CheckpointEntry(uid, container, resource, frozenset(ids))


def test_the_container_with_exactly_these_devices_is_the_candidate() -> None:
    entries = [
        entry("too-few", ["a"]),
        entry("too-many", ["a", "b", "c"]),
        entry("right"),
        entry("other-resource", resource="fpga.intel.com/region-x"),
    ]
    assert candidates(entries, REGION, ["b", "a"]) == (ContainerIdentity("u", "right"),)


def test_an_init_container_and_the_app_container_that_reuses_its_devices_are_both() -> None:
    entries = [entry("init"), entry("app"), entry("app")]
    assert candidates(entries, REGION, ["a", "b"]) == (
        ContainerIdentity("u", "app"),
        ContainerIdentity("u", "init"),
    )


@pytest.mark.parametrize("ids", [["a"], []])
def test_devices_that_nobody_holds_are_refused(ids: list[str]) -> None:
    with pytest.raises(NotAllowed, match="the kubelet will try again"):
        candidates([entry(), entry(ids=[])], REGION, ids)


def test_a_log_folder_gives_a_pods_namespace_and_name() -> None:
    folders = [
        "kube-system_proxy-x_u1",
        "ns_my.pod-0_u2",
        "lost+found",
        "a_b_c_u2",
        "__u3",
        "_x_u3",
        "a_b_u4",
        "c_d_u4",
    ]
    pods = pods_of_folders(folders)
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
