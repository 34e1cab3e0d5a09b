from dataclasses import replace
from pathlib import Path

import pytest

from services.devices.hardware.pci import accelerators, address_in, function_of
from services.devices.hardware.sysfs import Sysfs
from services.devices.model import PciFunction

FOLDER = "sys/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0"
ENTRY = f"{FOLDER}/fpga/intel-fpga-dev.0"
FILES = {
    "class": "0x120000\n",
    "numa_node": "1\n",
    "vendor": "0x8086\n",
    "device": "0x09c4\n",
}
FULL = PciFunction("0000:5e:00.0", 1, None, "8086", "09c4", "pci0000:5d")


def lay_out(root: Path, folder: str = FOLDER, **files: str) -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    for name, content in {**FILES, **files}.items():
        (root / folder / name).write_text(content)


def function(root: Path, entry: str = ENTRY) -> PciFunction | None:
    return function_of(Sysfs(root), f"/{entry}")


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/sys/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0/fpga/dev", "0000:5e:00.0"),
        ("../../../0000:5e:00.0", "0000:5e:00.0"),
        ("10000:01:00.7", "10000:01:00.7"),
        ("/sys/devices/platform/dfl-pci/0000:5e:00.8/x", ""),
        ("0000:5E:00.0", ""),
        ("", ""),
        ("/", ""),
    ],
)
def test_the_innermost_address_of_a_path_is_found(path: str, address: str) -> None:
    assert address_in(path)[0] == address


@pytest.mark.parametrize(
    ("text", "node"), [("0\n", 0), ("-1\n", None), ("", None), ("x", None), ("1" * 7, None)]
)
def test_an_unknown_numa_node_is_none(tmp_path: Path, text: str, node: int | None) -> None:
    lay_out(tmp_path, numa_node=text)
    (tmp_path / ENTRY).mkdir(parents=True)
    found = function(tmp_path)
    assert found is not None
    assert found.numa_node == node


def test_a_virtual_function_names_its_physical_one(tmp_path: Path) -> None:
    (tmp_path / ENTRY).mkdir(parents=True)
    (tmp_path / FOLDER / "physfn").symlink_to("../0000:5e:00.1")
    found = PciFunction("0000:5e:00.0", physfn="0000:5e:00.1", root="pci0000:5d")
    assert function(tmp_path) == found


def test_a_copied_entry_tells_its_function_by_its_device_link(tmp_path: Path) -> None:
    lay_out(tmp_path)
    copied = "sys/class/fpga/intel-fpga-dev.0"
    (tmp_path / copied).mkdir(parents=True)
    (tmp_path / copied / "device").symlink_to(tmp_path / FOLDER)
    assert function(tmp_path, copied) == FULL


def test_a_device_link_to_nowhere_still_tells_the_address(tmp_path: Path) -> None:
    copied = "sys/class/fpga/intel-fpga-dev.0"
    (tmp_path / copied).mkdir(parents=True)
    (tmp_path / copied / "device").symlink_to("../../../0000:5e:00.0")
    assert function(tmp_path, copied) == PciFunction("0000:5e:00.0")
    lay_out(tmp_path)
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices/0000:5e:00.0").symlink_to(f"../../../../{FOLDER}")
    assert function(tmp_path, copied) == FULL


def test_a_copied_function_tells_its_address_itself(tmp_path: Path) -> None:
    copied = "sys/class/fpga/intel-fpga-dev.0"
    uevent = "DRIVER=dfl-pci\nPCI_ID=8086:09C4\nPCI_SLOT_NAME=0000:5e:00.0\n"
    lay_out(tmp_path, f"{copied}/device", uevent=uevent)
    assert function(tmp_path, copied) == replace(FULL, root="")


@pytest.mark.parametrize("uevent", ["", "PCI_SLOT_NAME=somewhere\n", "MAJOR=1\n"])
def test_a_card_on_no_function_has_none(tmp_path: Path, uevent: str) -> None:
    platform = "sys/devices/platform/dfl/fpga_region/region0"
    lay_out(tmp_path, f"{platform}/device", uevent=uevent)
    assert function(tmp_path, platform) is None
    assert function(tmp_path, "sys/devices/platform") is None


def test_accelerators_on_the_bus_are_found_by_their_class(tmp_path: Path) -> None:
    files = Sysfs(tmp_path)
    assert accelerators(files) == []
    devices = "sys/bus/pci/devices"
    lay_out(tmp_path, f"{devices}/0000:5f:00.0")
    lay_out(tmp_path, f"{devices}/0000:5e:00.0")
    lay_out(tmp_path, f"{devices}/0000:00:1f.0", **{"class": "0x060100\n"})
    (tmp_path / devices / "0000:60:00.0").symlink_to("nowhere")
    assert accelerators(Sysfs(tmp_path)) == ["0000:5e:00.0", "0000:5f:00.0"]
