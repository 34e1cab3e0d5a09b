"""What a container wants of its regions."""

import json
from typing import Any

import pytest

from services.containers.holders import PodRef
from services.containers.wanted import (
    WantedFunctions,
    confirm_pod,
    interface_of,
    read_wanted,
    single_wanted,
)
from services.process.errors import InvalidName, NotAllowed
from tests.services.building import pair
from tests.services.cards import AF_NLB0, INTERFACE, NLB0, NLB3, REGION

OTHER = "bfac4d851ee856fe8c95865ce1bbaa2d"
X, Y, Z = NLB0, NLB3, "a" * 32
POD = PodRef("ns", "p", "uid-1")
WHO = 'container "c" of pod ns/p'


def variables(*pairs: tuple[str, str], start: int = 1) -> list[dict[str, Any]]:
    return [each for number, ids in enumerate(pairs, start) for each in pair(number, *ids)]


def pod(
    env: object = None,
    *,
    uid: str = "uid-1",
    node: str = "n1",
    init: bool = False,
    metadata: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
) -> bytes:
    container = {"name": "c", "image": "i", "env": env}
    other = {"name": "other", "env": variables((INTERFACE, Z))}
    listed = {"containers": [other], "initContainers": [container]}
    spec = listed if init else {"containers": [other, container]}
    described = {"uid": uid, "name": "p"} | (metadata or {})
    made = {"metadata": described, "spec": {"nodeName": node} | spec | (more or {})}
    return json.dumps(made).encode()


def read(body: bytes | None, container: str = "c") -> WantedFunctions:
    found = confirm_pod(body, POD, node="n1")
    return read_wanted(found, POD, container, interface_id=INTERFACE)


@pytest.mark.parametrize("init", [False, True])
def test_a_containers_variables_say_what_it_wants(init: bool) -> None:
    env = [{"name": "HOME", "valueFrom": {"fieldRef": {}}}, *variables((INTERFACE, X))]
    assert read(pod(env, init=init)) == WantedFunctions(WHO, (X,), INTERFACE)


ODD = ["FPGA_AFU", "FPGA_AFU_0", "FPGA_AFU_01", "XFPGA_AFU_2", "FPGA_AFU_2x", "fpga_afu_2"]


@pytest.mark.parametrize(
    ("env", "functions"),
    [
        (variables((OTHER, Y), (INTERFACE, X), (OTHER, Z), (INTERFACE, Y)), (X, Y)),
        (variables((INTERFACE, X), start=10) + variables((INTERFACE, Y), start=9), (Y, X)),
        ([{"name": name, "value": Y} for name in ODD] + variables((INTERFACE, X)), (X,)),
    ],
    ids=["other regions", "in order of numbers", "other forms"],
)
def test_functions_are_those_of_its_regions(
    env: list[dict[str, Any]], functions: tuple[str, ...]
) -> None:
    assert read(pod(env)).functions == functions


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (None, "has no pod ns/p: it was deleted"),
        (pod(uid="uid-2"), 'UID "uid-2", and "uid-1" is starting'),
        (pod(node="n2"), 'on node "n2", and this is "n1"; .* --node-name'),
        (pod(None), f"{WHO} was given a region .* names no function"),
        (pod(variables((OTHER, X))), "names no function"),
        (pod(variables((INTERFACE, X)) * 2), "FPGA_REGION_1 is set twice"),
        (pod(variables((INTERFACE, "../../x"))), 'FPGA_AFU_1 to "../../x", which is not an id'),
        (pod(variables((INTERFACE, "a" * 41))), "which is not an id"),
        (pod(more={"containers": None, "initContainers": None}), 'has no container "c"'),
        (pod(more={"initContainers": [{"name": "c"}]}), 'has no container "c"'),
        (pod([{"name": 5}]), "can't be read"),
        (b'{"metadata":{},"spec":{"a":' + b"[" * 10**5, "can't be read"),
        (pod().replace(b'"c"', b'"\xff"'), "can't be read"),
    ],
)
def test_a_pod_that_does_not_plainly_say_is_refused(body: bytes | None, text: str) -> None:
    with pytest.raises(NotAllowed, match=text):
        read(body)


HASH = "kubernetes.io/config.hash"
THIS_NODE = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u", "controller": True}


@pytest.mark.parametrize(
    ("uid", "annotations", "owners", "starts"),
    [
        ("uid-of-mirror", {HASH: "uid-1"}, [THIS_NODE], True),
        ("uid-of-mirror", {HASH: "uid-1"}, [{"kind": "Job", "name": "n1"}, THIS_NODE], True),
        # another manifest by this name is the static pod now
        ("uid-1", {HASH: "uid-2"}, [THIS_NODE], False),
        # anybody can write the annotation
        ("uid-2", {HASH: "uid-1"}, None, False),
        ("uid-2", {HASH: "uid-1"}, [THIS_NODE | {"name": "n2"}], False),
        ("uid-2", {HASH: "uid-1"}, [THIS_NODE | {"apiVersion": "example.com/v1"}], False),
        ("uid-2", {HASH: "uid-1"}, [{"apiVersion": "v1", "kind": "Pod", "name": "n1"}], False),
        ("uid-1", {HASH: "uid-2"}, None, True),
        ("uid-1", {"kubernetes.io/config.mirror": "uid-2"}, [], True),
        ("uid-1", None, [THIS_NODE], True),
    ],
)
def test_a_static_pod_is_found_by_its_mirror_pod_and_an_ordinary_one_by_its_uid(
    uid: str, annotations: object, owners: object, starts: bool
) -> None:
    metadata = {"annotations": annotations, "ownerReferences": owners}
    body = pod(variables((INTERFACE, X)), uid=uid, metadata=metadata)
    if starts:
        assert read(body).functions == (X,)
    else:
        with pytest.raises(NotAllowed, match=r'has been replaced: .* "uid-1" is starting'):
            read(body)


def test_candidates_that_want_the_same_are_as_good_as_one() -> None:
    wanted = [WantedFunctions("init", (X, Y)), WantedFunctions("app", (Y, X))]
    assert single_wanted(wanted) == wanted[0]


@pytest.mark.parametrize("other", [(X,), (X, X), (Y, Y), (X, Y, Y)])
def test_candidates_that_want_different_functions_are_refused(other: tuple[str, ...]) -> None:
    with pytest.raises(NotAllowed, match=r"^init and app share their devices but"):
        single_wanted([WantedFunctions("init", (X, Y)), WantedFunctions("app", other)])


def test_a_resource_of_regions_names_their_interface() -> None:
    assert interface_of(REGION) == INTERFACE
    with pytest.raises(InvalidName, match="is not a region"):
        interface_of(AF_NLB0)
