"""What a container wants of its regions, and whether they carry it."""

import itertools
import json
import re
from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.containers.identity import PodRef
from services.containers.wanted import WantedFunctions, read_wanted, single_wanted
from services.containers.wanted import verify as verify_regions
from services.devices.model import Device, DeviceNode, Problem
from services.process.errors import NotAllowed

INTERFACE = "ce48969398f05f33946d560708be108a"
OTHER = "bfac4d851ee856fe8c95865ce1bbaa2d"
X, Y, Z = ("d8424dc4a4a3c413f89e433683f9040b", "f7df405cbd7acf7222f144b0b93acd18", "a" * 32)
RESOURCE = f"fpga.intel.com/region-{INTERFACE}"
POD = PodRef("ns", "p", "uid-1")
WHO = 'container "c" of pod ns/p'


def variables(*pairs: tuple[str, str], start: int = 1) -> list[dict[str, Any]]:
    env = []
    for number, (region, afu) in enumerate(pairs, start):
        env.append({"name": f"FPGA_REGION_{number}", "value": region})
        env.append({"name": f"FPGA_AFU_{number}", "value": afu})
    return env


def pod(
    env: object = None,
    *,
    uid: str = "uid-1",
    node: str = "n1",
    init: bool = False,
    more: dict[str, Any] | None = None,
) -> bytes:
    container = {"name": "c", "image": "i", "env": env}
    spec: dict[str, Any] = {
        "nodeName": node,
        "containers": [{"name": "other", "env": variables((INTERFACE, Z))}],
    }
    if init:
        spec["initContainers"] = [container]
    else:
        spec["containers"].append(container)
    return json.dumps(
        {"kind": "Pod", "metadata": {"uid": uid, "name": "p"}, "spec": spec | (more or {})}
    ).encode()


def read(body: bytes | None, container: str = "c") -> WantedFunctions:
    return read_wanted(body, POD, container, node="n1", interface_id=INTERFACE)


@pytest.mark.parametrize("init", [False, True])
def test_a_containers_variables_say_what_it_wants(init: bool) -> None:
    env = [{"name": "HOME", "valueFrom": {"fieldRef": {}}}, *variables((INTERFACE, X))]
    assert read(pod(env, init=init)) == WantedFunctions(WHO, (X,))


def test_functions_for_regions_of_another_resource_are_not_its() -> None:
    env = variables((OTHER, Y), (INTERFACE, X), (OTHER, Z), (INTERFACE, Y))
    assert read(pod(env)).functions == (X, Y)


def test_ids_count_in_any_spelling() -> None:
    region = f" {INTERFACE[:8].upper()}-{INTERFACE[8:]}"
    assert read(pod(variables((region, X.upper())))).functions == (X,)


def test_functions_come_in_the_order_of_their_numbers() -> None:
    env = variables((INTERFACE, X), start=10) + variables((INTERFACE, Y), start=9)
    assert read(pod(env)).functions == (Y, X)


def test_variables_of_another_form_say_nothing() -> None:
    odd = ["FPGA_AFU", "FPGA_AFU_0", "FPGA_AFU_01", "XFPGA_AFU_2", "FPGA_AFU_2x", "fpga_afu_2"]
    env = [{"name": name, "value": Y} for name in odd] + variables((INTERFACE, X))
    assert read(pod(env)).functions == (X,)


NO_PLAIN = "FPGA_AFU_1 has no plain value"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (None, "has no pod ns/p: it was deleted"),
        (pod(uid="uid-2"), 'UID "uid-2", and "uid-1" is starting'),
        (pod(node="n2"), 'on node "n2", and this is "n1"; .* --node-name'),
        (pod(node=""), 'on node "", and this is "n1"'),
        (pod(None), f"{WHO} was given a region .* names no function"),
        (pod([]), "names no function"),
        (pod(variables((OTHER, X))), "names no function"),
        (pod(variables((INTERFACE, X)) * 2), "FPGA_REGION_1 is set twice"),
        (pod(variables((INTERFACE, X))[:1]), "FPGA_REGION_1 is set without FPGA_AFU_1"),
        (pod(variables((INTERFACE, X))[1:]), "FPGA_AFU_1 is set without FPGA_REGION_1"),
        (pod([{"name": "FPGA_AFU_1", "valueFrom": {}}]), NO_PLAIN),
        (pod([{"name": "FPGA_AFU_1", "value": X, "valueFrom": {"x": 1}}]), NO_PLAIN),
        (pod(variables((INTERFACE, "../../x"))), 'FPGA_AFU_1 to "../../x", which is not an id'),
        (pod(variables((INTERFACE, "a" * 41))), "which is not an id"),
        (pod(variables((INTERFACE, "a\0"))), "which is not an id"),
        (pod([{"name": "FPGA_AFU_1"}]), NO_PLAIN),
        (pod([{"name": "FPGA_AFU_1", "value": ""}]), NO_PLAIN),
        (pod(more={"containers": None, "initContainers": None}), 'has no container "c"'),
        (pod(more={"initContainers": [{"name": "c"}]}), 'has no container "c"'),
        (pod(more={"containers": "x"}), "can't be read: Expected `array"),
        (pod([{"name": 5}]), "can't be read"),
        (b"", "can't be read"),
        (b"[]", "can't be read"),
        (b"{}", "can't be read"),
        (b'{"metadata":{},"spec":{"a":' + b"[" * 10**5, "can't be read"),
        (b"\xff", "can't be read"),
        (pod().replace(b'"c"', b'"\xff"'), "can't be read"),
    ],
)
def test_a_pod_that_does_not_plainly_say_is_refused(body: bytes | None, text: str) -> None:
    with pytest.raises(NotAllowed, match=text):
        read(body)


