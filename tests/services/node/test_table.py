from dataclasses import replace

from services.containers.holders import Holder
from services.devices.model import Card, Inventory, PluginMode
from services.devices.resources import AdvertisedResources
from services.mappings.model import parse
from services.node.table import Row, Table, rows, with_names
from services.process.problem import Problem
from tests.services.building import function as function_object
from tests.services.building import region as region_object
from tests.services.cards import AF_NLB0, INTERFACE, NLB0, UNIT, advertise, card, port

HOLDER = Holder("ns", "p", "c")


def tree(*cards: Card, mode: PluginMode = PluginMode.AF) -> AdvertisedResources:
    return advertise(Inventory(cards or (card(0),)), mode)


def test_a_device_is_told_with_all_that_is_known_of_it() -> None:
    (row,) = rows(tree(), {(AF_NLB0, "dfl-port.0"): (HOLDER, replace(HOLDER, container="a"))})
    assert row == Row(
        device="dfl-port.0",
        resource=AF_NLB0,
        card="region0",
        pci_addresses=("0000:5e:00.0",),
        numa_node=0,
        interface_id=INTERFACE,
        afu_ids=(NLB0,),
        health="Healthy",
        nodes=("/dev/dfl-port.0",),
        holders=(replace(HOLDER, container="a"), HOLDER),
    )


def test_devices_stand_in_the_order_of_their_numbers() -> None:
    found = rows(tree(card(10), card(9), card(2)), {})
    assert [row.device for row in found] == ["dfl-port.2", "dfl-port.9", "dfl-port.10"]


def test_a_device_that_a_container_has_and_the_node_has_not_is_shown() -> None:
    holders = {(UNIT, "7"): (HOLDER,), (AF_NLB0, "dfl-port.9"): (HOLDER,)}
    first, seven, nine = rows(tree(), holders)
    assert (first.device, first.holders) == ("dfl-port.0", ())
    assert (seven.device, seven.resource, seven.health) == ("7", UNIT, "Unhealthy")
    assert nine.reasons[0].code == "gone"
    assert "a container has dfl-port.9" in nine.reasons[0].text
    assert nine.holders == (HOLDER,)


def test_devices_get_the_names_that_are_mapped_to_what_is_in_them() -> None:
    nlb0 = function_object("nlb0", "af", namespace="team")
    other = function_object("other", "af", afu="0" * 32)
    documents = (nlb0, other, region_object("devel"))
    mappings = [*map(parse, documents)]
    unknown = card(0, port("dfl-port.0", "", Problem("e", "m")))
    for devices, names in (
        (tree(), ("team/nlb0",)),
        (tree(mode=PluginMode.REGION), ("default/devel", "team/nlb0")),
        (tree(unknown), ()),
        (tree(unknown, mode=PluginMode.REGION), ("default/devel",)),
    ):
        table = Table(devices=rows(devices, {}))
        assert [row.names for row in with_names(table, mappings).devices] == [names]
        assert [row.names for row in with_names(table, ()).devices] == [()]
