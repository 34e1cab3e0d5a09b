import json
from typing import Any

import pytest

from services.containers.hook_call import HookCall, InvalidHookCall, held_regions, parse
from services.containers.identity import ContainerIdentity
from services.devices.model import Fme
from services.kubelet.values import Entry
from services.programming.assignment import Region
from tests.services.cards import INTERFACE, NLB0, REGION, port

CONTAINERD = {
    "io.kubernetes.cri.container-type": "container",
    "io.kubernetes.cri.sandbox-uid": "uid",
    "io.kubernetes.cri.container-name": "c",
}
CRIO = {
    "io.kubernetes.cri-o.ContainerType": "container",
    "io.kubernetes.pod.uid": "uid",
    "io.kubernetes.container.name": "c",
}
WHO = ContainerIdentity("uid", "c")


def message(
    annotations: dict[str, str] | None = None, *nodes: str, config: dict[str, str] | None = None
) -> bytes:
    devices = [{"path": f"/dev/{node}", "type": "c", "major": 1} for node in nodes]
    value: dict[str, Any] = {
        "state": {"id": "x", "annotations": annotations},
        "annotations": config,
        "devices": devices or None,
    }
    return json.dumps(value).encode()


@pytest.mark.parametrize("annotations", [CONTAINERD, CRIO, CONTAINERD | CRIO])
def test_the_runtimes_annotations_say_who_starts(annotations: dict[str, str]) -> None:
    found = HookCall(WHO, frozenset({"dfl-port.0"}))
    assert parse(message(annotations, "dfl-port.0")) == found
    assert parse(message(None, "dfl-port.0", config=annotations)) == found


def test_a_sandbox_is_no_container() -> None:
    sandbox = CONTAINERD | {"io.kubernetes.cri.container-type": "sandbox"}
    assert parse(message(sandbox)) == HookCall(None, frozenset())


def test_a_container_on_cri_o_cannot_pass_for_a_sandbox_by_its_pods_annotations() -> None:
    forged = CRIO | {"io.kubernetes.cri.container-type": "sandbox"}
    assert parse(message(forged)) == HookCall(WHO, frozenset())


@pytest.mark.parametrize("annotations", [{}, {"io.kubernetes.pod.uid": "uid"}])
def test_annotations_that_do_not_say_it_are_refused(annotations: dict[str, str]) -> None:
    with pytest.raises(InvalidHookCall, match="don't say which container of which pod"):
        parse(message(annotations))


def test_annotations_that_name_two_containers_are_refused() -> None:
    forged = CRIO | {
        "io.kubernetes.cri.sandbox-uid": "another",
        "io.kubernetes.cri.container-name": "c",
    }
    with pytest.raises(InvalidHookCall, match="two different containers"):
        parse(message(forged))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"state": 3}', b"\xff", b"[" * 100_000])
def test_what_is_no_state_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidHookCall, match="can't be read"):
        parse(data)


# Which regions it holds ---------------------------------------------------------------------------


def region(number: int) -> Region:
    engine = Fme(f"dfl-fme.{number}", INTERFACE)
    ports = (port(f"dfl-port.{number}", NLB0),)
    return Region(f"dfl-fme.{number}", "dfl", f"region{number}", "", engine, ports)


REGIONS = {each.name: each for each in (region(0), region(1))}


def entry(*ids: str, container: str = "c", resource: str = REGION) -> Entry:
    return Entry("uid", container, resource, frozenset(ids))


def held(call: HookCall, *entries: Entry) -> dict[str, tuple[str, ...]]:
    return held_regions(call, entries, REGIONS)


def test_a_containers_regions_are_those_of_the_checkpoint() -> None:
    call = HookCall(WHO, frozenset({"dfl-port.0", "dfl-port.1"}))
    found = held(
        call,
        entry("dfl-fme.1"),
        entry("dfl-fme.0"),
        entry("dfl-fme.9", container="another"),
        entry("gpu-0", resource="example.com/gpu"),
        entry("dfl-fme.1", resource="fpga.intel.com/other"),
        entry("dfl-fme.1", resource=REGION.removeprefix("fpga.intel.com/")),
    )
    assert found == {REGION: ("dfl-fme.0", "dfl-fme.1")}


def test_a_region_that_is_not_seen_yet_or_any_more_is_held_all_the_same() -> None:
    """Else a plugin that has just started would let on whoever asks."""
    assert held_regions(HookCall(WHO, frozenset()), [entry("dfl-fme.0")], {}) == {
        REGION: ("dfl-fme.0",)
    }


def test_a_container_without_regions_has_none() -> None:
    assert held(HookCall(WHO, frozenset({"null"})), entry("dfl-fme.0", container="another")) == {}


@pytest.mark.parametrize("who", [WHO, ContainerIdentity("uid", "another"), None])
def test_nodes_of_a_region_that_was_not_allocated_are_refused(
    who: ContainerIdentity | None,
) -> None:
    call = HookCall(who, frozenset({"dfl-port.1", "dfl-port.0"}))
    with pytest.raises(InvalidHookCall, match=r"dfl-fme.1, which the kubelet has not allocated"):
        held(call, entry("dfl-fme.0"))
