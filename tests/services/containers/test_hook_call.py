import json
from contextlib import nullcontext

import pytest

from services.containers.holders import ContainerIdentity
from services.containers.hook_call import held_regions, parse, require_no_plain_nodes
from services.kubelet.values import CheckpointEntry
from services.process.errors import HookMissing, InvalidInput
from tests.services.cards import REGION

CONTAINERD = {"io.kubernetes.cri.sandbox-uid": "uid", "io.kubernetes.cri.container-name": "c"}
CRIO = {"io.kubernetes.pod.uid": "uid", "io.kubernetes.container.name": "c"}
CALL = (ContainerIdentity("uid", "c"), "dfl-fme.0")


def message(annotations: dict[str, str]) -> bytes:
    return json.dumps({"region": "dfl-fme.0", "annotations": annotations}).encode()


@pytest.mark.parametrize("annotations", [CONTAINERD, CRIO, CONTAINERD | CRIO | {"own": "x"}])
def test_the_runtimes_annotations_say_who_starts(annotations: dict[str, str]) -> None:
    assert parse(message(annotations)) == CALL


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {"io.kubernetes.pod.uid": "uid"},
        CRIO | CONTAINERD | {"io.kubernetes.cri.sandbox-uid": "x"},
    ],
)
def test_annotations_that_do_not_name_one_container_are_refused(
    annotations: dict[str, str],
) -> None:
    with pytest.raises(InvalidInput, match="don't say which container of which pod"):
        parse(message(annotations))


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"[" * 100_000])
def test_other_bytes_than_a_message_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="can't be read"):
        parse(data)


# Which regions it holds ---------------------------------------------------------------------------


def entry(*ids: str, container: str = "c", resource: str = REGION) -> CheckpointEntry:
    return CheckpointEntry("uid", container, resource, frozenset(ids))


def test_a_containers_regions_are_those_of_the_checkpoint() -> None:
    entries = [
        entry("dfl-fme.1"),
        entry("dfl-fme.0"),
        entry("dfl-fme.9", container="another"),
        entry("gpu-0", resource="example.com/gpu"),
        entry("dfl-fme.1", resource="fpga.intel.com/other"),
        entry("dfl-fme.1", resource=REGION.removeprefix("fpga.intel.com/")),
    ]
    assert held_regions(*CALL, entries) == (REGION, ("dfl-fme.0", "dfl-fme.1"))


@pytest.mark.parametrize(
    "entries", [[], [entry("dfl-fme.1")], [entry("dfl-fme.0", container="another")]]
)
def test_a_region_that_was_not_allocated_is_refused(entries: list[CheckpointEntry]) -> None:
    with pytest.raises(InvalidInput, match=r"dfl-fme.0, which the kubelet has not allocated"):
        held_regions(*CALL, entries)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([(), ()], None),
        ([(), ("/dev/a", "/dev/b")], "the kubelet gives it /dev/a and /dev/b without CDI"),
        ([None], "the kubelet gives it unknown nodes without CDI"),
    ],
)
def test_device_nodes_that_come_without_the_hook_are_refused(
    nodes: list[tuple[str, ...] | None], said: str | None
) -> None:
    allocated = [CheckpointEntry("u", "c", "r", frozenset({"a"}), each) for each in nodes]
    with nullcontext() if said is None else pytest.raises(HookMissing, match=said):
        require_no_plain_nodes(allocated)
