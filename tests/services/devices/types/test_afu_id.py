"""Device types that name the AFU behind a function of an OFS card."""

import os
from pathlib import Path

import pytest
import yaml

from services.devices.held import HELD
from tests.services.devices.types.making import Types, document
from tests.services.ofs_cards import AFUS, C6100, HE_MEM, OfsNode
from tests.support import REPOSITORY

FIRST, SECOND = "0000:b1:00.5", "0000:b1:00.6"


@pytest.fixture
def node(tmp_path: Path) -> OfsNode:
    made = OfsNode(tmp_path / "node")
    made.add_card(C6100, interface="")
    for number, afu in enumerate(AFUS):
        made.bind(f"0000:b1:00.{number + 5}", afu)
    return made


def test_the_type_in_the_guide_serves_a_card_without_region(node: OfsNode, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/cards.md").read_text()
    types = Types(tmp_path / "types", node.root)
    types.write("c6100.yaml", page.partition("```yaml\n")[2].partition("```")[0])
    served, *others = types.scan().devices
    assert (served.id, served.resource) == ("0000-b1-00-5", "device.accelbind.dev/he-mem")
    assert served.healthy
    assert [each.name for each in served.nodes] == ["vfio/1770", "vfio/vfio"]
    assert [each.reasons[0].text for each in others] == [
        f'afuID is "{afu}", not "{HE_MEM}"' for afu in AFUS[1:]
    ]


def test_bars_are_read_for_known_cards_and_types_that_ask(node: OfsNode, tmp_path: Path) -> None:
    """A FIFO in the place of BAR0 would be a reason, if it was read."""
    for number in (5, 6, 7):
        bar = node.folder(f"0000:b1:00.{number}") / "resource0"
        bar.unlink()
        os.mkfifo(bar)
    pci = {"vendor": ["8086"], "device": ["bccf"], "driver": ["vfio-pci"]}
    spec = {"match": [{"pci": pci}], "nodes": [{"vfio": True}]}
    types = Types(tmp_path / "types", node.root)
    types.write("t.yaml", yaml.safe_dump(document(spec)))
    assert all(each.healthy for each in types.scan().devices)
    spec |= {"env": [{"name": "AFU", "attribute": "afuID"}]}
    types.write("t.yaml", yaml.safe_dump(document(spec)))
    node.tree.file(f"{node.path(FIRST)}/subsystem_device", "0x0001")
    node.tree.file(f"{node.path(SECOND)}/subsystem_device", "0xbeef")
    assert all(each.healthy for each in types.scan().devices), "only a variable is missing"


def test_no_group_with_the_engine_is_given(tmp_path: Path) -> None:
    """As in a slot without ACS, where all functions of a card are in one group."""
    node = OfsNode(tmp_path / "node")
    node.add_card(functions=1)
    node.tree.link("sys/kernel/iommu_groups/1770/devices/0000:b1:00.0", node.path("0000:b1:00.0"))
    node.bind(FIRST)
    types = Types(tmp_path / "types", node.root)
    pci = {"vendor": ["8086"], "device": ["bccf"]}
    spec = {"match": [{"pci": pci}], "nodes": [{"vfio": True}]}
    types.write("t.yaml", yaml.safe_dump(document(spec)))
    assert types.reasons() == {"0000-b1-00-0": []}
    node.tree.bind(node.path("0000:b1:00.0"), "vfio-pci")
    assert types.reasons() == {"0000-b1-00-0": ["node-denied"]}
    (device,) = Types(tmp_path / "types", node.root).scan().devices
    assert (device.id, device.resource) == ("0000-b1-00-0", "")


def test_who_has_the_engine_has_its_functions(tmp_path: Path) -> None:
    """As in mode regiondevel; then the node's mode changes to none."""
    node = OfsNode(tmp_path / "node")
    node.add_card()
    node.bind(FIRST, HE_MEM)
    node.tree.group(node.path("0000:b1:00.0"), 1700)
    node.bind("0000:b1:00.0")
    pci = {"vendor": ["8086"], "subsystem": ["8086:1771"], "driver": ["vfio-pci"]}
    types = Types(tmp_path / "types", node.root)
    env = [{"name": "AFU", "attribute": "afuID"}]
    spec = {"match": [{"pci": pci}], "nodes": [{"vfio": True}], "env": env}
    types.write("t.yaml", yaml.safe_dump(document(spec)))
    held = [("fpga.intel.com/region-x", "dfl-fme.0")]

    def reasons(*held: tuple[str, str]) -> dict[str, list[str]]:
        found = types.scan(*held).devices
        return {each.id: [problem.code for problem in each.reasons] for each in found}

    engine = {"0000-b1-00-0": ["node-denied"]}
    others = {f"0000-b1-00-{number}": ["not-matched"] for number in (6, 7)}
    assert reasons(*held) == engine | {"0000-b1-00-5": [HELD]} | others
    (device,) = (each for each in types.scan().devices if each.healthy)
    assert dict(device.envs)["AFU"] == HE_MEM
