"""Devices of what was read."""

import json
import re
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import yaml

from services.devices.health import Reading
from services.devices.model import Value
from services.devices.nodes import FoundNode
from services.devices.types.build import Matched, attribute_value, make_devices
from services.devices.types.model import Attribute
from services.devices.types.node_source import NodeSource
from services.devices.types.parsing import InvalidType
from services.names import MAX_ID, dns_label
from services.process.problem import Problem
from tests.services.devices.types.making import ENGINE, type_of
from tools.docs.device_types import page

NODE = FoundNode("accel/accel0", (261, 0), "accel")
NOTHING = dict[str, Value]().get
ACCEL = {"match": [{"class": {"name": "accel"}}]}


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("0000:b1:00.5", "0000-b1-00-5"),
        ("_", r"[0-9a-f]{8}"),
        ("A1" * 40, r"(a1)+a?-[0-9a-f]{8}"),
    ],
)
def test_ids_are_dns_labels(text: str, made: str) -> None:
    assert re.fullmatch(made, dns_label(text))
    assert len(dns_label(text)) <= MAX_ID


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "1", 1),
        ("int", "0x1F", 31),
        ("int", "", None),
        ("int", "1 2", None),
        ("int", "9" * 30, None),
        ("bool", "1", True),
        ("bool", "N", False),
        ("bool", "2", None),
        ("string", "a b", "a b"),
        ("string", "x" * 65, None),
        ("string", "a\0b", None),
    ],
)
def test_values_are_of_their_type(kind: Any, text: str, value: Value | None) -> None:
    read = attribute_value(Attribute(name="a", file="f", type=kind), Reading(text))
    assert (None if isinstance(read, Problem) else read) == value
    assert not isinstance(read, Problem) or read.code == "attribute-invalid"


def test_attributes_that_a_device_lacks_are_of_their_type_too() -> None:
    kinds = ("bool", "int", "string")
    declared = [{"name": f"{each}A", "file": each, "type": each} for each in kinds]
    (device,) = make_devices(
        type_of({**ACCEL, "attributes": declared}), Matched("a", "a", NOTHING, ())
    )
    assert device.attributes == (("boolA", False), ("intA", 0), ("stringA", ""))


def test_optional_nodes_may_be_missing_and_no_node_is_denied() -> None:
    source, optional = NodeSource(class_="drm", kind="render"), NodeSource(own=True, optional=True)
    gone = replace(NODE, problem=Problem("node-missing", ""))

    def made(*nodes: Any) -> tuple[list[str], int, bool]:
        (device,) = make_devices(type_of(ACCEL), Matched("a", "a", NOTHING, nodes))
        reasons = [each.code for each in device.reasons]
        return reasons, len(device.nodes), bool(device.resource)

    assert made((source, [NODE]), (optional, [gone])) == ([], 1, True)
    assert made((source, [])) == (["node-missing"], 0, True)
    assert made((source, [gone]), (optional, [NODE])) == (["node-missing"], 1, True)
    denied = replace(NODE, subsystem="mem")
    assert made((optional, [NODE, denied])) == (["node-denied"], 1, False)


def test_a_node_has_its_path_in_the_container_and_a_variable_with_it() -> None:
    modem = NodeSource(class_="tty", as_="/dev/modem0", env="MODEM")
    control = NodeSource(class_="cdc", optional=True, env="CONTROL")
    other = NodeSource(own=True, env="OTHER")
    tty, second = (FoundNode(f"ttyUSB{n}", (188, n), "tty") for n in range(2))

    def made(*nodes: Any) -> tuple[list[str], list[str], dict[str, str]]:
        (device,) = make_devices(type_of(ACCEL), Matched("a", "a", NOTHING, nodes))
        reasons = [each.code for each in device.reasons]
        return reasons, [each.container_path for each in device.nodes], dict(device.envs[1:])

    one = (modem, [tty])
    assert made(one, (control, [])) == ([], ["/dev/modem0"], {"MODEM": "/dev/modem0"})
    two = {"MODEM": "/dev/modem0", "OTHER": "/dev/accel/accel0+/dev/ttyUSB1"}
    paths = ["/dev/modem0", "/dev/accel/accel0", "/dev/ttyUSB1"]
    assert made(one, (other, [NODE, second])) == ([], paths, two)
    assert made((modem, [tty, second]))[0] == ["node-path-twice"]
    assert made(one, (other, [replace(NODE, name="modem0")]))[0] == ["node-path-twice"]


def test_replicas_have_ids_of_their_own_and_the_same_claims() -> None:
    seen = Matched("a", "a", NOTHING, [(NodeSource(own=True), [NODE])], claims=frozenset({"x"}))
    devices = list(make_devices(type_of(ACCEL | {"sharing": {"replicas": 3}}), seen))
    assert [each.id for each in devices] == ["a-r0", "a-r1", "a-r2"]
    assert [each.cdi for each in devices] == [f"accelbind.dev/device=a-r{n}" for n in range(3)]
    assert {each.claims for each in devices} == {frozenset({"x", "261:0"})}
    assert [(each.share, each.whole_id) for each in devices] == [(n, "a") for n in range(3)]


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
    seen = Matched("a", "a", values.get, (), addresses)
    (device,) = make_devices(type_of(ACCEL | {"env": env}, "my-x"), seen)
    assert device.envs == (
        ("ACCELBIND_MY_X", "+".join(addresses)),
        ("NODE", "1"),
        ("VF", "true"),
    )
    assert device.fixed_envs == (("FIXED", "1"),)
    assert device.numa_node == 1


# The JSON Schema that editors get, and what the structs themselves refuse


def test_the_schema_takes_a_type_and_no_unknown_field() -> None:
    check = jsonschema.Draft202012Validator(json.loads(page()))
    good = yaml.safe_load(ENGINE)
    assert list(check.iter_errors(good)) == []
    good["spec"]["match"][0]["pci"]["vendor"] = ["0x1bcf"]
    good["spec"]["mounts"] = ["/etc"]
    assert len(list(check.iter_errors(good))) == 2


def test_an_id_that_yaml_reads_as_another_number_is_to_be_quoted() -> None:
    match = [{"pci": {"vendor": [1e52]}}]
    with pytest.raises(InvalidType, match="put it into quotes"):
        type_of({"match": match, "nodes": [{"class": "tenstorrent"}]})