def test_null_stands_for_nowhere_else_to_read_a_value_from() -> None:
    env = variables((INTERFACE, X))
    for variable in env:
        variable["valueFrom"] = None
    assert read(pod(env)).functions == (X,)


def test_candidates_that_want_the_same_are_as_good_as_one() -> None:
    wanted = [WantedFunctions("init", (X, Y)), WantedFunctions("app", (Y, X))]
    assert single_wanted(wanted) == wanted[0]


@pytest.mark.parametrize("other", [(X,), (X, X), (Y, Y), (X, Y, Y)])
def test_candidates_that_want_different_functions_are_refused(other: tuple[str, ...]) -> None:
    with pytest.raises(NotAllowed, match=r"^init \(.*\) and app \(.*\) share their devices but"):
        single_wanted([WantedFunctions("init", (X, Y)), WantedFunctions("app", other)])


def region(
    key: str, *afus: str, interface: str = INTERFACE, problem: str = "", nodes: int = 0
) -> Device:
    reasons = (Problem("some-reason", problem),) if problem else ()
    return Device(
        id=key,
        resource=RESOURCE,
        healthy=not reasons,
        reasons=reasons,
        nodes=tuple(DeviceNode(f"{key}-port{number}") for number in range(nodes or len(afus))),
        interface_id=interface,
        afu_ids=afus,
    )


def verify(
    wanted: Sequence[str],
    *devices: Device,
    ids: Sequence[str] | None = None,
    unknown: Collection[str] = (),
) -> None:
    by_id = {device.id: device for device in devices}
    verify_regions(
        WantedFunctions(WHO, tuple(wanted)),
        list(by_id) if ids is None else ids,
        by_id,
        node="n1",
        interface_id=INTERFACE,
        unknown=unknown,
    )


ACCEPTED: list[tuple[list[str], list[Device]]] = [
    ([X], [region("a", X)]),
    ([X, X], [region("a", X), region("b", X)]),
    ([X, Y], [region("a", Y), region("b", X)]),
    ([X], [region("a", X), region("b", X)]),  # more regions than functions, all on a wanted one
    ([X], [region("a", X, X)]),  # both of its ports
    ([X, Y], [region("a", X, Y), region("b", X)]),  # only one way round fits
    ([X, Y, Z], [region("a", X, Y), region("b", Y, Z), region("c", Z, X)]),
    ([X], [region("a", X, problem="errors/errors of dfl-port.0 reads 0x1")]),  # health is apart
]


@pytest.mark.parametrize(("wanted", "devices"), ACCEPTED)
def test_regions_that_carry_the_functions_wanted_may_start(
    wanted: list[str], devices: list[Device]
) -> None:
    verify(wanted, *devices)
    with pytest.raises(NotAllowed):
        verify(["0" * 32, *wanted[1:]], *devices)


