"""DeviceClasses and templates, and the devices that satisfy their selectors."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

from accelbind.dra.classes import FpgaClass, claim_template, fpga_classes, type_class
from plugin.dra.slices import Slice, devices_of_slices, slice_spec
from services.devices.dra import DRIVER, DraDevice, dra_devices
from services.devices.model import Card, Contents, Device, Inventory, PluginMode
from services.devices.types.load import load_types
from services.mappings.model import Mapping, parse
from services.names import OPENCL_AFU
from simulator.apiserver.crd import compile_expression
from tests.services.building import function, region
from tests.services.cards import AF_NLB0, BAD, INTERFACE, NLB0, NLB3, REGION, advertise, card, port
from tests.support import REPOSITORY

NODE = "node-1"
PROGRAM = "0f" * 20


def classes(*mappings: Mapping) -> list[dict[str, Any]]:
    named = ((FpgaClass.of(each), f"{each.namespace}/{each.name}") for each in mappings)
    return [*fpga_classes((of, name) for of, name in named if of is not None)]


def chosen(devices: Iterable[DraDevice], *selecting: dict[str, Any]) -> list[str]:
    """The devices without taints that satisfy all selectors; one of another driver is beside."""
    parts = devices_of_slices(devices, taints=True)
    slices = (slice_spec(NODE, Slice(NODE, 1, 1, part))["devices"] for part in parts)
    published = [(DRIVER, each) for part in slices for each in part]
    gpu = {"name": "gpu-0", "attributes": {"model": {"string": "a100"}}}
    expressions = [
        compile_expression(selector["cel"]["expression"])
        for each in selecting
        for selector in each.get("selectors") or ()
    ]
    return [
        each["name"]
        for driver, each in [*published, ("gpu.example.com", gpu)]
        if not each.get("taints")
        and all(one.holds({"device": as_cel(driver, each)}) for one in expressions)
    ]


def as_cel(driver: str, device: dict[str, Any]) -> dict[str, Any]:
    attributes = defaultdict[str, dict[str, Any]](dict)
    for name, value in device["attributes"].items():
        domain, _, short = name.rpartition("/")
        (attributes[domain or driver][short],) = value.values()
    return {"driver": driver, "attributes": dict(attributes), "capacity": {}}


def of_cards(*cards: Card, programmed: Contents | None = None) -> tuple[DraDevice, ...]:
    inventory = Inventory(cards)
    return dra_devices(advertise(inventory, PluginMode.REGION), inventory, programmed or {})


def alternatives(mapping: Mapping, devices: Iterable[DraDevice]) -> dict[str, list[str]]:
    """The devices for each alternative of a mapping's template, the best first."""
    (request,) = claim_template(mapping)["spec"]["spec"]["devices"]["requests"]
    (of,) = classes(mapping)
    assert {each["deviceClassName"] for each in request["firstAvailable"]} == {
        of["metadata"]["name"]
    }
    return {each["name"]: chosen(devices, of["spec"], each) for each in request["firstAvailable"]}


NLB0_AF = parse(function("nlb0", "af"))
NLB0_REGION = parse(function("nlb0", "region", namespace="team-a"))
OWN = parse(region("own"))


def test_a_function_of_mode_af_has_a_class_that_never_programs() -> None:
    (made,) = classes(NLB0_AF, parse(function("again", "af", namespace="team-a")))
    assert made["metadata"]["name"].startswith("af-ce4-d84-")
    assert len(made["metadata"]["name"]) <= 63
    assert made["metadata"]["annotations"] == {
        "accelbind.dev/mappings": "default/nlb0, team-a/again"
    }
    assert made["spec"]["extendedResourceName"] == AF_NLB0
    (config,) = made["spec"]["config"]
    assert config == {
        "opaque": {"driver": "accelbind.dev", "parameters": {"afu": NLB0, "program": "Never"}}
    }


def test_all_functions_of_an_interface_that_are_programmed_have_one_class() -> None:
    (made,) = classes(NLB0_REGION, parse(function("nlb3", "region", afu=NLB3)))
    assert made["metadata"]["name"] == f"region-{INTERFACE}"
    assert made["spec"]["extendedResourceName"] == REGION
    assert "config" not in made["spec"]


def test_a_region_that_its_workload_programs_has_the_resource_only_if_no_other_class_has() -> None:
    (alone,) = classes(OWN)
    assert alone["metadata"]["name"] == f"develop-{INTERFACE}"
    assert alone["spec"]["extendedResourceName"] == REGION
    assert alone["spec"]["config"][0]["opaque"]["parameters"] == {"develop": True}
    first, second = classes(OWN, NLB0_REGION)
    assert first["spec"]["extendedResourceName"] == REGION
    assert "extendedResourceName" not in second["spec"]


def test_pods_of_today_get_devices_that_are_healthy() -> None:
    cards = [card(0), card(1, port("dfl-port.1", NLB3)), card(2, port("dfl-port.2", NLB0, BAD))]
    loaded, regions = classes(NLB0_AF, NLB0_REGION)
    assert chosen(of_cards(*cards), loaded["spec"]) == ["fpga-0000-5e-00-0"]
    both = ["fpga-0000-5e-00-0", "fpga-0000-5f-00-0"]
    assert chosen(of_cards(*cards), regions["spec"]) == both


def test_a_template_prefers_a_loaded_region_then_a_blank_one() -> None:
    cards = [card(0, port("dfl-port.0", NLB3)), card(1, port("dfl-port.1", NLB0)), card(2)]
    programmed = {"dfl-port.0": ""}  # as card(2), which is named after its port 2
    first, second, third = (f"fpga-0000-{bus}-00-0" for bus in ("5e", "5f", "60"))
    found = alternatives(NLB0_REGION, of_cards(*cards, programmed=programmed))
    assert [*found.items()] == [
        *(("loaded", [second, third]), ("blank", [first])),
        ("any", [first, second, third]),
    ]


def test_an_opencl_program_is_known_by_its_id() -> None:
    cards = [card(0), card(1, port("dfl-port.1", OPENCL_AFU))]
    devices = of_cards(*cards, programmed={"dfl-port.1": PROGRAM})
    found = alternatives(parse(function("cl", "region", afu=PROGRAM)), devices)
    assert (found["loaded"], found["blank"]) == (["fpga-0000-5f-00-0"], [])


@pytest.mark.parametrize("mapping", [NLB0_AF, OWN])
def test_a_template_of_another_mode_requests_its_class(mapping: Mapping) -> None:
    (of,) = classes(mapping)
    (request,) = claim_template(mapping)["spec"]["spec"]["devices"]["requests"]
    assert request == {"name": "fpga", "exactly": {"deviceClassName": of["metadata"]["name"]}}
    assert chosen(of_cards(card()), of["spec"]) == ["fpga-0000-5e-00-0"]


def test_vector_engines_and_fpgas_have_classes_of_their_own() -> None:
    types = load_types(REPOSITORY / "manifests/device-types").types
    (of,) = (each for each in types if each.name == "nec-vector-engine")
    engine = Device("0", of.resource, type=of.name, attributes=(("state", 1), ("osState", 0)))
    inventory = Inventory((card(0),))
    offer = advertise(inventory, PluginMode.REGION, types=[engine])
    devices = dra_devices(offer, inventory, {})
    (regions,) = classes(NLB0_REGION)
    assert chosen(devices, type_class(of)["spec"]) == ["nec-vector-engine-0"]
    assert chosen(devices, regions["spec"]) == ["fpga-0000-5e-00-0"]
    assert type_class(of)["spec"]["extendedResourceName"] == of.resource
