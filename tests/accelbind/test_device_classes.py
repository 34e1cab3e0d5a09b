"""DeviceClasses and templates, and what an allocator makes of them."""

from collections.abc import Iterable
from typing import Any

import pytest

from accelbind.device_classes import FpgaClass, claim_template, fpga_classes, type_class
from plugin.dra.slices import Slice, devices_of_slices, slice_spec
from services.devices.dra import DRIVER, DraDevice, dra_devices
from services.devices.model import Card, Contents, Device, Inventory, PluginMode
from services.devices.types.load import load_types
from services.mappings.model import Mapping, parse
from services.names import OPENCL_AFU
from tests.accelbind.allocator import Allocator, Published
from tests.services.building import function, region
from tests.services.cards import AF_NLB0, BAD, INTERFACE, NLB0, NLB3, REGION, advertise, card, port
from tests.support import REPOSITORY

NODE = "node-1"
PROGRAM = "0f" * 20


def classes(*mappings: Mapping) -> list[dict[str, Any]]:
    named = ((FpgaClass.of(each), f"{each.namespace}/{each.name}") for each in mappings)
    return [*fpga_classes((of, name) for of, name in named if of is not None)]


def cluster(devices: Iterable[DraDevice], classes: Iterable[dict[str, Any]]) -> Allocator:
    """What a scheduler knows: these devices, one of another driver, and the classes."""
    published = [
        Published(DRIVER, each)
        for part in devices_of_slices(devices, taints=True)
        for each in slice_spec(NODE, Slice(NODE, 1, 1, part))["devices"]
    ]
    gpu = {"name": "gpu-0", "attributes": {"model": {"string": "a100"}}}
    return Allocator([*published, Published("gpu.example.com", gpu)], classes)


def of_cards(*cards: Card, programmed: Contents | None = None) -> tuple[DraDevice, ...]:
    inventory = Inventory(cards)
    return dra_devices(advertise(inventory, PluginMode.REGION), inventory, programmed or {})


def template_results(known: Allocator, mapping: Mapping) -> list[str] | None:
    return known.allocated(claim_template(mapping)["spec"]["spec"]["devices"])


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


def test_pods_of_today_get_their_devices() -> None:
    cards = [card(0), card(1, port("dfl-port.1", NLB3)), card(2, port("dfl-port.2", NLB0, BAD))]
    known = cluster(of_cards(*cards), classes(NLB0_AF, NLB0_REGION))
    assert known.requested(AF_NLB0) == ["fpga-0000-5e-00-0 (r)"]
    assert known.requested(AF_NLB0) is None  # the third one is unhealthy
    assert known.requested(REGION) == ["fpga-0000-5f-00-0 (r)"]


def test_a_template_prefers_a_loaded_region_then_a_blank_one() -> None:
    cards = [card(0, port("dfl-port.0", NLB3)), card(1, port("dfl-port.1", NLB0)), card(2)]
    programmed = {"dfl-port.0": ""}  # as card(2), which is named after its port 2
    known = cluster(of_cards(*cards, programmed=programmed), classes(NLB0_REGION))
    assert template_results(known, NLB0_REGION) == ["fpga-0000-5f-00-0 (fpga/loaded)"]
    assert template_results(known, NLB0_REGION) == ["fpga-0000-60-00-0 (fpga/loaded)"]
    assert template_results(known, NLB0_REGION) == ["fpga-0000-5e-00-0 (fpga/blank)"]
    assert template_results(known, NLB0_REGION) is None
    other = cluster(of_cards(cards[0]), classes(NLB0_REGION))
    assert template_results(other, NLB0_REGION) == ["fpga-0000-5e-00-0 (fpga/any)"]


def test_an_opencl_program_is_known_by_its_id() -> None:
    mapping = parse(function("cl", "region", afu=PROGRAM))
    cards = [card(0), card(1, port("dfl-port.1", OPENCL_AFU))]
    programmed = {"dfl-port.1": PROGRAM}
    known = cluster(of_cards(*cards, programmed=programmed), classes(mapping))
    assert template_results(known, mapping) == ["fpga-0000-5f-00-0 (fpga/loaded)"]


@pytest.mark.parametrize("mapping", [NLB0_AF, OWN])
def test_a_template_of_another_mode_requests_its_class(mapping: Mapping) -> None:
    known = cluster(of_cards(card()), classes(mapping))
    assert template_results(known, mapping) == ["fpga-0000-5e-00-0 (fpga)"]


def test_eight_vector_engines_are_allocated_beside_fpgas() -> None:
    (of,) = (
        each
        for each in load_types(REPOSITORY / "manifests/device-types").types
        if each.name == "nec-vector-engine"
    )
    engines = [
        Device(str(n), of.resource, type=of.name, attributes=(("state", 1), ("osState", 0)))
        for n in range(8)
    ]
    inventory = Inventory((card(0), card(1)))
    offer = advertise(inventory, PluginMode.REGION, types=engines)
    devices = dra_devices(offer, inventory, {})
    known = cluster(devices, [*classes(NLB0_AF, NLB0_REGION), type_class(of)])
    assert len(known.requested(of.resource, 8) or ()) == 8
    assert known.requested(of.resource) is None
    assert len(known.requested(REGION, 2) or ()) == 2