BUT = f", but {WHO} wants "
REFUSED: list[tuple[list[str], list[Device], str]] = [
    ([Y], [region("a", X)], f"on node n1 region a carries AFU {X}{BUT}AFU {Y}; this plugin ver"),
    (
        [X, X],
        [region("a", X), region("b", Y)],
        f"on node n1 region a carries AFU {X} and region b carries AFU {Y}{BUT}2 times AFU {X};",
    ),
    ([X, X], [region("a", X)], f"region a carries AFU {X}{BUT}2 times AFU {X};"),
    ([X, Y], [region("a", X), region("b", X)], f"{BUT}AFU {X} and AFU {Y};"),
    ([X], [region("a", X), region("b", Y)], f"region b carries AFU {Y}{BUT}AFU {X};"),
    (
        [X, Y],
        [region("a", X, Y), region("b", Y, X, Y), region("c", Z)],
        f"region b carries AFU {X} and AFU {Y} and region c carries AFU {Z}",
    ),
    ([X, Y], [region("a", X, Y), region("b", Z)], f"carries AFU {X} and AFU {Y} and region b"),
    ([X, X, Y], [region("a", X), region("b", Y), region("c", Y)], f"{BUT}2 times AFU {X} and"),
    ([X], [region("a", "")], f"region a carries an unknown function{BUT}AFU {X}"),
    ([""], [region("a", "")], "region a carries an unknown function"),
    (
        [X],
        [region("a", "", problem="afu_id of dfl-port.0 is empty")],
        "region a carries an unknown function (afu_id of dfl-port.0 is empty), but",
    ),
    ([X], [region("a")], "region a carries an unknown function"),
    ([X], [region("a", X, interface=OTHER)], "region a carries an unknown function"),
    # Every port of a region is given, so every port must carry what is wanted.
    (
        [X],
        [region("a", X, Y)],
        f"region a has port a-port1 with AFU {Y}, and the container would get every port of it,",
    ),
    (
        [X],
        [region("a", Y, X, Z)],
        f"region a has port a-port0 with AFU {Y} and port a-port2 with AFU {Z}, and the",
    ),
    (
        [X],
        [region("a", X, "", problem="afu_id of dfl-port.1 is empty")],
        "region a has port a-port1 with an unknown function (afu_id of dfl-port.1 is empty),",
    ),
    (  # a virtual function that can't be read
        [X],
        [region("a", X, "", nodes=1)],
        "region a has a port that can't be read, and",
    ),
    ([X, Y], [region("a", X, Y), region("b", X, Z)], f"region b has port b-port1 with AFU {Z},"),
]


@pytest.mark.parametrize(("wanted", "devices", "text"), REFUSED)
def test_regions_that_carry_something_else_are_refused(
    wanted: list[str], devices: list[Device], text: str
) -> None:
    with pytest.raises(NotAllowed) as raised:
        verify(wanted, *devices)
    assert text in str(raised.value)


UNKNOWN = "is unknown until it is programmed: accelbind fpga program"


@pytest.mark.parametrize(
    ("devices", "unknown", "text"),
    [
        ([region("a", X)], [], None),
        ([region("a", X)], ["b-port0"], None),
        (
            [region("a", X)],
            ["a-port0"],
            f"region a carries an unknown function (the content of a-port0 {UNKNOWN}",
        ),
        (
            [region("a", X, X)],
            ["a-port1"],
            f"a has port a-port1 with an unknown function (the content of a-port1 {UNKNOWN} a",
        ),
        ([region("a", X), region("b", X)], ["b-port0"], f"the content of b-port0 {UNKNOWN}"),
        ([region("a", X, "", nodes=1)], ["a-port0"], f"the content of a-port0 {UNKNOWN}"),
    ],
)
def test_what_a_port_of_unknown_content_shows_counts_for_nothing(
    devices: list[Device], unknown: list[str], text: str | None
) -> None:
    if text is None:
        verify([X], *devices, unknown=unknown)
    else:
        with pytest.raises(NotAllowed, match=re.escape(text)):
            verify([X], *devices, unknown=unknown)


def test_a_region_that_is_gone_is_refused() -> None:
    with pytest.raises(NotAllowed, match="region b is not there any more, but"):
        verify([X], region("a", X), ids=["a", "b"])


def test_a_device_named_twice_counts_once() -> None:
    verify([X], region("a", X), ids=["a", "a"])
    with pytest.raises(NotAllowed):
        verify([X, X], region("a", X), ids=["a", "a"])


def test_a_refusal_stays_short_enough_for_an_event() -> None:
    devices = [region(f"dfl-fme.{n}", X, problem="p" * 500) for n in range(64)]
    with pytest.raises(NotAllowed) as raised:
        verify([f"{n:032x}" * 3 for n in range(64)], *devices)
    assert len(str(raised.value)) < 2000
    assert "and 56 more" in str(raised.value)


@given(
    st.lists(st.sampled_from("XYZ"), min_size=1, max_size=4),
    st.lists(st.frozensets(st.sampled_from("XYZ"), max_size=2), min_size=1, max_size=4),
)
def test_the_verdict_is_that_of_trying_every_way(
    wanted: list[str], carried: list[frozenset[str]]
) -> None:
    allowed = len(wanted) <= len(carried) and any(
        all(each in carried[place] for each, place in zip(wanted, places, strict=True))
        for places in itertools.permutations(range(len(carried)), len(wanted))
    )
    allowed = allowed and all(functions and functions <= set(wanted) for functions in carried)
    devices = [region(str(n), *sorted(functions)) for n, functions in enumerate(carried)]
    if allowed:
        verify(wanted, *devices)
    else:
        with pytest.raises(NotAllowed):
            verify(wanted, *devices)
