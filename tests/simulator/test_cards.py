import os
from pathlib import Path

import pytest

from services.devices.hardware.scan import scan
from simulator.card_faults import Fault
from simulator.cards import A10_INTERFACE, NLB3, CardSpec, lay_out

DRIVERS = ["opae", "dfl"]


def found(root: Path) -> dict[str, list[str]]:
    """Ports by the address of their function, as a reader sees them."""
    return {card.address: [port.name for port in card.ports] for card in scan(root).cards}


def snapshot(root: Path) -> dict[str, bytes]:
    """Every file and link below a root, with its content."""
    seen = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            if path.is_symlink():
                seen[str(path.relative_to(root))] = bytes(path.readlink())
            elif path.is_file():
                seen[str(path.relative_to(root))] = path.read_bytes()
    return seen


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_laid_out_tree_has_no_link_to_nowhere(tmp_path: Path, driver: str) -> None:
    rack = lay_out(tmp_path, [CardSpec(driver, ports=2)] * 2)
    rack.move_to_vf(rack.addresses[0])
    links = [path for path in tmp_path.rglob("*") if path.is_symlink()]
    assert len(links) >= 12
    assert [path for path in links if not path.exists()] == []


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_layout_is_that_of_the_driver(tmp_path: Path, driver: str) -> None:
    lay_out(tmp_path, [CardSpec(driver, address="0000:5e:00.0")])
    entry, inner = {
        "opae": ("fpga/intel-fpga-dev.0", "intel-fpga-fme.0/pr/interface_id"),
        "dfl": (
            "fpga_region/region0",
            "dfl-fme.0/dfl-fme-region.0/fpga_region/region1/compat_id",
        ),
    }[driver]
    card = tmp_path / "sys/devices/pci0000:5e/0000:5e:00.0" / entry
    listed = tmp_path / "sys/class" / entry
    assert listed.is_symlink()
    assert listed.resolve() == card
    assert (card / "device").resolve() == card.parent.parent
    assert (card / inner).read_text() == f"{A10_INTERFACE}\n"
    assert (tmp_path / "sys/bus/pci/devices/0000:5e:00.0").resolve() == card.parent.parent


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_card_that_is_removed_leaves_nothing_and_its_numbers_are_free(
    tmp_path: Path, driver: str
) -> None:
    rack = lay_out(tmp_path, [CardSpec(driver), CardSpec(driver)])
    before = snapshot(tmp_path)
    address = rack.add_card(CardSpec(driver, ports=2))
    rack.move_to_vf(address, 1)
    rack.remove_card(address)
    assert snapshot(tmp_path) == before
    first = rack.addresses[0]
    names = rack.ports(first), rack.fme(first)
    rack.remove_card(first)
    assert list(found(tmp_path)) == list(rack.addresses)
    rack.add_card(CardSpec(driver, address=first))
    assert (rack.ports(first), rack.fme(first)) == names


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_port_moves_to_a_virtual_function_and_back(tmp_path: Path, driver: str) -> None:
    rack = lay_out(tmp_path, [CardSpec(driver, ports=3, address="0000:5e:00.0")])
    ports = rack.ports("0000:5e:00.0")
    assert rack.move_to_vf("0000:5e:00.0", 1) == "0000:5e:00.1"
    assert rack.move_to_vf("0000:5e:00.0", 1) == "0000:5e:00.2"
    assert found(tmp_path) == {
        "0000:5e:00.0": [ports[0]],
        "0000:5e:00.1": [ports[1]],
        "0000:5e:00.2": [ports[2]],
    }
    function = tmp_path / "sys/bus/pci/devices/0000:5e:00.0"
    assert (function / "sriov_numvfs").read_text() == "2\n"
    assert (function / "virtfn1/physfn").resolve() == function.resolve()
    assert rack.fme("0000:5e:00.1") is None
    rack.move_back("0000:5e:00.2")
    assert (function / "sriov_numvfs").read_text() == "1\n"
    assert found(tmp_path) == {"0000:5e:00.0": [ports[0], ports[2]], "0000:5e:00.1": [ports[1]]}
    assert all(port.problems == () for card in scan(tmp_path).cards for port in card.ports)
    rack.remove_card("0000:5e:00.1")
    assert not (function / "virtfn0").is_symlink()
    assert rack.move_to_vf("0000:5e:00.0") == "0000:5e:00.1"
    assert rack.addresses == ("0000:5e:00.0", "0000:5e:00.1")
    assert found(tmp_path) == {"0000:5e:00.0": [ports[2]], "0000:5e:00.1": [ports[0]]}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("fault", sorted(Fault))
def test_a_fault_changes_the_tree_and_healing_undoes_it(
    tmp_path: Path, driver: str, fault: Fault
) -> None:
    rack = lay_out(tmp_path, [CardSpec(driver, ports=2)])
    (address,) = rack.addresses
    rack.set_afu(address, NLB3, 1)
    before = snapshot(tmp_path)
    rack.break_(address, fault, 1)
    assert snapshot(tmp_path) != before
    rack.break_(address, fault, 1)
    rack.heal(address, fault, 1)
    assert snapshot(tmp_path) == before
    rack.heal(address, fault, 1)
    assert snapshot(tmp_path) == before
