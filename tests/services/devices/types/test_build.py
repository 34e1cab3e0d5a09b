"""Devices of what was read."""

import re
from typing import Any

import pytest

from services.devices.health import Failure, Reading
from services.devices.labels import MAX_ID, label
from services.devices.model import DeviceNode, Problem, Value
from services.devices.types.build import (
    Sighting,
    attribute_value,
    health_problems,
    make_devices,
)
from services.devices.types.model import Attribute, NodeSource
from tests.services.devices.types.making import type_of

NODE = DeviceNode("accel/accel0", "accel/accel0", "rw", (261, 0))
ACCEL = {"match": [{"class": {"name": "accel"}}]}


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("0000:b1:00.5", "0000-b1-00-5"),
        ("3-1.2", "3-1-2"),
        ("hw_random", "hw-random"),
        ("XFL1GHBRTQ42", "xfl1ghbrtq42"),
        ("_", r"[0-9a-f]{8}"),
        ("ä" * 80, r"[0-9a-f]{8}"),
        ("A1" * 40, r"(a1)+a?-[0-9a-f]{8}"),
    ],
)
def test_ids_are_dns_labels(text: str, made: str) -> None:
    assert re.fullmatch(made, label(text))
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", label(text))
    assert len(label(text)) <= MAX_ID


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "1", 1),
        ("int", "-5", -5),
        ("int", "0x1F", 31),
        ("int", "", None),
        ("int", "1 2", None),
        ("int", "9" * 30, None),
        ("bool", "1", True),
        ("bool", "N", False),
        ("bool", "2", None),
        ("string", "", ""),
        ("string", "a b", "a b"),
        ("string", "x" * 65, None),
    ],
)
def test_values_are_of_their_type(kind: Any, text: str, value: Value | None) -> None:
    read = attribute_value(Attribute(name="a", file="f", type=kind), Reading(text))
    assert (None if isinstance(read, Problem) else read) == value
    assert not isinstance(read, Problem) or read.reason == "attribute-invalid"


def test_a_file_that_can_not_be_read_is_a_problem() -> None:
    reading = Reading(failure=Failure.DEAD, detail="Input/output error")
    read = attribute_value(Attribute(name="a", file="f"), reading)
    expected = "a (f) can't be read: Input/output error"
    assert read == Problem("attribute-unreadable", expected)


def made(spec: dict[str, Any], seen: Sighting) -> list[tuple[str, bool, list[str], int]]:
    return [
        (each.id, each.healthy, [one.reason for one in each.reasons], len(each.nodes))
        for each in make_devices(type_of(ACCEL | spec), seen)
    ]


def test_optional_nodes_may_be_missing_and_no_node_is_denied() -> None:
    source, optional = NodeSource(class_="drm", kind="render"), NodeSource(own=True, optional=True)
    gone, denied = Problem("node-missing", ""), Problem("node-denied", "")

    def sighting(*nodes: Any) -> Sighting:
        return Sighting("a", "a", {}, nodes)

    assert made({}, sighting((source, [NODE]), (optional, [gone]))) == [("a", True, [], 1)]
    assert made({}, sighting((source, []))) == [("a", False, ["node-missing"], 0)]
    assert made({}, sighting((source, [gone]), (optional, [NODE])))[0][2:] == (["node-missing"], 1)
    (device,) = make_devices(type_of(ACCEL), sighting((optional, [NODE, denied])))
    assert (device.resource, device.reasons) == ("", (denied,))


def test_replicas_have_ids_of_their_own_and_the_same_claims() -> None:
    seen = Sighting("a", "a", {}, [(NodeSource(own=True), [NODE])], claims=frozenset({"x"}))
    devices = list(make_devices(type_of(ACCEL | {"sharing": {"replicas": 3}}), seen))
    assert [each.id for each in devices] == ["a-r0", "a-r1", "a-r2"]
    assert [each.cdi for each in devices] == [f"accelbind.dev/device=a-r{n}" for n in range(3)]
    assert {each.claims for each in devices} == {frozenset({"x", "261:0"})}


def test_variables_are_set_where_the_attribute_is_known() -> None:
    env = [
        {"name": "FIXED", "value": "1"},
        {"name": "NODE", "attribute": "numaNode"},
        {"name": "VF", "attribute": "virtualFunction"},
        {"name": "SERIAL", "attribute": "usbSerial"},
        {"name": "BENT", "attribute": "pciClass"},
    ]
    values: dict[str, Value | Problem] = {
        "numaNode": 1,
        "virtualFunction": True,
        "pciClass": Problem("x", ""),
    }
    addresses = ("0000:b1:00.5", "0000:b1:00.6")
    seen = Sighting("a", "a", values, (), addresses)
    (device,) = make_devices(type_of(ACCEL | {"env": env}, "my-x"), seen)
    assert device.envs == (
        ("ACCELBIND_MY_X", "+".join(addresses)),
        ("NODE", "1"),
        ("VF", "true"),
    )
    assert device.fixed_envs == (("FIXED", "1"),)
    assert device.numa_node == 1


def test_rules_hold_or_give_their_reason() -> None:
    rules = [
        {"attribute": "state", "oneOf": [1, 2], "reason": "off"},
        {"attribute": "numaNode", "equals": 0, "reason": "elsewhere"},
    ]
    spec = {"attributes": [{"name": "state", "file": "f", "type": "int"}], "health": rules}
    unread = Problem("attribute-unreadable", "")

    def reasons(**values: Value | Problem) -> list[str]:
        return [each.reason for each in health_problems(type_of(ACCEL | spec), values)]

    assert reasons(state=2, numaNode=0) == []
    assert reasons(state=3) == ["off", "elsewhere"]
    assert reasons(state=unread, numaNode=0) == ["attribute-unreadable"]
